"""A run in two parts: rows with their utility and n-grams, and a first page; then all that takes longer."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from palimpsest.cli.context import environment
from palimpsest.cli.graph import upstream
from palimpsest.cli.processes import shown
from palimpsest.cli.report import page_of, read_table, show_conclusions
from palimpsest.graph.stage import NAME
from palimpsest.graph.stages import STAGES

Bring: TypeAlias = Callable[[Sequence[str]], int]  # targets, none for all -> exit status
Then: TypeAlias = Callable[[], None]
Courses: TypeAlias = Callable[[Mapping[str, str], Bring], int]  # brings the parts up to date, one after another
_FIRST = frozenset(stage.name for stage in STAGES if stage.first)


@dataclass(frozen=True)
class FirstCourse:
    """The part of a run before the first page.

    Attributes:
        targets: the stages that the page waits for.
        awaited: the metric files that are still to be written after it.
    """

    targets: tuple[str, ...]
    awaited: tuple[str, ...]


def in_courses(
    workspace: Path,
    targets: Sequence[str],
    chosen: Sequence[str],
    changed: Collection[str],
    variables: Mapping[str, str],
    bring: Bring,
    *,
    then: Then = lambda: None,
) -> int:
    """Bring up to date what the first page shows, draw it, then bring up to date what was chosen.

    Returns the exit status. A run of named targets, or one that leaves nothing for later, has one part.

    Args:
        targets: as they were named; none for all.
        chosen: those of them that are brought up to date.
        changed: the stages for which something changed.
        variables: set in the environment of stages, in addition to what is inherited.
        then: called once the first page is there.
    """
    course = None if targets else first_course(workspace, changed)
    if course is None:
        return bring(chosen)
    code = bring(course.targets)
    if code == 0:
        if _draw(workspace, course.awaited, variables):
            then()
        code = bring(chosen)
    return code


def first_course(workspace: Path, changed: Collection[str]) -> FirstCourse | None:
    """Return the part before the first page; None if none of it would run, or no measurement is left for later."""
    targets = tuple(sorted(name for name in changed if _stage(name) in _FIRST))
    if not targets:
        return None
    awaited = _measured(set(changed) - upstream(workspace, targets))
    return FirstCourse(targets, awaited) if awaited else None


def _measured(stages: Iterable[str]) -> tuple[str, ...]:
    """Return the metric files that stages, named as `dvc repro` prints them, write for the page."""
    kinds = {stage.name: stage for stage in STAGES if not stage.plots}  # the page has plots, and is no measurement
    known = [(kinds[_stage(name)], name.partition("@")[2]) for name in sorted(stages) if _stage(name) in kinds]
    return tuple(str(path).replace(NAME, whose) for stage, whose in known for path in stage.metrics)


def _stage(name: str) -> str:
    return name.partition("@")[0]


def _draw(workspace: Path, awaited: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Write the page and the table whole in place of what lies there; return whether that succeeded.

    The stage `report` writes them anew at the end of the run.
    """
    command = [sys.executable, "-P", "-m", "stages.report", *awaited]
    if shown(command, workspace, {**environment(), **variables}):
        print("The first page could not be drawn; the run goes on, and draws the page at its end.", file=sys.stderr)
        return False
    print(f"First page (private zone): {page_of(workspace)}", flush=True)
    show_conclusions(read_table(workspace))
    return True
