"""Tables of fields, and what a model of text and fields learns: on rows whose answers are known."""

import json

import numpy as np
import pytest

from palimpsest.audit.fields import Columns, FieldsAudit, Placed, audit_fields, to_cells
from palimpsest.audit.statistics import Bootstrap
from palimpsest.errors import DataError
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

SCHEMA = PublicSchema(
    "tickets", "classify", "text", 5000, 200, "team", {"returns": "", "repairs": ""},
    fields={"part": ("vase", "lamp", "door"), "age": "number(0..10, 5)"},
)  # fmt: skip
COLUMNS = Columns.of(SCHEMA)
DRAWS = Bootstrap(200, 1)
WORDS = ("vase", "lamp", "door")


def rows(count: int, seed: int, told: bool = True) -> list[SplitRow]:
    """Rows whose text names their part, where `told`, and whose part is their label's, but for the door."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        team, age = int(rng.integers(2)), int(rng.integers(3))
        part = team if rng.random() < 0.8 else 2
        word = WORDS[part if told else int(rng.integers(3))]
        found.append(
            SplitRow(f"my {word} broke {rng.integers(9)}", ("returns", "repairs")[team], fields=f"{part},{age}")
        )
    return found


def audit(synthetic: list[SplitRow], real: list[SplitRow] | None = None) -> FieldsAudit:
    sides = (synthetic, rows(900, 2) if real is None else real, rows(900, 3))
    return audit_fields(*(Placed.of(own, SCHEMA) for own in sides), COLUMNS, DRAWS)


def test_columns_are_the_label_and_the_fields_with_a_cell_for_no_value():
    assert Columns(("team", "part", "age"), (2, 4, 3)) == COLUMNS
    assert Columns.of(PublicSchema("a", "text", "text", 9, 9, fields={"b": ["c"]})) == Columns(("b",), (2,))


def test_synthetic_values_are_read_into_cells_and_rows_of_other_labels_are_left_out():
    some = [
        Record("a", "returns", (("part", "door"), ("age", 7))),
        Record("b", "repairs", (("part", None), ("age", 0))),
    ]
    placed = Placed.of([*(to_cells(row, SCHEMA) for row in some), SplitRow("c", "other", fields="0,0")], SCHEMA)
    assert (placed.texts, placed.cells.tolist()) == (["a", "b"], [[0, 2, 1], [1, 3, 0]])


def test_rows_of_the_same_kind_are_as_far_as_sampling_and_shuffled_or_even_ones_farther():
    tables = {one.axes: one for one in audit(rows(900, 1)).tables}
    assert list(tables) == [("team",), ("part",), ("age",), ("team", "part"), ("team", "age"), ("part", "age")]
    pair = tables["team", "part"]
    assert pair.cells == 8
    assert pair.synthetic < 0.06
    assert pair.real < 0.06
    # of 0.4 each for the label's part, 0.1 each for the door: apart 0.2 and 0.05 more or less in the other four
    assert pair.apart == pytest.approx(0.4, abs=0.05)
    assert pair.uniform == pytest.approx((2 * 0.275 + 2 * 0.125 + 2 * 0.125 + 2 * 0.025) / 2, abs=0.05)
    assert tables["part",].apart == pytest.approx(tables["part",].real, abs=1e-9)


def test_a_column_that_is_wrong_shows_in_its_tables_alone():
    changed = [SplitRow(row.text, row.label, fields=f"{row.fields[0]},0") for row in rows(900, 1)]
    tables = {one.axes: one for one in audit(changed).tables}
    assert tables["age",].synthetic == pytest.approx(2 / 3, abs=0.05)
    assert tables["team", "part"].synthetic < 0.06


def test_all_sides_are_compared_with_equally_many_rows():
    few = audit(rows(60, 1))
    assert (few.rows, few.real_rows, few.test_rows, few.compared) == (60, 900, 900, 60)
    assert audit(rows(900, 1), rows(60, 2)).compared == 60
    one = next(own for own in few.tables if own.axes == ("part", "age"))
    assert one.real > 0.1  # what 60 rows make by chance: 900 make less than half of it


def test_a_model_learns_what_the_text_and_the_other_columns_tell():
    learned = {one.target: one for one in audit(rows(600, 1)).learned}
    assert learned["part"].synthetic.value > 0.97
    assert learned["part"].real.value > 0.97
    assert learned["part"].majority == pytest.approx(0.4, abs=0.05)
    assert learned["team"].synthetic.value == pytest.approx(0.9, abs=0.03)  # the door tells nothing
    assert learned["age"].synthetic.value == pytest.approx(1 / 3, abs=0.06)
    assert learned["part"].kept is not None
    assert learned["part"].kept.low > 0.95


def test_rows_whose_texts_do_not_fit_their_fields_teach_less():
    found = {one.target: one for one in audit(rows(600, 1, told=False)).learned}["part"]
    assert found.synthetic.high < 0.85 < found.real.low  # by the label alone: .8
    assert found.kept is not None
    assert found.kept.high < 0.9


def test_rows_without_fields_have_nothing_to_compare_and_without_real_ones_there_is_no_result():
    assert audit([]) == FieldsAudit(0, 900, 900, 0, (), ())
    with pytest.raises(DataError):
        audit(rows(60, 1), [])


def test_its_file_is_read_back():
    found = audit(rows(60, 1))
    body = json.loads(json.dumps(found.to_json("tabulate3")))
    assert FieldsAudit.from_json(body) == found
