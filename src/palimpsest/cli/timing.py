"""Estimates how long stages that will run may take, from how long they took here with other sizes."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from palimpsest.files import read_json
from palimpsest.graph.stage import NAME, Stage
from palimpsest.graph.stages import STAGES
from palimpsest.workspace import Zone
from stages.timing import PASSES, RECORDS, ROWS, place, sizes


@dataclass(frozen=True)
class Work:
    """The amount of work in a stage; 1 stands for a size that does not concern it.

    Attributes:
        records: n_public, where it reads private rows.
        rows: the rows asked for from what it is repeated for.
        passes: the passes over these: epochs, rounds, steps and tokens, multiplied.
    """

    records: float
    rows: float
    passes: float

    def beside(self, before: "Work") -> float:
        """Return how many times as much work it is, by the size that grew most."""
        return max(self.records / before.records, self.rows / before.rows) * self.passes / before.passes


def expected(workspace: Path, names: Iterable[str]) -> dict[str, float]:
    """Return stage, as DVC names it -> its expected minutes; only for those that were measured on this machine."""
    declared, now = {stage.name: stage for stage in STAGES}, sizes(workspace)
    minutes: dict[str, float] = {}
    for full in names:
        stage, _, name = full.partition("@")
        with suppress(OSError, ValueError, KeyError, TypeError, ZeroDivisionError):  # it was not measured, or edited
            known = declared[stage]
            kept = read_json(workspace / place(known.code.rpartition(".")[2], name))
            if kept["cores"] == os.cpu_count():
                grown = _work(known, name, now).beside(_work(known, name, kept["sizes"]))
                minutes[full] = kept["seconds"] / 60.0 * grown
    return minutes


def _work(stage: Stage, name: str, told: Mapping[str, float]) -> Work:
    """Return a stage's work by the settings that it depends on, and the rows of the variant that it measures."""
    keys = [key.replace(NAME, name) for key in stage.params]
    own = [pair for key in keys for pair in _below(key, told)]
    measured = [] if keys != list(stage.params) else _below(f"variants.{name}", told)
    return Work(
        told[f"dataset.{RECORDS}"] if stage.zone is Zone.PRIVATE else 1.0,
        max((size for last, size in (*own, *measured) if last == ROWS), default=1.0),
        math.prod(size for last, size in own if last in PASSES),
    )


def _below(key: str, told: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the sizes at a key and below it, each with the last part of its own key."""
    return ((full.rpartition(".")[2], size) for full, size in told.items() if f"{full}.".startswith(f"{key}."))
