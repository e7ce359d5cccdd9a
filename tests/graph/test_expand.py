"""Is a dvc.yaml written out as DVC writes it out, and nothing guessed?"""

from typing import Any

import pytest

from palimpsest.errors import DataError, ParamsError
from palimpsest.graph.expand import Repetition, expand, fill_names, list_unrepeated

PARAMS: dict[str, Any] = {"rows": "a.csv", "run": {"list": ["p", "q"], "pairs": {"v": "p"}, "none": []}, "a": {"b": 3}}


def names(**stage: Any) -> list[str]:
    return [one.name for one in expand({"s": stage}, PARAMS)]


def test_a_stage_runs_once_or_once_for_each_name() -> None:
    assert names(cmd="x") == ["s"]
    assert names(matrix={"m": "${run.list}"}) == ["s@p", "s@q"]
    assert names(matrix={"m": "${run.list}", "n": [1, 2]}) == ["s@p-1", "s@p-2", "s@q-1", "s@q-2"]
    assert names(foreach="${run.pairs}", do={"cmd": "x"}) == ["s@v"]
    assert names(foreach=["x", "y"], do={"cmd": "x"}) == ["s@x", "s@y"]
    assert names(matrix={"m": "${run.none}"}) == names(foreach="${run.none}", do={}) == []


def test_paths_are_written_out_with_what_a_repetition_stands_for() -> None:
    do = {"deps": ["${rows}", "models/${item}"], "outs": [{"rows/${key}": {"push": False}}], "metrics": ["m/${a.b}"]}
    (one,) = expand({"s": {"foreach": "${run.pairs}", "do": do}}, PARAMS)
    assert (one.stage, one.body) == ("s", do)
    assert (one.paths("deps"), one.paths("outs", "metrics")) == (["a.csv", "models/p"], ["rows/v", "m/3"])
    matrix = expand({"s": {"matrix": {"m": "${run.list}"}, "deps": ["x/${item.m}"]}}, PARAMS)
    assert [one.paths("deps") for one in matrix] == [["x/p"], ["x/q"]]


def test_a_path_that_is_written_twice_is_one_as_in_the_lock_file() -> None:
    (one,) = expand({"s": {"deps": ["${rows}", "b", "a.csv"]}}, PARAMS)
    assert one.paths("deps") == ["a.csv", "b"]


def test_a_stage_as_it_is_written_keeps_what_it_is_repeated_for() -> None:
    do = {"deps": ["${rows}", "models/${item}"]}
    (one,) = list_unrepeated({"s": {"foreach": "${run.none}", "do": do}}, PARAMS)
    assert one == Repetition("s", "s", do, PARAMS)
    assert one.known_paths("deps") == ["a.csv", "models/${item}"]
    with pytest.raises(ParamsError, match=r"\$\{item\}"):
        one.paths("deps")


@pytest.mark.parametrize("text", ["${none}", "${a.none}", "${a.b.c}", "x/${rows.y}"])
def test_a_name_that_stands_for_nothing_is_an_error(text: str) -> None:
    with pytest.raises(ParamsError, match="stands for nothing"):
        fill_names([text], PARAMS)


@pytest.mark.parametrize("text", ["${ rows }", "${a['b']}", "x${", "${a-b}"])
def test_a_name_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        fill_names([text], PARAMS)


@pytest.mark.parametrize("stage", [{"matrix": {"m": "${run.other}"}}, {"foreach": "${other}", "do": {}}])
def test_a_list_that_is_not_there_is_an_error(stage: dict[str, Any]) -> None:
    with pytest.raises(ParamsError, match="stands for nothing"):
        expand({"s": stage}, PARAMS)
