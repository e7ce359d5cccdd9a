"""The live output of a running stage, and the Prefect events that a team wants to hear of."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.events import emit_event
from prefect.states import State

from palimpsest.errors import ParamsError
from palimpsest.params.load import read
from palimpsest.progress import LINE

_SECONDS_BETWEEN_UPDATES = 1.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REFUSED, FAILED = "palimpsest.budget.refused", "palimpsest.stage.failed"


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
