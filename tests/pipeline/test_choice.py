"""A choice among two variants, in a workspace of persons: what is charged, what comes of it, and a second run."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json
from palimpsest.records.write import read_synthetic, write_synthetic
from stages import encode_public, fit, inputs, preprocess
from tests.pipeline.place import Place, asked_word

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(600)]

AMONG, CHOSEN = ("few", "many"), "best"


@pytest.fixture(scope="module")
def place(made_for_persons: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """The workspace after the choice and what it builds on."""
    place = copy(made_for_persons)
    for name, rows in zip(AMONG, (20, 60), strict=True):
        place.edit("variants", **{name: {"method": "select", "epsilon": 1.0, "rows": rows, "batch": 64}})
    place.edit("variants", **{CHOSEN: {"method": "choose", "epsilon": 2.0, "from": list(AMONG)}})
    with place.entered():
        for stage in (inputs, preprocess, encode_public):
            code, output = place.stage(stage)
            assert code == 0, output
        for name in (*AMONG, CHOSEN):
            code, output = place.stage(fit, name)
            assert code == 0, output
        yield place


def test_it_is_charged_behind_all_that_it_was_among(place: Place):
    receipts = {name: read_json(f"reports/receipts/{name}.json") for name in (*AMONG, CHOSEN)}
    few, many, best = ({line["charge"] for line in one["queries"]} for one in receipts.values())
    assert few | many < best
    assert [charge.query for charge in place.newest(CHOSEN)] == ["choice"]
    assert len(best - few - many) == 1
    assert 1.9 < receipts[CHOSEN]["epsilon"] <= 2.0
    assert receipts[CHOSEN]["unit"] == "person"
    assert verify_workspace(place.workspace) == 0


def test_a_name_comes_of_it_with_the_rows_behind_it_and_no_score(place: Place):
    told = read_json(f"reports/metrics/{CHOSEN}/generation.json")
    assert told.keys() == {"variant", "zone", "drawn", "rows", "removed", "chosen"}
    assert told["chosen"] in AMONG
    rows = [read_synthetic(f"data/synthetic/{name}", "body", "team") for name in (CHOSEN, told["chosen"])]
    assert Counter(rows[0]) == Counter(rows[1])


def test_to_choose_again_is_free_and_among_other_rows_needs_the_owners_word(place: Place):
    before, rows = place.charges, read_synthetic(f"data/synthetic/{CHOSEN}", "body", "team")
    code, output = place.stage(fit, CHOSEN)
    assert (code, place.charges) == (0, before), output
    assert read_synthetic(f"data/synthetic/{CHOSEN}", "body", "team") == rows
    write_synthetic(rows[1:], Path(f"data/synthetic/{AMONG[0]}"), "body", "team")
    code, output = place.stage(fit, CHOSEN)
    assert "was answered about other candidates" in output
    assert asked_word(code, output)
    assert place.charges == before
