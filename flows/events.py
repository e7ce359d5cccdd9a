"""What a team wants to hear of, as events of Prefect that automations wait for.

Guarantee: an event names the data set and stages or methods. Whether a stage failed may follow from private rows; no
other event does. Of audits it tells what those with invented records found, when they ran.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prefect.events import emit_event
from prefect.states import State

from flows.runner import How, StageOutcome
from palimpsest.errors import ParamsError
from palimpsest.files import read_json
from palimpsest.params.load import read
from palimpsest.workspace import TWINS

REFUSED, FAILED, BROKEN = "palimpsest.budget.refused", "palimpsest.stage.failed", "palimpsest.claim.refuted"
_AUDIT, _REFUTED = "twins@", "refuted"  # the stages that audit a method end to end, and one of their verdicts


def asset_of(workspace: Path) -> str:
    """The name of a workspace's data set; its folder's where params.yaml cannot be read."""
    try:
        return read(workspace).dataset.asset
    except ParamsError:  # whoever runs the graph says so, in words
        return workspace.resolve().name


def tell(event: str, workspace: Path, said: str) -> None:
    """Emit an event about the data set of a workspace; `said` is a sentence for whoever is notified."""
    asset = asset_of(workspace)
    resource = {"prefect.resource.id": f"palimpsest.asset.{asset}", "prefect.resource.name": asset}
    emit_event(event, resource, payload={"said": said})


def tell_outcomes(workspace: Path, states: Mapping[str, State[Any]], outcomes: Mapping[str, StageOutcome]) -> None:
    """Tell of the stages that failed and of the methods whose claim an audit refuted just now."""
    if failed := [name for name, state in states.items() if state.is_failed()]:
        tell(FAILED, workspace, f"Failed: {', '.join(failed)}. The log of each stage says why.")
    audited = [name for name, outcome in outcomes.items() if outcome.how is How.REPRODUCED]
    if names := refuted(workspace, [name.removeprefix(_AUDIT) for name in audited if name.startswith(_AUDIT)]):
        tell(BROKEN, workspace, f"An audit refuted the claim of method {', '.join(names)}: release nothing of it.")


def refuted(workspace: Path, methods: Iterable[str]) -> list[str]:
    """Those of the methods whose claim an end-to-end audit on invented records refuted."""
    return [name for name in methods if read_json(workspace / TWINS / f"{name}.json")["verdict"] == _REFUTED]
