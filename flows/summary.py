"""The end of a flow run: a table of its stages, with the budget that each spent, and the way to the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.states import State

from flows.graph import Stage
from flows.runner import How, Outcome
from palimpsest.files import read_json

TABLE_KEY = "stages"
REPORT_KEY = "report"
_REPORT = Path("reports") / "internal.html"


def publish(
    workspace: Path, stages: Sequence[Stage], states: Mapping[str, State[Any]], outcomes: Mapping[str, Outcome]
) -> None:
    """Store the table of stages and the link to the report as artifacts of the current flow run."""
    table = [row(workspace, stage, states[stage.name].name or "", outcomes.get(stage.name)) for stage in stages]
    create_table_artifact(table, key=TABLE_KEY, description="What this run did, and what it charged.")
    create_markdown_artifact(_link(workspace / _REPORT), key=REPORT_KEY, description="The audit of this workspace.")


def row(workspace: Path, stage: Stage, state: str, outcome: Outcome | None) -> dict[str, Any]:
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


def _spent(receipt: Path, outcome: Outcome | None) -> str:
    if outcome is None:
        return "0 (not run)"
    if outcome.how is None:  # it may have charged before it failed, and then wrote no receipt
        return "see the ledger"
    if outcome.how is not How.REPRODUCED:
        return "0 (cached)"
    return _charged(read_json(receipt)) if receipt.is_file() else "see the ledger"


def _charged(receipt: Mapping[str, Any]) -> str:
    epsilon = receipt.get("epsilon")
    return "unbounded" if epsilon is None else f"{epsilon:.4g}"


def _link(report: Path) -> str:
    if not report.is_file():
        return f"No report yet: the stage that writes `{report}` has not run."
    # Browsers refuse to follow a link from a web page to a file, so the address is there to copy, too.
    return f"[Internal audit report]({report.as_uri()})\n\n`{report.as_uri()}`\n\nPrivate zone: do not share it."
