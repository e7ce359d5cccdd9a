"""What a team wants to hear of, as events of Prefect that automations wait for.

Guarantee: an event names the data set and stages or methods. Nothing of the private zone decides whether it comes, but
that a stage failed: verdicts of audits on real records are not told, only those of invented records and broken twins.
"""

from collections.abc import Mapping
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
_REPORT, _REFUTED = "report", "refuted"  # the stage that writes the table of verdicts, and one of them


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
    """Tell of the stages that failed and, where the page is new, of the methods whose claim an audit refuted."""
    if failed := [name for name, state in states.items() if state.is_failed()]:
        tell(FAILED, workspace, f"Failed: {', '.join(failed)}. The log of each stage says why.")
    page = outcomes.get(_REPORT)
    if page and page.how is How.REPRODUCED and (names := refuted(workspace)):
        tell(BROKEN, workspace, f"An audit refuted the claim of method {', '.join(names)}: release nothing of it.")


def refuted(workspace: Path) -> list[str]:
    """The methods whose claim an end-to-end audit on invented records refuted."""
    audits: dict[str, Any] = {path.stem: read_json(path) for path in sorted((workspace / TWINS).glob("*.json"))}
    return [name for name, audit in audits.items() if audit["verdict"] == _REFUTED]
