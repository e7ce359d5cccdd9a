"""Prefect runs the stages: flows, schedules, and a team's deployments."""

from palimpsest.parts import in_parts

in_parts("dp_accounting")  # a flow reads what is planned, and starts the stages that need the rest
