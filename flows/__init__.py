"""Prefect runs the stages: flows, schedules, and a team's deployments."""
