"""The end of a flow run: a table of its stages, with the budget that each spent, and the way to the pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.states import State

from flows.graph import FlowNode
from flows.runner import How, StageOutcome
from palimpsest.privacy.receipt import read_receipt
from palimpsest.workspace import CARD, PAGE, RELEASE

TABLE_KEY = "stages"
REPORT_KEY = "report"
_PAGES = {
    "Internal audit report": (PAGE, "Private zone: do not share it."),
    "Privacy card": (CARD, "Made of what may be published."),
    "Release": (RELEASE / "card.html", "The card of the folder that may leave."),
}


def publish(
    workspace: Path, stages: Sequence[FlowNode], states: Mapping[str, State[Any]], outcomes: Mapping[str, StageOutcome]
) -> None:
    """Store the table of stages and the links to the pages as artifacts of the current flow run."""
    table = [row(workspace, stage, states[stage.name].name or "", outcomes.get(stage.name)) for stage in stages]
    create_table_artifact(table, key=TABLE_KEY, description="What this run did, and what it charged.")
    create_markdown_artifact(links(workspace), key=REPORT_KEY, description="The audit of this workspace.")


def row(workspace: Path, stage: FlowNode, state: str, outcome: StageOutcome | None) -> dict[str, Any]:
    """One line of the table: stage, state, seconds and epsilon spent in this run.

    Args:
        workspace: the folder that `stage.receipt` starts from.
        stage: the stage.
        state: its task's state.
        outcome: what happened to it; None if it was not run.
    """
    return {
        "stage": stage.name,
        "state": state,
        "seconds": round(outcome.seconds, 1) if outcome else 0.0,
        "epsilon spent": "" if stage.receipt is None else _spent(workspace / stage.receipt, outcome),
    }


def _spent(receipt: Path, outcome: StageOutcome | None) -> str:
    if outcome is None:
        return "0 (not run)"
    if outcome.how is None:  # it may have charged before it failed, and then wrote no receipt
        return "see the ledger"
    if outcome.how is not How.REPRODUCED:
        return "0 (cached)"
    return _charged(read_receipt(receipt).epsilon) if receipt.is_file() else "see the ledger"


def _charged(epsilon: float | None) -> str:
    return "unbounded" if epsilon is None else f"{epsilon:.4g}"


def links(workspace: Path) -> str:
    """Markdown with the pages that are there: what each is, its address, and whether it may be shared."""
    found = {name: (workspace / path, note) for name, (path, note) in _PAGES.items() if (workspace / path).is_file()}
    if not found:
        return f"No report yet: the stage that writes `{next(iter(_PAGES.values()))[0]}` has not run."
    # Browsers refuse to follow a link from a web page to a file, so the address is there to copy, too.
    return "\n\n".join(
        f"[{name}]({page.as_uri()})\n\n`{page.as_uri()}`\n\n{note}" for name, (page, note) in found.items()
    )
