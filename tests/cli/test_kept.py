"""What commands keep is shown while nothing changed that it follows from."""

import math
import shutil
from pathlib import Path

import pytest
from cli_place import Place

from palimpsest.files import read_json, write_json
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.work import plan
from palimpsest.work.context import load_or_compute, stamp
from palimpsest.workspace import SEEN


def test_it_is_worked_out_anew_when_what_it_follows_from_is_another(tmp_path: Path) -> None:
    asked: list[str] = []

    def told(about: str) -> str:
        def worked_out() -> str:
            asked.append(about)
            return f"of {about}"

        return str(load_or_compute(tmp_path, "name", about, worked_out))

    assert [told("a"), told("a"), told("b"), told("a")] == ["of a", "of a", "of b", "of a"]
    assert asked == ["a", "b", "a"]
    path = tmp_path / SEEN / "name.json"
    write_json(path, {**read_json(path), "value": "edited"})
    assert told("a") == "edited", "it is for the eye alone"
    path.write_text("{", encoding="utf-8")
    assert told("a") == "of a"


def test_what_costs_without_end_is_shown_a_second_time(tmp_path: Path) -> None:
    assert [load_or_compute(tmp_path, "name", "a", lambda: {"spent": math.inf}) for _ in range(2)] == [
        {"spent": math.inf}
    ] * 2


def test_a_stamp_is_another_when_a_file_was_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one", encoding="utf-8")
    before = stamp(tmp_path)
    (tmp_path / "a").write_text("other", encoding="utf-8")
    assert stamp(tmp_path) != before


def test_the_plan_after_a_run_works_out_no_cost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = place.call("plan").stdout
    shutil.rmtree(place.workspace / SEEN)
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    plan.keep_answers(place.workspace)
    monkeypatch.setattr(plan, "_costs", None)  # who calls it fails
    assert place.call("plan").stdout == wanted


def test_a_run_that_cannot_keep_answers_ends_well(tmp_path: Path) -> None:
    plan.keep_answers(tmp_path)  # no workspace
