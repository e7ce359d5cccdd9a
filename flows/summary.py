"""What a flow run shows: the live output of a running stage, the Prefect events that a team wants, and its end.

The end names its stages, the charges of the data set, the card, and the way to the pages.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event
from prefect.states import State

from flows.graph import FlowNode
from flows.runner import How, StageOutcome
from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.files import read_json
from palimpsest.params.load import read
from palimpsest.privacy.ledger.rules import balance
from palimpsest.privacy.receipt import read_receipt
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.progress import LINE
from palimpsest.report.formats import at_most
from palimpsest.work.context import Context, open_workspace
from palimpsest.work.ledger import summarise_books
from palimpsest.work.plan import PlanSummary, budget_sentence
from palimpsest.workspace import CARD, PAGE, RELEASE, STATEMENT

TABLE_KEY = "stages"
REPORT_KEY = "report"
CHARGES_KEY = "charges"
CARD_KEY = "card"
PLAN_KEY = "plan"
_PAGES = {
    "Internal audit report": (PAGE, "Private zone: do not share it."),
    "Privacy card": (CARD, "Made of what may be published."),
    "Release": (RELEASE / "card.html", "The card of the folder that may leave."),
}
_SECONDS_BETWEEN_UPDATES = 1.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REFUSED, FAILED = "palimpsest.budget.refused", "palimpsest.stage.failed"


def publish(
    workspace: Path, stages: Sequence[FlowNode], states: Mapping[str, State[Any]], outcomes: Mapping[str, StageOutcome]
) -> None:
    """Store the table of stages and the links to the pages as artifacts of the current flow run."""
    table = [row(workspace, stage, states[stage.name].name or "", outcomes.get(stage.name)) for stage in stages]
    create_table_artifact(table, key=TABLE_KEY, description="What this run did, and what it charged.")
    _publish_charges(workspace)
    if (workspace / STATEMENT).is_file():
        create_markdown_artifact(card(workspace), key=CARD_KEY, description="What is promised; it may be published.")
    create_markdown_artifact(links(workspace), key=REPORT_KEY, description="The audit of this workspace.")


def _publish_charges(workspace: Path) -> None:
    try:
        context = open_workspace(workspace)
    except PalimpsestError as error:  # the stages that spend have failed on it as well
        get_run_logger().warning("No table of charges. %s", error.problem)
        return
    table = charges(context)
    left = table[-1]["left"] if table else down(context.asset.epsilon)
    asset = context.asset
    said = f"Epsilon {left} of {asset.epsilon:g} is left for {asset.name}, at delta {delta_up(asset.delta)}."
    create_table_artifact(table, key=CHARGES_KEY, description=said)


def charges(context: Context) -> list[dict[str, Any]]:
    """Return every charge of the data set, oldest first: its query, the cost of that by itself, and what was left."""
    books = context.ledger.books()
    every = books.charges(context.asset.name)
    left = [balance(context.asset, every[:number]).left for number in range(1, len(every) + 1)]
    return [
        {
            "variant": line.variant, "query": line.query, "state": line.state,
            "epsilon": "not private" if line.epsilon is None else up(line.epsilon), "left": down(after),
        }
        for line, after in zip(summarise_books(context, books).charges, left, strict=True)
    ]  # fmt: skip


def publish_plan(plan: PlanSummary) -> str:
    """Store what a run would do and cost as artifacts of the current flow run; returns the budget's sentence."""
    table = [
        {
            "stage": line.stage, "method": line.method, "purpose": line.purpose, "state": line.state,
            "epsilon": _format_epsilon(line.cost.epsilon), "adds to the total": up(line.cost.budget_cost),
            "notes": " ".join(line.cost.notes),
        }
        for line in plan.lines
    ]  # fmt: skip
    said = budget_sentence(plan)
    create_table_artifact(table, key=PLAN_KEY, description=f"No row was read and nothing was charged. {said}")
    return said


def card(workspace: Path) -> str:
    """The public statement in short, as Markdown: its status, whom it protects, and each release with its meaning."""
    told = read_json(workspace / STATEMENT)
    releases = [
        f"**{one['variant']}** ({one['method']}): epsilon {_format_epsilon(one['epsilon'])}. {_meaning(one['meaning'])}"
        for one in told["releases"]
    ]
    status = [f"**{told['status']}**", *told["reasons"], f"{told['unit']['description']} {told['unit']['note']}"]
    return "\n\n".join([*status, *releases])


