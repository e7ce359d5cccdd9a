"""Loops that tell how far they are, and which of them may count aloud."""

import ast
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from palimpsest import progress
from palimpsest.progress import LINE, counter, track

ROOT = Path(__file__).parents[1]

# Every loop of stages and library that is not said to be private: file and what is called -> why its count is public.
COUNTED = {
    "src/palimpsest/audit/fidelity.py track": "the measures, a fixed list",
    "src/palimpsest/work/plan.py track": "points of a grid, as the command line has them",
    "src/palimpsest/models/decoder/training.py descend": "steps over the public text",
    "src/palimpsest/models/descent.py track": "as its caller says",
    "src/palimpsest/models/lm.py descend": "as its caller says",
    "src/palimpsest/models/lm.py train": "steps over the public text, or its pairs",
    "src/palimpsest_lab/shots.py counter": "rows of the settings, answered with noise; private in a reference",
    "src/palimpsest/prediction/query.py counter": "tokens of the settings, answered with noise; private in a reference",
    "src/palimpsest/training/dpsgd.py track": "steps, from n_public",
    "src/palimpsest_lab/stages/shadow_mia.py track": "shadow models, a fixed number",
}
# Every file of stages and library that prints, but for the command line's -> what.
PRINTS = {
    "src/palimpsest/progress.py": "the lines of this module",
    "src/palimpsest/work/before.py": "questions, and what a word that was given answers",
    "src/palimpsest/work/begin.py": "where the workspace is, and which files are copied into it",
    "src/palimpsest/work/check.py": "that files are read, and limits that follow from public texts",
    "src/palimpsest/work/console.py": "tables; and on its owner's terminal alone what follows from private rows",
    "src/palimpsest/work/ledger.py": "the terms of a data set's entry, and what it has spent",
    "src/palimpsest/work/look.py": "the final table, and where pages are",
    "src/palimpsest/work/repro.py": "why DVC stopped",
    "src/palimpsest/work/run.py": "what a run does, and what it charged",
    "stages/common.py": "how a stage fails",
    "stages/audited.py": "why an audit came to no result",
    "stages/resuming.py": "that nothing is charged for what was put back",
    "stages/fit.py": "that nothing is charged for what is made again",
    "stages/preprocess.py": "where the warnings are, without them",
    "src/palimpsest_lab/stages/ratings.py": "what people said of rows, and whose rows on a sheet are private",
    "stages/release.py": "what was released, and what signed it",
    "stages/report.py": "why a measurement could not be drawn",
    "stages/spending.py": "the budget",
    "stages/write_public.py": "what an author will write, from public words, and what that costs",
    "stages/warm.py": "that a stage's process was lost",
}


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a loop of uneven steps, told at every step."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    show = counter(name="predict wave 0", total=30, private=False, unit="token")
    for done in (4, 20, 30):
        show(done)
    return capsys.readouterr().err.splitlines()


def test_a_counter_tells_what_is_done_in_the_one_shape_of_a_line(told: list[str]) -> None:
    found = [LINE.match(line) for line in told]
    assert [(match["name"], match["done"], match["total"]) for match in found if match] == [
        ("predict wave 0", "4", "30"),
        ("predict wave 0", "20", "30"),
        ("predict wave 0", "30", "30"),
    ]


def test_a_counter_is_silent_between_lines_but_tells_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    show = counter(name="loop", total=3, private=False)
    for done in (1, 2, 3):
        show(done)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_loop_that_ends_early_or_is_empty_tells_its_end_once(capsys: pytest.CaptureFixture[str]) -> None:
    for items, total in ((range(2), 3), (range(3), 3), ([], 3)):
        list(track(items, name="loop", total=total, private=False))
    ends = [match["done"] for line in capsys.readouterr().err.splitlines() if (match := LINE.match(line))]
    assert ends == ["2", "3", "0"]


# Private loops.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still."""
    monkeypatch.setattr("time.monotonic", lambda: 7.0)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("total", [0, 1, 3, 8, 20, 1237])
def test_a_private_loop_tells_the_same_whatever_it_loops_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert list(track(range(total), name="near-duplicates", total=total, private=True)) == list(range(total))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "".join(f"progress near-duplicates {part}% eta 0:00:00\n" for part in (25, 50, 75, 100))


def test_no_line_stands_for_one_item(capsys: pytest.CaptureFixture[str]) -> None:
    """Each item takes longer than the shortest time between lines, so that only the loop holds them back."""
    after = []
    for total in (2, 7, 8, 9, 100):
        show = counter(name="loop", total=total, private=True)
        after.append([(show(done), len(capsys.readouterr().err.splitlines()))[1] for done in range(1, total + 1)])
    assert [max(lines[:-1]) for lines in after] == [0, 0, 1, 1, 1]
    assert [sum(lines) for lines in after] == [4] * 5
    assert all(not first or not second for lines in after for first, second in itertools.pairwise(lines))


def test_the_time_left_follows_from_the_share_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, *[103.0] * 3])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    show = counter(name="loop", total=1237, private=True)
    show(311)
    assert capsys.readouterr().err == "progress loop 25% eta 0:05:10\n"


@cache
def nodes() -> list[tuple[str, ast.Call | ast.FunctionDef]]:
    """Path and node of every call and every function in stages and library."""
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for folder in ("src", "stages")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Call, ast.FunctionDef))
    ]


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Path and every call of this name, or of any where it is "*"."""
    for path, node in nodes():
        if isinstance(node, ast.Call) and name in ("*", called(node)):
            yield path, node


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def said(call: ast.Call) -> list[str]:
    """What a call says of being private."""
    return [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "private"]


def test_every_loop_says_whether_it_is_private() -> None:
    silent = [path for name in ("track", "counter") for path, call in calls(name) if not said(call)]
    assert silent == []


def test_what_counts_aloud_is_listed_with_its_reason() -> None:
    found = {f"{path} {called(call)}" for path, call in calls("*") if said(call) not in ([], ["True"])}
    assert found == set(COUNTED)


def test_no_one_defaults_to_a_count() -> None:
    for _, function in nodes():
        if isinstance(function, ast.FunctionDef):
            own = function.args
            plain = zip(own.args[len(own.args) - len(own.defaults) :], own.defaults, strict=True)
            defaults = [*plain, *zip(own.kwonlyargs, own.kw_defaults, strict=True)]
            assert not [1 for argument, default in defaults if argument.arg == "private" and default is not None]


def test_nothing_else_is_printed() -> None:
    commands = ("src/palimpsest/cli/", "src/palimpsest_lab/cli.py", "src/palimpsest_lab/commands/")
    found = {path for path, _ in calls("print") if not path.startswith(commands)}
    assert found == set(PRINTS)
