"""Bad days: blows of all kinds to a small workspace, and what is left of it after the next run.

    python -m bench.chaos                    # all cells, going on where an earlier run stopped
    python -m bench.chaos --only kill        # those whose name has this in it
    python -m bench.chaos --table            # what was found, as a table for Markdown

A workspace with stages of all zones is made once and run once. Each cell copies it, changes the settings of all that
spends, starts `palimpsest run`, deals its blow, and runs once more. Moments are drawn by a seed. Linux alone.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.chaos import checks, kills
from bench.chaos.blows import BLOWS
from bench.chaos.checks import FIXED, NOISY
from bench.chaos.place import EVOLVED, MODEL, SELECTED, Place, made, shared
from flows.ui import server
from palimpsest.privacy.ledger.records import Charge
from palimpsest.work.context import environment
from stages.warm import serve_stages

RUNNERS = {"dvc": ("run", "--yes"), "prefect": ("run", "--ui", "--yes")}
TARGETS = ("public_only", "select", "dp_train", "pplm_generate")
FEWER = ("public_only", "select")  # for what strikes wherever it is
WORK = Path(tempfile.gettempdir()) / "palimpsest-chaos"  # no ledger may be in a workspace, as the project is
KILLS = 2  # cells of each kind under each runner, each of `kills.TIMES` moments
LIBRARIES = (
    "palimpsest.work.run", "palimpsest.work.plan", "palimpsest.cli.release", "palimpsest.privacy.accounting",
    "stages.spenders", "dp_accounting.pld", "pandas", "pyarrow.parquet",
)  # fmt: skip
_OTHER = {"epsilon": 1.1}
CHANGED = {
    "public_only": {"rows": 41}, "lms": {MODEL: _OTHER}, "variants": {SELECTED: _OTHER, EVOLVED: _OTHER},
}  # fmt: skip
_PRIOR = {**_OTHER, "label_counts": "prior"}  # noise on counts is OpenDP's, which no seed fixes
SEEDED = {
    **CHANGED, "lms": {MODEL: _PRIOR}, "variants": {SELECTED: _PRIOR, EVOLVED: _PRIOR}, "testing": {"noise_seed": 5},
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One blow."""

    kind: str  # its row of the table
    number: int
    runner: str  # what runs the graph, before and after
    # deals its blows to a changed copy, one each time it is asked; yields what each hit
    strike: Callable[[Place, tuple[str, ...], random.Random], Iterator[str]]
    seeded: bool = False  # whether a seed fixes the noise, so that rows and models can be compared too
    targets: tuple[str, ...] = TARGETS  # what is brought up to date

    @property
    def name(self) -> str:
        """What its result is kept under."""
        return f"{self.kind} {self.runner} {self.number}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of `palimpsest`."""
        return (*RUNNERS[self.runner], *self.targets)


def cells() -> Iterator[Cell]:
    """All of them, in the order of the table."""
    for number in range(KILLS):
        for runner in RUNNERS:
            for whom in kills.WHOM:
                yield Cell(f"kill {whom}", number, runner, partial(kills.in_a_row, whom), seeded=number % 2 == 1)
        yield Cell("kill of a team", number, "dvc", kills.of_a_team, targets=("dp_train",))
    for kind, (strike, runners, times) in BLOWS.items():
        for runner in runners:
            yield from (Cell(kind, number, runner, strike, targets=FEWER) for number in range(times))


def tried(cell: Cell, work: Path) -> dict[str, Any]:
    """Deal the blows of one cell and look: what is kept of it."""
    clean, place, began = reference(work, cell.seeded), Place(work / "base").copy(work / "cell"), time.monotonic()
    place.change(SEEDED if cell.seeded else CHANGED)
    hits: list[str] = []
    left: list[str] = []
    snapshots: list[Sequence[Charge]] = []
    for hit in cell.strike(place, cell.arguments, random.Random(cell.name)):
        hits.append(hit)
        left += kills.left_behind(place)
        snapshots.append(place.charges)
    code, printed = place.run(*cell.arguments)
    seen = judged(place, clean, snapshots, FIXED + NOISY * cell.seeded)
    told = [*([printed[-20_000:]] if code else []), *(each for found in seen.values() for each in found), *left]
    again = checks.lost(snapshots[-1], place.charges)
    return {
        "name": cell.name, "kind": cell.kind, "runner": cell.runner, "hits": hits, "again": again,
        "seconds": round(time.monotonic() - began, 1), "finished": code == 0, "ended": not left, "told": told,
        **{name: not found for name, found in seen.items()},
    }  # fmt: skip


