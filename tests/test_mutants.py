"""The list of mutants: each fault still fits the source, names tests that exist, and is counted in the summary."""

import ast
import contextlib
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.mutants import matrix
from bench.mutants.__main__ import SUMMARY, Book, chosen, digest, told, tried
from bench.mutants.listing import RANDOMISED, ROOT, TIERS, Edit, Listing, Mutant, applied, read
from bench.mutants.nursery import Nursery
from bench.mutants.trial import BROKEN, FAILED, PASSED, TIMEOUT, Copy, Outcome, outcome_of

LISTING = read()


def of_each(mutant: Mutant) -> str:
    return mutant.id


@pytest.mark.parametrize("mutant", LISTING.mutants, ids=of_each)
def test_a_mutant_fits_the_source_and_changes_it(mutant: Mutant):
    for file, text in applied(mutant.edits, ROOT).items():
        assert text != (ROOT / file).read_text()
        if file.endswith(".py"):
            ast.parse(text)


def test_no_mutant_names_what_is_not_there(tmp_path: Path):
    """A name that a renaming left behind ends the run before a test can notice anything."""
    for mutant in LISTING.mutants:
        for number, (file, text) in enumerate(applied(mutant.edits, ROOT).items()):
            if file.endswith(".py"):
                (tmp_path / f"{mutant.id}_{number}.py").write_text(text, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821,F822,F823"]
    done = subprocess.run([*ruff, "--output-format", "concise", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mutant", LISTING.mutants, ids=of_each)
def test_a_mutant_begins_where_a_word_does(mutant: Mutant):
    for edit in mutant.edits[:1]:  # later ones may be about what an earlier one wrote
        before = (ROOT / edit.file).read_text(encoding="utf-8").partition(edit.old)[0][-1:]
        assert not (before.isidentifier() and edit.old[0].isidentifier())


@pytest.mark.parametrize("mutant", LISTING.mutants, ids=of_each)
def test_a_mutant_says_what_it_is_and_who_must_notice(mutant: Mutant):
    assert mutant.sentence.endswith(".")
    assert mutant.law.endswith(".")
    assert mutant.item in LISTING.items
    assert mutant.tests.keys() <= TIERS.keys()
    assert all(mutant.tests.values())
    for node in (node for nodes in mutant.tests.values() for node in nodes):
        file, name = node.split("[")[0].split("::")
        assert name in functions_of(file)


@cache
def functions_of(file: str) -> set[str]:
    """Names of a test file's tests."""
    tree = ast.parse((ROOT / file).read_text())
    return {part.name for part in tree.body if isinstance(part, ast.FunctionDef) and part.name.startswith("test_")}


def test_every_known_fault_has_a_mutant():
    assert {mutant.item for mutant in LISTING.mutants} == set(LISTING.items)


def test_what_is_not_repeated_is_of_a_randomised_tier():
    assert LISTING.fixed <= set(LISTING.tests)
    assert set(LISTING.randomised) == {
        node for mutant in LISTING.mutants for tier in RANDOMISED for node in mutant.tests.get(tier, ())
    } - set(LISTING.fixed)


def test_names_differ():
    names = [mutant.id for mutant in LISTING.mutants]
    assert len(set(names)) == len(names)


def test_the_summary_counts_the_mutants_of_this_list_and_none_survives():
    page, every = SUMMARY.read_text(), len(LISTING.mutants)
    assert page.endswith(matrix.counts(LISTING))
    assert f"**{every} of {every} mutants are killed (100%).** The {len(LISTING.tests)} tests" in page


def test_a_run_would_change_nothing_but_figures_of_the_summary():
    outcomes = {(mutant.id, tier): Outcome(FAILED) for mutant in LISTING.mutants for tier in mutant.tests}
    repeats = {"runs": 20, "failures": 0, "tests": len(LISTING.randomised)}
    written = matrix.summary(LISTING, outcomes, repeats, len(LISTING.mutants))
    assert re.sub(r"\d+", "0", written) == re.sub(r"\d+", "0", SUMMARY.read_text())


# How outcomes are told.


TWO = Listing(
    {"one": "a fault"},
    tuple(
        Mutant(name, "one", "Wrong.", "Right.", (Edit("a.py", "x", "y"),), {"T0": ("tests/a.py::t",), "T2": ()})
        for name in ("first", "second")
    ),
)


def test_a_mutant_that_no_tier_notices_survives():
    outcomes = {("first", "T0"): Outcome(PASSED), ("first", "T2"): Outcome(FAILED, "FAILED tests/a.py::t - assert 1")}
    outcomes |= {("second", tier): Outcome(kind) for tier, kind in (("T0", PASSED), ("T2", BROKEN))}
    assert [matrix.killed(mutant, outcomes) for mutant in TWO.mutants] == [True, False]
    page = matrix.page(TWO, outcomes, {"runs": 3, "failures": 1, "tests": 2}, 1)
    assert "**1 of 2 mutants are killed (50%).**" in page
    assert "1 false alarms. 1 were planted in one run, 1 in others." in page
    assert "| `first` | Wrong. *Right.* | not noticed | ✗ killed |" in page
    assert "| `second` | Wrong. *Right.* | not noticed | broken |" in page


@pytest.mark.parametrize(
    ("status", "line", "kind"),
    [
        (0, "1 passed", PASSED),
        (1, "FAILED tests/a.py::test_b[x y-1] - assert 1 == 2", FAILED),
        (1, "FAILED tests/a.py::test_b[x y-1] - palimpsest.errors.LedgerError: more steps than were paid", FAILED),
        (1, "FAILED tests/a.py::test_b[x y-1] - NameError: name 'y' is not defined", BROKEN),
        (1, "ERROR tests/a.py::test_b[x y-1] - TypeError: 'int' object is not iterable", BROKEN),
        (2, "ERROR tests/a.py - SyntaxError: invalid syntax", BROKEN),
        (4, "ERROR: not found: tests/a.py::test_c", BROKEN),
        (5, "no tests ran", BROKEN),
        (-9, "", BROKEN),
    ],
)
def test_only_what_ran_and_failed_is_killed(status: int, line: str, kind: str):
    found = outcome_of(status, f"F\n=== short test summary info ===\n{line}\n")
    assert found.kind == kind
    if kind == FAILED:
        assert found.test == "tests/a.py::test_b[x y-1]"


@pytest.mark.parametrize("text", ["", "x = 1\nx = 1\n"])
def test_an_edit_that_does_not_fit_once_is_refused(tmp_path: Path, text: str):
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ValueError, match="not once"):
        applied([Edit("a.py", "x = 1", "x = 2")], tmp_path)


def test_edits_of_one_file_are_made_in_turn(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n")
    assert applied([Edit("a.py", "x = 1", "y = 1"), Edit("a.py", "y = 1", "z = 1")], tmp_path) == {"a.py": "z = 1\n"}


# A run of all.


def test_a_mutant_is_in_the_copy_inside_the_block_and_gone_behind_it(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n")
    copy = Copy(tmp_path, Nursery(None), 1.0)  # type: ignore[arg-type]
    mutant = Mutant("m", "one", "Wrong.", "Right.", (Edit("a.py", "x = 1", "x = 2"),), {})
    with contextlib.suppress(KeyboardInterrupt), copy.mutated(mutant):
        assert (tmp_path / "a.py").read_text() == "x = 2\n"
        raise KeyboardInterrupt
    assert (tmp_path / "a.py").read_text() == "x = 1\n"


def test_a_stopped_run_goes_on_with_what_it_knows(tmp_path: Path):
    runs: list[str] = []

    def once(book: Book, key: str) -> Outcome:
        return book.once(key, lambda: runs.append(key) or Outcome(FAILED, f"FAILED {key} - assert 0"))

    for _ in range(2):
        book = Book.at(tmp_path / "results.json", fresh=False)
        assert [once(book, key).test for key in ("a", "b")] == ["a", "b"]
    assert runs == ["a", "b"]
    book.forget("a")
    once(Book.at(tmp_path / "results.json", fresh=False), "a")
    once(Book.at(tmp_path / "results.json", fresh=True), "b")
    assert runs == ["a", "b", "a", "b"]


def test_a_run_tells_what_it_planted_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.py").write_text("x\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text("")
    monkeypatch.setattr(Copy, "run", lambda *_, **__: Outcome(FAILED, "FAILED tests/a.py::t - assert 0"))
    copy, book = Copy(tmp_path, Nursery(None), 1.0), Book(tmp_path / "results.json", {})  # type: ignore[arg-type]
    first, second = TWO.mutants[0], replace(TWO.mutants[1], edits=(Edit("a.py", "x", "z"),))
    assert tried(replace(TWO, mutants=(first,)), copy, book)[1] == {"first"}
    outcomes, planted = tried(replace(TWO, mutants=(first, second)), copy, book)
    assert planted == {"second"}
    assert {mutant for mutant, _ in outcomes} == {"first", "second"}


def test_what_is_known_is_of_the_same_mutant_tests_and_files(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n")
    first = digest(tmp_path, ["edit", "test"], "a.py")
    assert digest(tmp_path, ["edit", "test"], "a.py", "a.py") == first
    assert digest(tmp_path, ["another", "test"], "a.py") != first
    (tmp_path / "a.py").write_text("x = 2\n")
    assert digest(tmp_path, ["edit", "test"], "a.py") != first


@pytest.mark.parametrize(
    ("kinds", "repeats", "status"),
    [
        ((FAILED, PASSED), None, 0),
        ((FAILED, PASSED), {"runs": 2, "failures": 0, "tests": 1}, 0),
        ((FAILED, PASSED), {"runs": 2, "failures": 1, "tests": 1}, 1),
        ((PASSED, PASSED), None, 1),
        ((FAILED, BROKEN), None, 1),
        ((TIMEOUT, FAILED), None, 1),
    ],
)
def test_a_run_fails_where_a_mutant_lives_or_does_not_run(kinds: tuple[str, str], repeats: Any, status: int):
    one = replace(TWO, mutants=TWO.mutants[:1])
    outcomes = {("first", tier): Outcome(kind) for tier, kind in zip(("T0", "T2"), kinds, strict=True)}
    assert told(one, outcomes, repeats) == status


def test_a_word_chooses_mutants_by_name_or_item():
    assert [mutant.id for mutant in chosen(TWO, "sec").mutants] == ["second"]
    assert len(chosen(TWO, "one").mutants) == 2
