"""Grids of the papers' tables: read strictly, whole, and each cell a variant that the schema takes."""

from dataclasses import replace
from pathlib import Path

import pytest

from palimpsest.errors import ParamsError
from palimpsest.graph.stages import STAGES
from palimpsest.privacy.accounting import MOST_TARGET
from palimpsest_lab.commands.reproduce import _lot
from palimpsest_lab.commands.reproduction import Asked
from palimpsest_lab.datasets.known import KNOWN
from palimpsest_lab.reproduce.cells import cells_of, fill_epsilon, fragment, select_cells
from palimpsest_lab.reproduce.grid import grid, list_grids, parse_grid
from palimpsest_lab.reproduce.measures import MEASURES, is_planned, target

ALL = list_grids()
SMALL = {
    "title": "a table",
    "data": {"trec": {"public": "public_reviews"}},
    "rows": {"embed": {"title": "Ours"}},
    "columns": {"six": {"measure": "in_context", "title": "6 shots", "detail": {"shots": 6}}},
    "epsilons": [5],
    "published": {"trec": {"embed": {5: [56.8]}}},
}


def test_every_paper_has_its_tables() -> None:
    known = {paper: {table for one, table in ALL if one == paper} for paper in ("000", "002", "003", "004")}
    assert known["000"] >= {"table1", "table4", "figure2", "figure3", "figure4"}
    assert known["002"] >= {"figure1", "figure3", "figure4", "figure5"}
    assert known["003"] >= {"table2", "table3", "table4", "table5", "table6", "figure3"}
    assert known["004"] >= {"table1", "table2", "table3", "table4", "figure3", "figure4", "figure5"}


def test_the_house_has_a_row_for_every_way_to_write_and_a_named_model_gets_adapters() -> None:
    found = grid("house", "methods")
    assert found.called == "House, methods"
    assert {row.like or name for name, row in found.rows.items() if row.baseline is None} == {
        "select", "plain", "filter", "pplm", "multitask", "fudge", "predict", "predict_plain", "predict_fixed",
        "evolve", "steer", "phrases", "embed",
    }  # fmt: skip
    for model, rank in ((None, 0), (Path("named"), 16)):
        lot = _lot(found, "trec", cells_of(found), Asked(Path("nowhere"), model=model))
        assert {each.train.lora_rank for each in lot.params.lms.values()} == {rank}
        assert {each.train.precision for each in lot.params.lms.values()} == {"bf16" if model else "float32"}
        assert {each.precision for each in lot.params.decoders.values()} == {"bf16" if model else "float32"}
        again = {lot.params.variants[f"{name}3"].generate.seed for name in ("plain", "plain_again", "plain_anew")}
        assert again == {0, 1, 2}


def test_a_column_may_be_of_some_rows_alone() -> None:
    """What a forest reads is a model, and most rows have none."""
    cells = [cell for cell in cells_of(grid("house", "methods")) if cell.column == "forest"]
    assert {cell.row for cell in cells} == {"pplm", "multitask"}
    asked = [target(cell, {"pplm3": "lm3", "multitask3": "multi3"}) for cell in cells if cell.data == "trec"]
    assert asked == ["embedding_audit@lm3", "embedding_audit@multi3"]
    columns = {"six": {**SMALL["columns"]["six"], "rows": ["embedded"]}}  # type: ignore[index]
    with pytest.raises(ParamsError, match="'embedded', which is no row"):
        parse_grid({**SMALL, "columns": columns})


def test_a_machine_without_half_precision_names_another_for_all_that_a_model_does() -> None:
    found = grid("house", "methods")
    asked = Asked(Path("nowhere"), model=Path("named"), precision="float32")
    lot = _lot(found, "trec", cells_of(found), asked)
    assert {each.train.precision for each in lot.params.lms.values()} == {"float32"}
    assert {each.precision for each in lot.params.decoders.values()} == {"float32"}
    assert {each.generate.precision for each in lot.params.variants.values() if each.method == "dp_lm"} == {"float32"}
    with pytest.raises(ParamsError, match="precision"):
        _lot(found, "trec", cells_of(found), replace(asked, precision="half"))


