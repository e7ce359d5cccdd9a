"""The same rows in another place, order or format cost nothing, and `plan` says so."""

import csv
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import palimpsest
from palimpsest.cli.look import show_plan
from palimpsest.errors import BudgetExceeded
from palimpsest.privacy.shown import up
from palimpsest.work.before import check_budget
from palimpsest.work.context import open_workspace
from palimpsest.work.plan import Cost, price_all, summarise_plan
from tests.pipeline.place import Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(600)]

STAGE = "select@chosen"


@pytest.fixture(scope="module")
def paid(made: Place, copy: Callable[[Place], Place]) -> Place:
    """A workspace after `select`, with what it needs."""
    place = copy(made)
    place.edit("variants", chosen={"method": "select", "epsilon": 1.0, "rows": 30, "batch": 64})
    with place.entered():
        assert place.run("dvc", "repro", STAGE)[0] == 0, place.output
    return place


@pytest.fixture
def place(paid: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """A copy of it, entered, whose private file is a copy, too."""
    place = copy(paid)
    place.edit("dataset", private=str(place.private))
    with place.entered():
        yield place


def foretold(place: Place) -> Cost:
    """What `plan` says of the variant."""
    (line,) = [line for line in summarise_plan(open_workspace(place.workspace)).lines if line.stage == STAGE]
    return line.cost


def rewrite(place: Place, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    """Let a change of the private file's rows stand in its place."""
    with place.private.open(newline="") as stream:
        head, *rows = csv.reader(stream)
    with place.private.open("w", newline="") as stream:
        csv.writer(stream).writerows([head, *change(rows)])


def shuffled(rows: list[list[str]]) -> list[list[str]]:
    return random.Random(1).sample(rows, len(rows))


def run_free(place: Place) -> str:
    """Run the stage, which must charge nothing; what it printed."""
    charges = place.charges
    code, output = place.run("dvc", "repro", STAGE)
    assert (code, place.charges) == (0, charges), output
    return output


def test_a_file_that_moved_costs_nothing_and_plan_says_so(place: Place, tmp_path: Path) -> None:
    moved = shutil.move(place.private, tmp_path / "moved.csv")
    place.edit("dataset", private=str(moved))
    cost = foretold(place)
    assert (cost.budget_cost, cost.may_be_paid) == (0.0, False)
    assert f"Stage '{STAGE}' didn't change, skipping" in run_free(place)


def test_of_other_public_texts_plan_says_what_it_cannot_know(place: Place) -> None:
    """Class means choose among them free, and votes are of other candidates."""
    texts = place.public.read_text().splitlines()
    place.public.write_text("\n".join(texts[: len(texts) // 2]) + "\n")
    place.edit("dataset", public=str(place.public))
    cost = foretold(place)
    assert (cost.budget_cost > 0.5, cost.may_be_paid) == (True, True)
    assert "made again from answers that were paid for" in run_free(place)


@pytest.mark.parametrize("name", ["moved.tsv", "gone.csv"])
def test_what_is_read_otherwise_or_is_not_there_is_not_taken_for_the_same_rows(
    place: Place, tmp_path: Path, name: str
) -> None:
    if name != "gone.csv":
        shutil.copy(place.private, tmp_path / name)
    place.edit("dataset", private=str(tmp_path / name))
    assert foretold(place).budget_cost > 0.0


@pytest.mark.parametrize("key", ["text", "max_length"])
def test_a_file_that_moved_and_is_read_otherwise_is_priced(place: Place, tmp_path: Path, key: str) -> None:
    shutil.copy(place.private, tmp_path / "moved.csv")
    place.edit("dataset", private=str(tmp_path / "moved.csv"), **{key: {"text": "id", "max_length": 40}[key]})
    assert foretold(place).budget_cost > 0.0


def test_rows_in_another_order_cost_nothing_and_plan_says_what_it_cannot_know(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(place, shuffled)
    cost = foretold(place)
    assert (cost.budget_cost > 0.5, cost.may_be_paid) == (True, True)
    show_plan(place.workspace)
    printed = capsys.readouterr().out
    assert f"budget cost 0 or {up(cost.budget_cost)}" in printed
    assert "0 or: a file is another one now, and only a run reads it." in printed
    assert "made again from answers that were paid for" in run_free(place)
    assert foretold(place).budget_cost == 0.0


def test_the_plan_from_python_says_so_too(place: Place) -> None:
    rewrite(place, shuffled)
    plan = palimpsest.open(place.workspace).plan()
    cost = next(line.cost for line in plan.summary.lines if line.stage == STAGE)
    assert plan.frame.set_index("stage").loc[STAGE, "may be paid"]
    for shown in (str(plan), plan._repr_html_()):
        assert f"0 or {up(cost.budget_cost)}" in shown


def test_rows_in_another_order_are_not_held_against_a_budget_that_is_used_up(place: Place) -> None:
    """Only a run reads them: other rows are refused by the stage itself, before they are charged."""
    place.cap(1.2)
    rewrite(place, shuffled)
    context = open_workspace(place.workspace)
    (due,) = [item for item in price_all(context, only_pending=True) if item.stage == STAGE]
    check_budget(context, [due])
    with pytest.raises(BudgetExceeded, match="would pass the budget"):
        check_budget(context, [replace(due, plan=replace(due.plan, queries=due.plan.queries * 2))])
    run_free(place)
    rewrite(place, lambda rows: rows[1:] * 2)
    code, output = place.run("dvc", "repro", STAGE)
    assert code != 0
    assert "would pass the budget of asset 'tickets'" in output
    assert "Nothing was charged and no row was read" in output