def _meaning(words: Mapping[str, Any] | None) -> str:
    return words["sentence"] if words else "It bounds nothing."


def row(workspace: Path, stage: FlowNode, state: str, outcome: StageOutcome | None) -> dict[str, Any]:
    """One line of the table: stage, state, seconds and epsilon spent in this run.

    Args:
        stage: the stage.
        state: its task's state.
        outcome: what happened to it; None if it was not run.
    """
    return {
        "stage": stage.name,
        "state": state,
        "seconds": round(outcome.seconds, 1) if outcome else 0.0,
        "epsilon spent": "" if stage.receipt is None else _spent(workspace / stage.receipt, outcome),
        "does": stage.desc,
    }


def _spent(receipt: Path, outcome: StageOutcome | None) -> str:
    if outcome is None:
        return "0 (not run)"
    if outcome.how is None:  # it may have charged before it failed, and then wrote no receipt
        return "see the ledger"
    if outcome.how is not How.REPRODUCED:
        return "0 (cached)"
    return _format_epsilon(read_receipt(receipt).epsilon) if receipt.is_file() else "see the ledger"


def _format_epsilon(epsilon: float | None) -> str:
    return "unbounded" if epsilon is None else at_most(epsilon, 4)


def links(workspace: Path) -> str:
    """Markdown with the pages that are there: what each is, its address, and whether it may be shared."""
    found = {name: (workspace / path, note) for name, (path, note) in _PAGES.items() if (workspace / path).is_file()}
    if not found:
        return f"No report yet: the stage that writes `{next(iter(_PAGES.values()))[0]}` has not run."
    # Browsers refuse to follow a link from a web page to a file, so the address is there to copy, too.
    return "\n\n".join(
        f"[{name}]({page.as_uri()})\n\n`{page.as_uri()}`\n\n{note}" for name, (page, note) in found.items()
    )


class LiveLines:
    """Takes a stage's lines: each goes to the log of the current task run, progress lines to one artifact as well."""

    def __init__(self, stage: str) -> None:
        self._log = get_run_logger()
        self._progress = Progress(artifact_key(stage))

    def __call__(self, line: str) -> None:
        self._log.info("%s", _COLOUR.sub("", line))
        try:
            self._progress(line)
        except httpx.HTTPError:  # a bar that cannot be drawn must never cost a stage that spends budget
            self._log.warning("The progress artifact could not be updated.")


class Progress:
    """Turns progress lines into a Prefect progress artifact, at most one update a second."""

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = key
        self._clock = clock
        self._artifact: UUID | None = None
        self._updated = float("-inf")

    def __call__(self, line: str) -> None:
        percent = parse_percent(line)
        if percent is None or not self._is_due(percent):
            return
        self._updated = self._clock()
        text = line.removeprefix("progress ")
        if self._artifact is None:
            self._artifact = cast(UUID, create_progress_artifact(percent, key=self._key, description=text))
        else:
            update_progress_artifact(self._artifact, percent, description=text)

    def _is_due(self, percent: float) -> bool:
        return percent == 100 or self._clock() - self._updated >= _SECONDS_BETWEEN_UPDATES


def parse_percent(line: str) -> float | None:
    """Return the percentage of its loop that a progress line says is done, 0 to 100; None for any other line.

    >>> parse_percent("progress training 3/12 1.50 step/s eta 0:00:06")
    25.0
    >>> parse_percent("progress near-duplicates 75% eta 0:00:10")
    75.0
    >>> parse_percent("loss 0.3") is None
    True
    """
    match = LINE.match(line)
    if match is None or (match["total"] and int(match["total"]) == 0):
        return None
    return float(match["percent"] or min(100.0, 100 * int(match["done"]) / int(match["total"])))


def artifact_key(stage: str) -> str:
    """A stage's name in the letters that Prefect allows.

    >>> artifact_key("dp_train@dp3")
    'progress-dp-train-dp3'
    """
    return "progress-" + re.sub(r"[^a-z0-9]+", "-", stage.lower()).strip("-")


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
