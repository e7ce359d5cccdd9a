"""`vote_select`: one vote over another variant's rows, paid together with them, and the best of each label kept."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest

from palimpsest.errors import DataError, LedgerError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.vote_select.declaration import plan as planned
from palimpsest.methods.vote_select.fit import VoteSelect
from palimpsest.privacy.accounting import epsilon, gdp_sigma, is_private
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import compose_terms
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.votes import Round, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.encoders import Apart, encoding
from tests.methods.evolve.evolving import (
    ROWS,
    SECRET,
    THINGS,
    encode,
    new_ledger,
    opened,
    schema_of,
    vote_select_settings,
)

DELTA = 1e-3
GAUSSIAN = dpa.GaussianDpEvent(4.0)
SOURCES = {
    "one look": GAUSSIAN,
    "rounds": compose_terms([(GAUSSIAN, None), (dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(12.0), 10), None)]),
    "training": dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.05, dpa.GaussianDpEvent(1.5)), 50),
    "tokens": compose_terms(
        [(dpa.SelfComposedDpEvent(dpa.ZCDpEvent(1e-3), 20), ("scheme", str(cell))) for cell in range(3)]
    ),
}
PUBLIC = [
    Record(f"{label} text {number} of a {thing}", label)
    for label in ("refund", "praise")
    for thing in THINGS
    for number in (0, 1)
]


def voter(
    target: float = math.inf,
    before: dpa.DpEvent = GAUSSIAN,
    rows: Sequence[Record] = PUBLIC,
    seed: int = 3,
    schema: PublicSchema | None = None,
    **changes: Any,
) -> VoteSelect:
    plan = plan_of(target, before, **changes)
    return VoteSelect(
        vote_select_settings(**changes), schema or schema_of(), plan, rows, encoding(encode, len(THINGS)), seed
    )


def plan_of(target: float, before: dpa.DpEvent = GAUSSIAN, **changes: Any) -> Plan:
    return planned(vote_select_settings(**changes), Budget(target, DELTA), before)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def fitted(ledger: Ledger, target: float = math.inf, **changes: Any) -> tuple[VoteSelect, Round]:
    fit = voter(target, **changes)
    with opened(ledger, fit.schema, fit.plan, "reference" if math.isinf(target) else "release") as view:
        return fit, fit.ask(view)


def kept(fit: VoteSelect, voted: Round) -> list[Record]:
    return list(fit.made(voted).rows)


class Asked:
    """Notes what is asked, and answers exactly on rows of its own."""

    def __init__(self, rows: Sequence[PrivateRow]) -> None:
        self.rows = rows
        self.queries: list[Any] = []

    def ask(self, query: Any) -> Any:
        self.queries.append(query)
        return query.run(self.rows, NoiseSource(1))


def test_persons_vote_in_parts_and_records_in_whole_votes() -> None:
    """A person likes one thing in two labels: each gets the same part of one vote."""
    authors = replace(schema_of(), unit_column="author", n_persons=50, max_rows_per_unit=2)
    rows = [PrivateRow(f"a {THINGS[0]}", label, "ab" * 32) for label in ("refund", "praise")]
    for schema, kinds in ((schema_of(), {int}), (authors, {float})):
        fit, view = voter(schema=schema), Asked(rows)
        voted = fit.ask(view)
        (query,) = view.queries
        assert query.ballot.parts == parts_of(schema)
        assert {type(number) for own in voted.counts.values() for number in own} == kinds
        if schema is authors:
            most = [max(own) for own in voted.counts.values()]
            assert most == pytest.approx([math.sqrt(0.5)] * 2, abs=1e-4)
        assert len(kept(fit, voted)) > 0


def test_private_texts_are_read_by_themselves(monkeypatch) -> None:
    apart = Apart()
    monkeypatch.setitem(globals(), "encoding", apart.encoding)
    rows = [PrivateRow(f"my {THINGS[0]}", "refund"), PrivateRow(f"your {THINGS[1]}", "praise")]
    voter().ask(Asked(rows))
    assert apart.holds(row.text for row in rows)


# What it costs.


@pytest.mark.parametrize(
    ("source", "more"), [*((source, 0.05) for source in SOURCES), ("one look", 2.0), ("tokens", 2.0)]
)
def test_the_vote_and_its_source_spend_the_budget_together(source, more) -> None:
    before = SOURCES[source]
    target = epsilon(before, DELTA) + more
    plan = plan_of(target, before)
    (query,) = plan.queries
    assert query.event == dpa.GaussianDpEvent(plan.numbers["sigma"])
    assert (query.name, query.steps, query.partition) == ("vote", None, None)
    assert target * (1 - 2e-3) <= epsilon(dpa.ComposedDpEvent([before, query.event]), DELTA) <= target


def test_the_source_is_not_forgotten() -> None:
    """Alone the vote would need less noise."""
    alone = gdp_sigma(2.0, DELTA)
    assert float(plan_of(2.0).numbers["sigma"]) > 1.05 * alone
    free = float(plan_of(2.0, dpa.NoOpDpEvent()).numbers["sigma"])
    assert alone <= free <= 1.002 * alone


def test_more_votes_each_cost_the_same() -> None:
    assert plan_of(2.0, neighbours=7).numbers["sigma"] == plan_of(2.0).numbers["sigma"]


@pytest.mark.parametrize("less", [1.0, 0.5])
def test_a_source_that_took_all_leaves_nothing(less) -> None:
    with pytest.raises(ParamsError, match="Nothing is left of epsilon"):
        plan_of(epsilon(GAUSSIAN, DELTA) * less)


@pytest.mark.parametrize("before", [dpa.NonPrivateDpEvent(), dpa.ComposedDpEvent([GAUSSIAN, dpa.NonPrivateDpEvent()])])
def test_a_source_without_noise_is_refused(before) -> None:
    with pytest.raises(ParamsError, match="not private"):
        plan_of(3.0, before)


@pytest.mark.parametrize("before", [GAUSSIAN, dpa.NonPrivateDpEvent()])
def test_a_reference_adds_no_noise(before) -> None:
    plan = plan_of(math.inf, before)
    assert plan.numbers["sigma"] == 0
    assert not is_private(plan.event)


def test_a_plan_tells_public_numbers() -> None:
    assert set(plan_of(2.0).numbers) == {"sigma", "rounds", "keep", "neighbours"}


# What it asks.


def test_a_fit_asks_once_what_was_planned(ledger) -> None:
    fitted(ledger, 3.0)
    (charge,) = ledger.charges("tickets")
    assert (charge.query, charge.state, charge.steps) == ("vote", "committed", None)
    assert charge.event == plan_of(3.0).queries[0].event


def test_a_fit_asks_no_more_than_was_planned(ledger) -> None:
    with pytest.raises(LedgerError, match="no reservation"), opened(ledger, schema_of(), plan_of(2.0)) as view:
        voter(3.0).ask(view)


def test_a_killed_run_replays_its_vote(ledger) -> None:
    fit = voter(3.0)

    def killed() -> None:
        with opened(ledger, schema_of(), fit.plan) as view:
            found.append(fit.ask(view))
            raise KeyboardInterrupt

    found: list[Round] = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            killed()
    assert found[0] == found[1]
    assert [charge.state for charge in ledger.charges("tickets")] == ["answered"]


def test_without_rows_there_is_no_fit() -> None:
    with pytest.raises(DataError, match="no row to choose from"):
        voter(rows=[])


def test_nothing_private_is_in_what_is_left(ledger, tmp_path) -> None:
    generator, voted = fitted(ledger, 3.0)
    assert set(voted.texts) == {"refund", "praise"}
    assert SECRET not in json.dumps([voted.texts, voted.counts])
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert {row.text for row in kept(generator, voted)} <= {row.text for row in PUBLIC}


# What it keeps.


def test_exact_votes_keep_what_each_labels_rows_are_about(ledger) -> None:
    """Three of six things are each label's; the later of two texts of a thing is as near and has no vote."""
    generator, voted = fitted(ledger, keep=0.25)
    found = {
        label: [row.text for row in kept(generator, voted) if row.label == label] for label in ("refund", "praise")
    }
    assert found["refund"] == [f"refund text 0 of a {thing}" for thing in THINGS[:3]]
    assert found["praise"] == [f"praise text 0 of a {thing}" for thing in THINGS[3:]]
    assert {label: sum(own) for label, own in voted.counts.items()} == {"refund": 30, "praise": 30}


