"""Prefect runs the stages: flows, schedules, and a team's deployments.

Everywhere here, `workspace` is the folder with dvc.yaml, and `targets` are stages or matrix groups of it, all by
default. `workers` is how many stages may run at once, sharing the CPU cores; by default two, or one for every four
cores. `variables` are set in the environment of stages, in addition to what is inherited. `keeps` are descriptors that
every stage holds open as long as it lives.

* `build`: the graph of dvc.yaml as a Prefect flow: one task for each stage, DVC's cache the only cache
* `environment`: the settings that DVC and Prefect read from the environment; both read them when they are imported
* `graph`: the graph of dvc.yaml: which stages run, after which others, and the resources that they share
* `runner`: stages through DVC, each in a child that can be stopped with all it started: one at a time, or several at
  once
* `serve`: the flow as a deployment: by a checked schedule, never two runs at once, or by a team's prefect.yaml
* `summary`: what a flow run shows: live output of its stages, events for a team, and at its end charges, card and pages
* `ui`: a local Prefect server around a flow, for its user interface
"""
