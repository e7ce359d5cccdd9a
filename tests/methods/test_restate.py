"""`restate`: what rows of another variant state becomes what noisy counts say, paid together with those rows."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from pydantic import ValidationError

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.restate.declaration import RestateSettings
from palimpsest.methods.restate.fit import Quotas, Restate, assign_cells
from palimpsest.methods.restate.fit import plan as planned
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.settings import DELTA_SHARE
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.tickets import SECRET, ledger_of_tickets, opened_by, tickets

DELTA = 1e-3
GAUSSIAN = dpa.GaussianDpEvent(6.0)
LABELS = {"refund": "Money back.", "praise": "Kind words."}
OPEN = {"pattern": r"[A-Z][a-z]+ \d"}
LISTED = {"values": {"hums": ["humming"], "leaks": ["leaking"]}}
ROWS = [
    PrivateRow(f"{SECRET} {number}. My {name} {does}.", label)
    for name, does, label in (
        ("Abra 2", "hums", "refund"),
        ("Abra 2", "leaks", "praise"),
        ("Cedo 3", "leaks", "refund"),
    )
    for number in range(40)
]
WRITTEN = [
    Record(f"{opening} the Public 9 keeps {does}.", label)
    for label in LABELS
    for does in ("humming", "leaking")
    for opening in ("Well", "So", "Then")
]


def settings_of(attributes: Any = None, **changes: Any) -> RestateSettings:
    return RestateSettings.model_validate({"attributes": attributes or {"name": OPEN, "does": LISTED}, **changes})


def schema_of(labels: dict[str, str] | None = None) -> PublicSchema:
    return tickets(120, LABELS if labels is None else labels)


def plan_of(target: float, before: dpa.DpEvent = GAUSSIAN, attributes: Any = None, **changes: Any) -> Plan:
    return planned(settings_of(attributes, **changes), schema_of(), Budget(target, DELTA), before)


def fitted(
    folder: Path, target: float = math.inf, rows: Sequence[Record] = WRITTEN, private: Sequence[PrivateRow] = ROWS
) -> list[Record]:
    ledger, plan, schema = ledger_of_tickets(folder, 60.0, 120), plan_of(target), schema_of()
    fit = Restate(settings_of(false_cells=1e-9), schema, plan, rows)  # no combination passes by noise alone
    purpose = "reference" if math.isinf(target) else "release"
    with opened_by("restate", private, ledger, schema, plan, purpose) as view:
        answer = fit.ask(view)
    if purpose == "release":
        asked = [(charge.query, charge.own_delta, charge.state) for charge in ledger.charges("tickets")]
        assert asked == [
            ("statement_phrases", DELTA * DELTA_SHARE, "committed"),
            ("statement_counts", 0.0, "committed"),
        ]
    return list(fit.made(answer).rows)


def said(rows: Sequence[Record]) -> Counter[tuple[str, str, str]]:
    """(label, name, what it does) of each row."""
    words = [(row.label or "", row.text.removesuffix(".").split()) for row in rows]
    return Counter((label, " ".join(own[2:4]), own[-1]) for label, own in words)


# What it costs.


@pytest.mark.parametrize("attributes", [{"name": OPEN, "does": LISTED}, {"does": LISTED}])
@pytest.mark.parametrize("more", [0.3, 2.0])
def test_questions_and_source_spend_the_budget_together(attributes, more) -> None:
    target = epsilon(GAUSSIAN, DELTA) + more
    plan = plan_of(target, attributes=attributes)
    whole = dpa.ComposedDpEvent([GAUSSIAN, *(query.event for query in plan.queries)])
    assert plan.own_delta == (DELTA * DELTA_SHARE if "name" in attributes else 0.0)
    assert target * (1 - 2e-3) <= epsilon(whole, DELTA - plan.own_delta) <= target
    assert [query.name for query in plan.queries][-1] == "statement_counts"
    assert len(plan.queries) == len(attributes)


def test_a_source_that_took_all_leaves_nothing() -> None:
    with pytest.raises(ParamsError, match="Nothing is left of epsilon"):
        plan_of(epsilon(GAUSSIAN, DELTA))


def test_a_source_without_noise_is_refused() -> None:
    with pytest.raises(ParamsError, match="not private"):
        plan_of(3.0, dpa.NonPrivateDpEvent())


def test_a_reference_adds_no_noise() -> None:
    plan = plan_of(math.inf, dpa.NonPrivateDpEvent())
    assert not is_private(plan.event)
    assert plan.own_delta == 0.0


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(ParamsError, match="combinations"):
        plan_of(3.0, attributes={"one": OPEN, "two": OPEN}, most_values=1000)


def test_noise_larger_than_the_data_is_no_plan() -> None:
    assert plan_of(3.0).feasible
    plan = planned(settings_of(), tickets(2, LABELS), Budget(0.5, DELTA), dpa.NoOpDpEvent())
    assert not plan.feasible
    assert "raise epsilon" in plan.notes[0]


@pytest.mark.parametrize(
    "own",
    [
        {},
        OPEN | LISTED,
        {"pattern": "("},
        {"values": {"": []}},
        {"values": {"hums": ["Hums"]}},
        {"values": {"hums": ["is on"], "leaks": ["is on"]}},
    ],
)
def test_an_attribute_that_is_none_is_refused(own) -> None:
    with pytest.raises(ValidationError):
        settings_of({"name": own})


def test_without_rows_there_is_no_fit() -> None:
    with pytest.raises(DataError, match="no row to change"):
        Restate(settings_of(), schema_of(), plan_of(3.0), [])


# What it writes.


def test_rows_state_what_many_private_rows_do_and_nothing_else(tmp_path) -> None:
    rows = fitted(tmp_path, 30.0)
    assert [row.label for row in rows] == [row.label for row in WRITTEN]
    assert set(said(rows)) <= {
        (label, name, does)
        for label in LABELS
        for name, does in (("Abra 2", "humming"), ("Abra 2", "leaking"), ("Cedo 3", "leaking"))
    }
    assert not any(SECRET in row.text for row in rows)


def test_without_noise_each_label_states_its_own(tmp_path) -> None:
    assert said(fitted(tmp_path)) == {
        ("refund", "Abra 2", "humming"): 3, ("refund", "Cedo 3", "leaking"): 3, ("praise", "Abra 2", "leaking"): 6
    }  # fmt: skip


def test_what_one_person_says_is_not_said(tmp_path) -> None:
    alone = [*ROWS, PrivateRow("The Zeta 7 hums.", "refund")]
    assert not any("Zeta" in row.text for row in fitted(tmp_path, 30.0, private=alone))


def test_rows_that_state_nothing_stay(tmp_path) -> None:
    silent = [Record("A kind word about nothing.", "praise"), Record("It hums.", None)]
    assert fitted(tmp_path, 30.0, silent) == silent


def test_where_nothing_passes_the_rows_stay(tmp_path) -> None:
    assert fitted(tmp_path, 30.0, private=[PrivateRow("nothing", "refund")]) == WRITTEN


# The quotas.


def test_cells_pass_where_noise_alone_rarely_does() -> None:
    cells = np.array([[100, 3], [31, 29]])
    quotas = Quotas.of(cells, np.zeros((0, 2, 2), dtype=np.int64), (44.5, 0.0), 1.0)  # of 4 cells 1: above 0.674 std
    assert quotas.cells.tolist() == [[0, 0], [1, 0]]
    assert quotas.weights.tolist() == [[100.0, 31.0]]
    assert Quotas.of(cells, np.zeros((0, 2, 2)), (44.5, 0.0), 4.0).cells.tolist() == np.argwhere(cells).tolist()


def test_a_rare_cell_is_wanted_once_where_it_belongs() -> None:
    quotas = Quotas(np.array([[0], [1]]), np.array([[1000.0, 0.1], [10.0, 5.0]]))
    assert quotas.count_wanted(0, 4).tolist() == [4, 0]
    assert quotas.count_wanted(1, 4).tolist() == [3, 1]
    assert quotas.count_wanted(0, 0).tolist() == [0, 0]


def test_labels_that_drown_follow_the_first_attribute() -> None:
    """The first value is the first label's in 99 of 100 cases; of its rare cell the labels are not seen."""
    by_label = np.array([[[990, 0]], [[10, 0]]])
    quotas = Quotas.of(np.array([[1000, 50]]), by_label, (1.0, 5.0), 1.0)
    assert quotas.weights.sum(axis=0) == pytest.approx([1000, 50])
    assert quotas.weights[:, 1] == pytest.approx([49.5, 0.5])


def test_what_changes_least_is_changed() -> None:
    cells, stated = np.array([[0, 0], [1, 1]]), np.array([[-1, -1], [1, 0], [1, 1], [0, 1]])
    assert assign_cells(stated, cells, np.array([2, 2])) == [1, 0, 1, 0]
    assert assign_cells(stated, cells, np.array([0, 0])) == []
