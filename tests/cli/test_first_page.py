"""A run comes in two courses: what the first page shows, then the rest."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from cli_place import Place

from palimpsest.work import run
from palimpsest.work.context import find_stale
from palimpsest.work.run import FirstCourse, first_course, run_courses

CHANGED, VARIABLES = {"ngram_audit@dp3", "report"}, {"A_WORD": "given"}
COURSE = FirstCourse(("ngram_audit@dp3",), ("reports/metrics/dp3/fidelity.json",))


class Runner:
    """Notes what is asked of it, and the pages that are drawn between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, course: FirstCourse | None, code: int = 0) -> None:
        self.asked: list[Sequence[str] | str] = []
        self.code = code
        monkeypatch.setattr(run, "first_course", lambda _, changed: course if changed == CHANGED else None)
        monkeypatch.setattr(run, "_draw", self.draw)

    def draw(self, workspace: Path, awaited: Sequence[str], variables: Mapping[str, str]) -> bool:
        assert variables == VARIABLES
        self.asked.append(f"page before {awaited[0]}")
        return True

    def __call__(self, targets: Sequence[str]) -> int:
        self.asked.append(targets)
        return self.code


def test_the_page_is_drawn_before_what_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(monkeypatch, COURSE)
    then = partial(runner.asked.append, "rows")
    assert run_courses(Path(), [], [], CHANGED, VARIABLES, runner, then=then) == 0
    assert runner.asked == [COURSE.targets, "page before reports/metrics/dp3/fidelity.json", "rows", []]


def test_what_fails_first_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(monkeypatch, COURSE, code=3)
    assert run_courses(Path(), [], ["report"], CHANGED, VARIABLES, runner) == 3
    assert runner.asked == [COURSE.targets]


def test_a_run_of_named_targets_and_one_with_nothing_for_later_are_one_course(monkeypatch: pytest.MonkeyPatch) -> None:
    named, alone = Runner(monkeypatch, COURSE), Runner(monkeypatch, None)
    assert run_courses(Path(), ["select"], ["select"], CHANGED, VARIABLES, named) == 0
    assert run_courses(Path(), [], [], CHANGED, VARIABLES, alone) == 0
    assert (named.asked, alone.asked) == ([["select"]], [[]])


def test_the_first_course_is_rows_their_utility_and_their_n_grams(place: Place) -> None:
    course = first_course(place.workspace, find_stale(place.workspace))
    assert course is not None
    assert set(course.targets) == {"downstream_eval@dp3", "ngram_audit@dp3"}
    own = {f"dp3/{name}" for name in ("membership", "text_membership", "memorisation", "anonymity", "fidelity")}
    assert set(course.awaited) == {f"reports/metrics/{name}.json" for name in own}