def test_a_little_noise_changes_little(ledger) -> None:
    generator, voted = fitted(ledger, 8.0, before=dpa.GaussianDpEvent(50.0), keep=0.25)
    assert Counter(row.label for row in kept(generator, voted)) == {"refund": 3, "praise": 3}
    right = sum(thing in row.text for row in kept(generator, voted) for thing in _of(row.label))
    assert right == 6


def _of(label: str | None) -> Sequence[str]:
    return THINGS[:3] if label == "refund" else THINGS[3:]


@pytest.mark.parametrize(("keep", "expected"), [(0.01, 1), (0.25, 3), (0.26, 4), (0.5, 6), (1.0, 12)])
def test_a_share_of_each_labels_rows_is_kept(ledger, keep, expected) -> None:
    generator, voted = fitted(ledger, 3.0, keep=keep)
    rows = kept(generator, voted)
    assert Counter(row.label for row in rows) == {"refund": expected, "praise": expected}
    assert len(set(rows)) == 2 * expected


def test_equal_rows_are_one_candidate() -> None:
    generator = voter(rows=[*PUBLIC, *PUBLIC[:5]])
    voted = Round({"refund": ["a", "b"]}, {"refund": [1, 2]})
    assert kept(generator, voted) == [Record("b", "refund")]


def test_equal_rows_are_voted_for_once(ledger) -> None:
    _, voted = fitted(ledger)
    again = voter(rows=[*PUBLIC, *PUBLIC])
    with opened(ledger, schema_of(), again.plan, "reference") as view:
        assert again.ask(view) == voted


def test_rows_without_labels_are_chosen_among_all(ledger) -> None:
    rows = [Record(row.text, None) for row in PUBLIC]
    schema = schema_of(labels={})
    generator = voter(rows=rows, schema=schema, keep=0.5)
    private = [type(row)(row.text, None) for row in ROWS]
    with opened(ledger, schema, generator.plan, "reference", private) as view:
        voted = generator.ask(view)
    assert sum(voted.counts[""]) == 60
    assert [row.label for row in kept(generator, voted)] == [None] * 12


def test_records_of_a_label_that_no_row_has_do_not_vote(ledger) -> None:
    rows = [row for row in PUBLIC if row.label == "refund"]
    counts = fitted(ledger, rows=rows)[1].counts
    assert {label: sum(own) for label, own in counts.items()} == {"refund": 30}


def test_a_sample_is_drawn_by_the_seed(ledger) -> None:
    generator, voted = fitted(ledger, 3.0, selection="sample")
    first = kept(generator, voted)
    assert kept(generator, voted) == first
    others = [kept(voter(selection="sample", seed=seed), voted) for seed in range(5)]
    assert any(other != first for other in others)
    assert all(len(other) == 12 for other in others)


def test_all_counts_are_whole(ledger) -> None:
    _, voted = fitted(ledger, 3.0, neighbours=3)
    assert all(type(number) is int for own in voted.counts.values() for number in own)
    assert np.shape(voted.counts["refund"]) == (12,)
