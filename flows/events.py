"""Prefect events about what a team wants to hear of, for automations to wait for.

Guarantee: an event names the data set and stages. Whether a stage failed may follow from private rows; no other event
does. What audits found is no event.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect.events import emit_event
from prefect.states import State

from palimpsest.errors import ParamsError
from palimpsest.params.load import read

REFUSED, FAILED = "palimpsest.budget.refused", "palimpsest.stage.failed"


def asset_of(workspace: Path) -> str:
    """The name of a workspace's data set; its folder's where params.yaml cannot be read."""
    try:
        return read(workspace).dataset.asset
    except ParamsError:  # a run of the graph reports it, in words
        return workspace.resolve().name


def tell(event: str, workspace: Path, said: str) -> None:
    """Emit an event about the data set of a workspace; `said` is a sentence for the people notified."""
    asset = asset_of(workspace)
    resource = {"prefect.resource.id": f"palimpsest.asset.{asset}", "prefect.resource.name": asset}
    emit_event(event, resource, payload={"said": said})


def tell_failures(workspace: Path, states: Mapping[str, State[Any]]) -> None:
    """Tell of the stages that failed."""
    if failed := [name for name, state in states.items() if state.is_failed()]:
        tell(FAILED, workspace, f"Failed: {', '.join(failed)}. The log of each stage says why.")
