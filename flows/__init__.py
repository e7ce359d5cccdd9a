"""Prefect runs the stages: flows, schedules, and a team's deployments.

* `build`: the graph of dvc.yaml as a Prefect flow: one task for each stage, DVC's cache the only cache
* `children`: child processes that can all be stopped, with everything they started; only their user can open what
  they make
* `environment`: the settings that DVC and Prefect read from the environment; both read them when they are imported
* `graph`: the graph of dvc.yaml: which stages run, after which others, and what their `meta:` says
* `live`: the live output of a running stage, and the Prefect events that a team wants to hear of
* `runner`: one stage at a time, through DVC: ask whether it is up to date, and if not let DVC reproduce it in a child
* `serve`: the flow as a deployment: its name, its checked schedule, and never two runs at once
* `side_by_side`: the graph without Prefect: stages that need nothing of each other run at once, and share the
  terminal
* `slots`: the resources that stages share: how many may run at once, and which devices each has to itself
* `summary`: the end of a flow run: its stages, the charges of the data set, the card, and the way to the pages
* `team`: prefect.yaml of a workspace: written once for a team to edit, then applied to a Prefect server
* `ui`: a local Prefect server around a flow, for its user interface
"""