@pytest.mark.parametrize(("paper", "table"), ALL)
def test_each_cell_has_a_name_of_its_own_and_a_known_data_set_and_measure(paper: str, table: str) -> None:
    found = grid(paper, table)
    names = [cell.name for cell in cells_of(found)]
    assert len(set(names)) == len(names) > 0
    assert {of.dataset or name for name, of in found.data.items()} <= KNOWN.keys()
    assert {column.measure for column in found.columns.values()} <= MEASURES.keys()


@pytest.mark.parametrize(("paper", "table"), ALL)
def test_the_first_data_set_of_each_table_is_a_workspace_with_a_stage_for_each_cell(paper: str, table: str) -> None:
    """No data is there and nothing is written: params.yaml is worked out, and every stage that a cell runs is one."""
    found, stages = grid(paper, table), {stage.name for stage in STAGES}
    lot = _lot(found, next(iter(found.data)), cells_of(found), Asked(Path("nowhere")))
    for cell in lot.cells:
        if lot.never[cell.name]:
            assert cell.variant not in lot.params.variants or cell.missing or cell.needs
            continue
        assert cell.of.baseline is not None or cell.variant in lot.params.variants
        assert is_planned(cell) or target(cell, lot.models).partition("@")[0] in stages


@pytest.mark.parametrize(
    "wrong", [{"titel": "a"}, {"rows": {"embed": {"title": "Ours", "like_": "b"}}}, {"epsilons": "x"}]
)
def test_a_key_that_is_unknown_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParamsError, match="A grid cannot be read"):
        parse_grid({**SMALL, **wrong})


@pytest.mark.parametrize("published", [{"trec": {"other": {5: [1.0]}}}, {"trec": {"embed": {5: [1.0, 2.0]}}}])
def test_a_published_value_stands_in_a_cell(published: dict[str, object]) -> None:
    with pytest.raises(ParamsError, match="is published"):
        parse_grid({**SMALL, "published": published})


def test_a_table_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(ParamsError, match=r"004 table1"):
        grid("004", "table9")


def test_cells_are_picked_by_their_first_parts_and_by_patterns() -> None:
    cells = cells_of(grid("000", "table1"))
    assert [cell.name for cell in select_cells(cells, ["sst2/real"])] == ["sst2/real/accuracy"]
    assert {cell.epsilon for cell in select_cells(cells, ["*/multitask3"])} == {3.0}
    assert len(select_cells(cells, [])) == len(cells)
    with pytest.raises(ParamsError, match="which no cell is called"):
        select_cells(cells, ["sst3"])


def test_what_stands_behind_a_variant_comes_with_it_under_the_same_epsilon() -> None:
    settings = {
        "lms": {"naive3": {"epsilon": 2.61}},
        "discriminators": {"pplm3_judge": {"from": "naive3", "epsilon": 3.0}},
        "variants": {"pplm3": {"method": "dp_lm", "from": "pplm3_judge", "variant": "pplm"}},
    }
    cell = next(cell for cell in cells_of(grid("000", "figure2")) if cell.variant == "pplm3")
    assert fragment(cell, settings) == settings


def test_a_row_may_have_a_model_of_its_own_below() -> None:
    (cell,) = (one for one in cells_of(grid("003", "table3")) if one.name == "imdb/lora1/accuracy")
    settings = fill_epsilon(grid("003", "table3").settings, 1.0)
    made = fragment(cell, settings)
    assert made["lms"] == {"lora1": {"epsilon": 1.0, "discriminator_weight": 0.0, "lora_rank": 8}}
    assert made["variants"]["lora1"]["from"] == "lora1"
    (soft,) = (one for one in cells_of(grid("003", "table3")) if one.name == "imdb/prompts1/accuracy")
    assert fragment(soft, settings)["lms"]["prompts1"]["soft_prompt"] == 20


def test_an_epsilon_that_protects_nobody_is_in_no_workspace() -> None:
    found = grid("000", "table1")
    lot = _lot(found, "sst2", cells_of(found), Asked(Path("nowhere")))
    assert lot.never["sst2/multitask256/accuracy"].startswith("refused: epsilon 256")
    assert all(model.epsilon <= MOST_TARGET or model.purpose == "reference" for model in lot.params.lms.values())
