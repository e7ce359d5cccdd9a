"""The points of a sweep: their names, and what of params.yaml is theirs."""

from typing import Any

import pytest

from palimpsest.errors import ParamsError
from palimpsest.params.sweep import Axis, axis, marks, points

WRITTEN: dict[str, Any] = {
    "lms": {"dp3": {"epsilon": 2.6, "epochs": 3}},
    "discriminators": {"judge3": {"from": "dp3", "epsilon": 3.0}},
    "variants": {
        "dp3": {"method": "dp_lm", "variant": "multitask"},
        "filtered": {"method": "dp_lm", "from": "judge3", "variant": "filter", "filters": {"floor": 0.5}},
        "select3": {"method": "select", "epsilon": 3.0},
    },
}


def named(variant: str, *varied: str) -> list[str]:
    return [point.name for point in points(WRITTEN, variant, [axis(text) for text in varied])]


def test_values_are_yaml_and_a_list_stands_in_brackets() -> None:
    assert axis("top_p=0.9,1,null") == Axis("top_p", (0.9, 1, None))
    assert axis("filters.chain=[length],[length, label]") == Axis("filters.chain", (["length"], ["length", "label"]))


@pytest.mark.parametrize("text", ["top_p", "top_p=", "=1,2", "top_p=1,1", "top_p=[1"])
def test_what_varies_nothing_is_refused(text: str) -> None:
    with pytest.raises(ParamsError, match="varies nothing"):
        axis(text)


def test_a_grid_is_a_product_and_names_say_what_varies() -> None:
    assert named("dp3", "temperature=0.7,1.0", "top_p=0.9,1.0") == [
        "dp3_temperature0_7_top_p0_9", "dp3_temperature0_7_top_p1", "dp3_temperature1_top_p0_9",
        "dp3_temperature1_top_p1",
    ]  # fmt: skip
    assert named("select3", "epsilon=1,3,.inf") == ["select3_epsilon1", "select3", "select3_epsiloninf"]
    assert named("filtered", "filters.chain=[length],[length, label]") == [
        "filtered_chainlength", "filtered_chainlength_label",
    ]  # fmt: skip


def test_a_long_name_is_cut_and_stays_one_of_its_own() -> None:
    """From 101 bytes on; what files are called after fits a file system."""
    fits, cut = named("dp3", f"prompt={'a' * 90},{'a' * 91}")
    assert fits == f"dp3_prompt{'a' * 90}"
    assert (len(fits), len(cut), cut[:91]) == (100, 100, fits[:91])
    assert len({*named("dp3", f"prompt={'a' * 300}1,{'a' * 300}2")}) == 2


def test_a_way_of_drawing_shares_the_fitted_model_and_a_nested_key_keeps_its_neighbours() -> None:
    point, _ = points(WRITTEN, "filtered", [axis("filters.label=0.1,0.2")])
    assert point.settings == {
        "variants": {point.name: {**WRITTEN["variants"]["filtered"], "filters": {"floor": 0.5, "label": 0.1}}}
    }
    drawn, _ = points(WRITTEN, "dp3", [axis("top_p=0.8,0.9")])
    assert drawn.settings["variants"][drawn.name]["from"] == "dp3"  # which went without saying under the old name


def test_a_model_has_a_name_of_its_own_where_it_differs_alone() -> None:
    same, other = points(WRITTEN, "filtered", [axis("model.model.epochs=3,6")])
    assert (same.name, same.settings) == ("filtered", {})
    assert other.settings["lms"] == {"dp3_epochs6": {"epsilon": 2.6, "epochs": 6}}
    assert other.settings["discriminators"] == {"judge3_epochs6": {"from": "dp3_epochs6", "epsilon": 3.0}}
    assert other.settings["variants"]["filtered_epochs6"]["from"] == "judge3_epochs6"
    judged = points(WRITTEN, "filtered", [axis("model.epsilon=2.8"), axis("top_p=0.8,0.9")])
    assert {tuple(point.settings["discriminators"]) for point in judged} == {("judge3_epsilon2_8",)}
    assert all("lms" not in point.settings for point in judged)


@pytest.mark.parametrize(
    ("variant", "varied", "said"),
    [
        ("dp4", ["top_p=1"], "VARIANT is 'dp4'"),
        ("select3", ["model.epochs=1,2"], "is of a model, and select3"),
        ("dp3", ["model.model.epochs=1,2"], "is of a model, and dp3"),
        ("dp3", ["top_p=0.8", "top_p=0.9"], "given twice"),
        ("dp3", ["top_p=0.80000001,0.80000002"], "Two points would be called 'dp3_top_p0_8'"),
    ],
)
def test_what_cannot_be_a_grid_is_refused(variant: str, varied: list[str], said: str) -> None:
    with pytest.raises(ParamsError, match=said):
        named(variant, *varied)


def test_the_note_is_of_what_the_sweep_made() -> None:
    grid = points(WRITTEN, "select3", [axis("epsilon=1,3")])
    assert marks(grid, "select3") == {"select3_epsilon1": {"of": "select3", "keys": ["epsilon"]}}