def judged(
    place: Place, clean: Place, snapshots: Sequence[Sequence[Charge]], patterns: Sequence[str]
) -> dict[str, list[str]]:
    """What must hold -> where it does not."""
    after = place.charges
    return {
        "same": checks.differing(checks.digests(place, patterns), checks.digests(clean, patterns)),
        "covered": [each for before in snapshots for each in checks.uncovered(place, before)],
        "once": [each for before in snapshots for each in checks.charged_twice(before, after)],
    }


def reference(work: Path, seeded: bool) -> Place:
    """The same changed workspace after a run that nobody disturbed; made once."""
    home = work / ("seeded" if seeded else "clean")
    if not (home / "done").exists():
        base(work)
        place = Place(work / "base").copy(home)
        place.change(SEEDED if seeded else CHANGED)
        code, printed = place.run(*RUNNERS["dvc"], *TARGETS)
        if code:
            raise SystemExit(printed)
        (home / "done").touch()
    return Place(home)


def base(work: Path) -> None:
    """The workspace that all cells copy; made once."""
    if not (work / "base" / "done").exists():
        made(work / "base")
        (work / "base" / "done").touch()


def measure(work: Path) -> None:
    """Note how many lines an undisturbed run says, by DVC and by Prefect; once."""
    note = work / "lines.json"
    base(work)
    if not note.exists():
        said = []
        for arguments in RUNNERS.values():
            place = Place(work / "base").copy(work / "cell")
            place.change(CHANGED)
            code, printed = place.run(*arguments, *TARGETS)
            if code:
                raise SystemExit(printed)
            said.append(len(printed.splitlines()))
        note.write_text(json.dumps(said))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="deal only blows whose name contains this")
    parser.add_argument("--work", type=Path, default=WORK, help="where workspaces and results are kept")
    parser.add_argument("--table", action="store_true", help="print what was found, and run nothing")
    args = parser.parse_args()
    work = args.work.resolve()
    book = work / "results.jsonl"
    known = read(book)
    todo = [cell for cell in cells() if not args.table and args.only in cell.name and cell.name not in known]
    with ready(work) if todo else nullcontext():
        for cell in todo:
            measure(work)
            found = known[cell.name] = tried(cell, work)
            with book.open("a") as stream:
                stream.write(json.dumps(found) + "\n")
            print(cell.name, *(name for name in HELD if not found[name]), found["hits"], found["told"], flush=True)
    print(table(list(known.values())))
    sys.exit(not all(found[name] for found in known.values() for name in HELD))


@contextmanager
def ready(work: Path) -> Iterator[None]:
    """One process with the stages' libraries, one server of Prefect and one copy of ours, for the runs of all cells."""
    for name in LIBRARIES:
        import_module(name)
    with serve_stages({**environment(), **shared(work)}) as warm, server(work) as address:
        os.environ.update({**warm, **address})
        yield


HELD = ("finished", "same", "covered", "once", "ended")


def read(book: Path) -> dict[str, dict[str, Any]]:
    """Name -> what was found of the cell."""
    lines = book.read_text().splitlines() if book.exists() else []
    return {body["name"]: body for body in map(json.loads, lines)}


def table(found: Sequence[dict[str, Any]]) -> str:
    """A table for Markdown: one line for each blow and runner."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for body in found:
        rows.setdefault((body["kind"], body["runner"]), []).append(body)
    head = "| blow | runner | blows | next run finishes | equal | ledger covers | nothing twice | no process left |"
    lines = [head, "|---" * 8 + "|"]
    for (kind, runner), bodies in rows.items():
        counts = [sum(bool(body[name]) for body in bodies) for name in HELD]
        dealt = sum(hit != kills.NOTHING for body in bodies for hit in body["hits"])
        held = [f"{count} of {len(bodies)}" for count in counts]
        lines.append(" | ".join([f"| {kind}", runner, str(dealt), *held]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
