"""`tabulate`: fields beside texts are as likely together as the tables say, and are paid for with those texts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.method import Basis
from palimpsest.methods.shared.tables import draw_cells, fit_joint, table_of
from palimpsest.methods.tabulate.declaration import TABULATE, TabulateSettings
from palimpsest.methods.tabulate.fit import Tabulate
from palimpsest.methods.tabulate.joint import fit_means, match
from palimpsest.models.reader import read_fields
from palimpsest.privacy.accounting import epsilon
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.fields import decode_cells, domains_of, encode_cells
from palimpsest.records.private import RawRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.tickets import ledger_of_tickets, opened_by, tickets

DELTA = 1e-3
GAUSSIAN = dpa.GaussianDpEvent(6.0)
LABELS = {"refund": "Money back.", "praise": "Kind words."}
FIELDS = {"place": ["north", "south"], "age": "number(0..100, 20)", "sent": "date(2024-01..2024-06, month)"}
PLACES = {"north": "the harbour is cold", "south": "the desert is hot"}
TEXTS = [*PLACES.values(), "thank you", "money"]


class Reader:
    """An encoder by words, with two memories that are one."""

    dimension = 4
    fingerprint = "words"

    @staticmethod
    def rows(texts: Sequence[str]) -> np.ndarray:
        return np.array([[float(word in text) for word in ("harbour", "desert", "thank", "money")] for text in texts])

    others = fresh = rows


def schema_of(labels: dict[str, str] | None = None, fields: dict | None = None, n_public: int = 400) -> PublicSchema:
    return replace(tickets(n_public, LABELS if labels is None else labels), fields=FIELDS if fields is None else fields)


def plan_of(target: float, schema: PublicSchema | None = None, before: dpa.DpEvent = GAUSSIAN) -> Plan:
    return TABULATE.plan(TabulateSettings(), schema or schema_of(), Budget(target, DELTA), Basis(before))


def private(count: int = 400, labelled: bool = True) -> list[PrivateRow]:
    """Where a text is from decides its place, its label decides its age, and no date can be read."""
    domains = domains_of(FIELDS)
    rows = []
    for at in range(count):
        place, label = ("north", "south")[at % 4 == 0], ("refund", "praise")[at % 2]
        cells = encode_cells([place, 90 if label == "refund" else 10, "never"], domains)
        rows.append(PrivateRow(f"{at} {PLACES[place]} {'money' * (at % 2)}", label if labelled else None, None, cells))
    return rows


WRITTEN = [Record(f"{PLACES[place]} {at}", label) for at in range(60) for label in LABELS for place in PLACES]


def fitted(
    folder: Path, target: float, rows: Sequence[Record] = WRITTEN, labelled: bool = True,
    own: Sequence[PrivateRow] | None = None, fields: dict | None = None,
) -> list[Record]:  # fmt: skip
    schema, own = schema_of(None if labelled else {}, fields), private(labelled=labelled) if own is None else own
    ledger, plan = ledger_of_tickets(folder, 60.0, 400), plan_of(target, schema)
    fit = Tabulate(TabulateSettings(), schema, plan, rows, Reader(), 7)
    purpose = "reference" if math.isinf(target) else "release"
    with opened_by("tabulate", own, ledger, schema, plan, purpose) as view:
        answer = fit.ask(view)
    if purpose == "release":
        asked = [(charge.query, charge.state) for charge in ledger.charges("tickets")]
        assert asked == [("field_tables", "committed"), ("field_means", "committed")]
    return list(fit.made(answer).rows)


# What it costs.


@pytest.mark.parametrize("more", [0.3, 2.0])
def test_tables_means_and_source_spend_the_budget_together(more) -> None:
    target = epsilon(GAUSSIAN, DELTA) + more
    plan = plan_of(target)
    whole = dpa.ComposedDpEvent([GAUSSIAN, *(query.event for query in plan.queries)])
    assert target * (1 - 2e-3) <= epsilon(whole, DELTA) <= target


def test_without_fields_there_is_nothing_to_put_beside() -> None:
    with pytest.raises(ParamsError, match="no fields"):
        plan_of(3.0, schema_of(fields={}))


def test_more_combinations_than_are_fitted_are_refused() -> None:
    wide = {name: "number(0..1000, 1)" for name in ("one", "two")}
    with pytest.raises(ParamsError, match="combinations"):
        plan_of(3.0, schema_of(fields=wide))


def test_a_plan_says_from_which_size_a_cell_is_seen_and_which_field_is_cut_too_fine() -> None:
    notes = plan_of(3.0, schema_of(fields={"age": "number(0..100, 1)"})).notes
    assert "a cell is seen from about" in notes[0]
    assert notes[1].startswith("field age has 101 cells")
    assert len(plan_of(3.0, schema_of(n_public=100_000)).notes) == 1


# What comes out.


@pytest.mark.parametrize("labelled", [True, False])
def test_without_noise_fields_are_those_of_the_private_rows(tmp_path: Path, labelled: bool) -> None:
    written = WRITTEN if labelled else [replace(row, label=None) for row in WRITTEN]
    rows = [dict(row.fields) | {"label": row.label} for row in fitted(tmp_path, math.inf, written, labelled)]
    assert np.mean([row["sent"] is None for row in rows]) > 0.98
    old = np.array([80 <= (row["age"] or 0) <= 100 for row in rows])
    assert abs(old.mean() - 0.5) < 0.02
    if labelled:
        assert np.mean(old == [row["label"] == "refund" for row in rows]) > 0.98
    assert abs(Counter(row["place"] for row in rows)["south"] - len(rows) / 4) <= 3


def test_texts_go_with_the_fields_that_they_speak_of(tmp_path: Path) -> None:
    """Half of the texts are of the south and a quarter of the rows are: those rows are all with such texts."""
    rows = fitted(tmp_path, math.inf)
    south = [row.text.startswith(PLACES["south"]) for row in rows if dict(row.fields)["place"] == "south"]
    assert np.mean(south) > 0.9


READ = {"about": "read(a harbour|a desert)", "age": FIELDS["age"]}


def read_rows() -> list[PrivateRow]:
    """The rows of `private` as a file has them that names no place: a reader answers it beside the column of ages."""
    ages = [decode_cells(row.fields)[1] for row in private()]
    told = [RawRow(row.text, row.label, fields=f"2,{age}") for row, age in zip(private(), ages, strict=True)]
    return [PrivateRow(row.text, row.label, None, row.fields) for row in read_fields(told, READ, Reader.rows)]


def test_a_field_that_is_read_comes_out_beside_one_of_the_file(tmp_path: Path) -> None:
    rows = fitted(tmp_path, math.inf, own=read_rows(), fields=READ)
    named = [dict(row.fields) for row in rows]
    assert abs(Counter(row["about"] for row in named)["a desert"] - len(rows) / 4) <= 3
    assert np.mean([row.text.startswith(PLACES["south"]) for row in rows if ("about", "a desert") in row.fields]) > 0.9
    assert np.mean([(own["age"] >= 80) == (row.label == "refund") for own, row in zip(named, rows, strict=True)]) > 0.98


def test_a_field_that_is_read_is_paid_for_as_one_of_the_file(tmp_path: Path) -> None:
    rows = fitted(tmp_path, epsilon(GAUSSIAN, DELTA) + 1.0, own=read_rows(), fields=READ)
    assert {dict(row.fields)["about"] for row in rows} <= {"a harbour", "a desert", None}
    notes = plan_of(3.0, schema_of(fields=READ)).notes
    assert [note for note in notes if "no column" in note] == [
        "field about is no column: the encoder reads it from each text, by itself"
    ]


def test_with_noise_every_value_lies_in_a_public_cell_and_texts_stay_as_they_were(tmp_path: Path) -> None:
    rows = fitted(tmp_path, epsilon(GAUSSIAN, DELTA) + 1.0)
    assert [(row.text, row.label) for row in rows] == [(row.text, row.label) for row in WRITTEN]
    for row in rows:
        assert [name for name, _ in row.fields] == [*FIELDS]
        for (_, value), domain in zip(row.fields, domains_of(FIELDS), strict=True):
            assert value is None or domain.place(value) is not None


def test_no_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row"):
        fitted(tmp_path, math.inf, [])


# The parts.

SHAPE, TABLES = (2, 3, 4), ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))


def test_the_joint_has_the_tables_that_were_counted() -> None:
    real = np.random.default_rng(1).dirichlet(np.full(24, 0.7)).reshape(SHAPE)
    counts = [1000 * table_of(real, axes).reshape(-1) for axes in TABLES]
    joint = fit_joint(SHAPE, TABLES, counts)
    assert joint.sum() == pytest.approx(1)
    for axes in TABLES:
        assert np.abs(table_of(joint, axes) - table_of(real, axes)).sum() < 0.01


@pytest.mark.parametrize("counts", [0.0, -50.0, 1e9])
def test_a_joint_is_a_distribution_whatever_noise_answered(counts) -> None:
    joint = fit_joint(SHAPE, TABLES, [np.full(math.prod(SHAPE[axis] for axis in axes), counts) for axes in TABLES])
    assert joint.min() >= 0
    assert joint.sum() == pytest.approx(1)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.integers(0, 1000))
def test_combinations_are_drawn_as_often_as_expected_but_for_one_row(rows, seed) -> None:
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(24, 0.3)).reshape(SHAPE)
    cells = draw_cells(joint, rows, rng)
    found = Counter(map(tuple, cells.tolist()))
    assert len(cells) == rows
    assert all(abs(found[place] - rows * joint[place]) < 1 + 1e-6 for place in np.ndindex(SHAPE))


def test_means_are_what_each_value_adds() -> None:
    rng = np.random.default_rng(3)
    joint, adds = rng.dirichlet(np.full(6, 5.0)).reshape(2, 3), rng.normal(size=(5, 8))
    cells = draw_cells(joint, 50_000, rng)
    vectors = adds[cells[:, 0]] + adds[2 + cells[:, 1]]
    sums = np.zeros((5, 8))
    for axis, start in enumerate((0, 2)):
        np.add.at(sums, start + cells[:, axis], vectors)
    found = fit_means(joint, len(cells), sums, 0.0, 1.0)
    assert np.abs(found[cells[:, 0]] + found[2 + cells[:, 1]] - vectors).max() < 0.05


def test_matching_gives_every_row_to_one_text() -> None:
    rng = np.random.default_rng(4)
    cells, vectors = rng.integers(0, 2, size=(900, 2)), rng.normal(size=(900, 5))
    matched = match(vectors, cells, rng.normal(size=(4, 5)), (0, 2), rng)
    assert Counter(map(tuple, matched.tolist())) == Counter(map(tuple, cells.tolist()))
