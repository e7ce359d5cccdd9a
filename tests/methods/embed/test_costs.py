"""What `embed` costs, and what it says before a row is read."""

import math
from dataclasses import replace
from typing import Any

import pytest

from palimpsest.methods.embed.plan import plan as planned
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.privacy.accounting import total_rho, zcdp_rho
from palimpsest.records.schema import PublicSchema, default_delta
from tests.methods.embed.embedding import AIM, LIMITED, embed_settings, schema_of

BUDGET = Budget(20.0, 1e-3)
LOW = Budget(1.0, 1e-3)
TREC = 5452
PAPER: dict[str, Any] = {"rounds": 7, "start": 1000, "offspring": 3000, "parents": 30}
PUBLISHED = {**PAPER, "selection": {**LIMITED, "domain": 300}}


def gaussian(neighbours: int) -> dict[str, Any]:
    return {"kind": "gaussian", "neighbours": neighbours}


def plan_of(budget: Budget, schema: PublicSchema | None = None, **changes: Any) -> Plan:
    schema = schema or schema_of()
    return planned(embed_settings(**changes), schema, budget)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_limited_domain_pays_for_every_pick_and_keeps_its_deltas_apart(share: float) -> None:
    delta = 1e-5
    plan = plan_of(Budget(2.0, delta), rounds=4, parents=3, selection={**LIMITED, "delta_share": share})
    (query,) = plan.queries
    assert query.own_delta == plan.own_delta == pytest.approx(share * delta)
    assert query.own_delta <= share * delta
    assert plan.numbers["round_delta"] == pytest.approx(share * delta / 4)
    scale, rho = float(plan.numbers["scale"]), zcdp_rho(2.0, (1 - share) * delta)
    assert total_rho(plan.event) == pytest.approx(rho)
    assert 4 * 3 / (8 * scale**2) == pytest.approx(rho)
    assert plan.numbers["gap"] == pytest.approx(1 + scale * math.log(4 / (share * delta)))


def test_shares_of_limited_domain_add_up_in_zcdp() -> None:
    plan = plan_of(Budget(2.0, 1e-5), selection=LIMITED, class_means=AIM, label_counts="noisy", rounds=4, parents=3)
    rho = zcdp_rho(2.0, 0.5e-5)
    histogram, means, votes = (total_rho(query.event) / rho for query in plan.queries)
    assert (histogram, means, votes) == (pytest.approx(0.05), pytest.approx(0.25), pytest.approx(0.7))


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        ({}, "has 1.8: infeasible, as 30 parents would need 8655 rows and an average label has 5452; use selection "),
        (dict.fromkeys("abcdef", "x"), "has 0.3: infeasible, as 30 parents would need 8655 rows and an average label "),
    ],
)
def test_the_published_setting_is_infeasible_on_a_small_data_set(labels, verdict) -> None:
    plan = plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, labels), **PUBLISHED)
    (note,) = plan.notes
    assert note.startswith("LimitedDomain needs a gap of 288 votes to candidate 301, an average candidate " + verdict)
    assert f"(sigma 8.0 whatever parents is) with at most {679 if not labels else 113} candidates" in note
    assert not plan.feasible
    wider = plan_of(Budget(1.0, default_delta(TREC)), schema_of(TREC, labels), **PUBLISHED)
    assert round(float(wider.numbers["gap"])) == 392


def test_with_a_unit_column_persons_are_what_is_counted() -> None:
    """Thrice as many rows of a third as many persons: the plan is that of as many records as there are persons."""
    authors = replace(schema_of(3 * TREC, {}), unit_column="author", n_persons=TREC, max_rows_per_unit=3)
    budget = Budget(1.0, 1 / TREC)
    ours, theirs = plan_of(budget, authors, **PUBLISHED), plan_of(budget, schema_of(TREC, {}), **PUBLISHED)
    assert (ours.numbers, ours.feasible) == (theirs.numbers, theirs.feasible)
    assert [note.replace("persons", "rows") for note in ours.notes] == list(theirs.notes)
    assert "persons" in ours.notes[0]


def test_the_noise_that_the_note_names_is_that_of_gaussian_votes() -> None:
    """Up to what searching for it beside a histogram adds."""
    beside: dict[str, Any] = {**PAPER, "class_means": AIM, "label_counts": "noisy"}
    budget, schema = Budget(1.0, 1 / TREC), schema_of(TREC)
    (note,) = plan_of(budget, schema, **beside, selection=PUBLISHED["selection"]).notes
    named = float(note.split("(sigma ")[1].split()[0])
    assert named == pytest.approx(float(plan_of(budget, schema, **beside).numbers["sigma"]), abs=0.1)


@pytest.mark.parametrize(
    ("target", "changes", "feasible", "said"),
    [
        (20.0, {}, True, "has 1.8: rounds may select fewer than 30 parents, or none; use selection gaussian"),
        (20.0, {"start": 30, "offspring": 30}, True, None),
        (1.0, {"parents": 1}, True, "rounds may select fewer than 1 parents"),
    ],
)
def test_a_gap_that_some_candidates_may_have_is_a_note(target, changes, feasible, said) -> None:
    plan = plan_of(Budget(target, 1 / TREC), schema_of(TREC, {}), **{**PUBLISHED, **changes})
    assert plan.feasible is feasible
    assert len(plan.notes) == (said is not None)
    assert said is None or said in plan.notes[0]


@pytest.mark.parametrize("beside", [{}, {"class_means": AIM}])
def test_rows_that_all_parents_need_are_the_limit(beside) -> None:
    """At the limit an average label has as many rows as parents times the gap."""
    gap = float(plan_of(Budget(3.0, 1e-4), selection=LIMITED, **beside).numbers["gap"])
    for rows, feasible in ((math.ceil(2 * 4 * gap), True), (math.floor(2 * 4 * gap), False)):
        assert plan_of(Budget(3.0, 1e-4), schema_of(rows), selection=LIMITED, **beside).feasible is feasible


def test_faint_votes_under_gaussian_noise_are_a_note() -> None:
    plan = plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **PAPER)
    (note,) = plan.notes
    assert note.startswith(
        "an average candidate gets 1.8 votes and noise of 8.02: raise selection.neighbours towards 20"
    )
    assert "at most 679 candidates of a label" in note
    assert plan.feasible
    assert plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **PAPER, selection=gaussian(20)).notes == ()
    assert plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **{**PAPER, "start": 600, "offspring": 640}).notes == ()


def test_a_plan_tells_public_numbers() -> None:
    numbers = plan_of(LOW, selection=gaussian(4), class_means=AIM, rows=10).numbers
    assert (numbers["candidates"], numbers["votes_each"]) == (20, 240 / 2 * 2 / 20)
    assert numbers["texts_decoded"] == 3 * 4 * 2 + 2 * 10
    assert plan_of(BUDGET, offspring=40).numbers["candidates"] == 44
    assert plan_of(BUDGET, offspring=40, keep_parents=False).numbers["candidates"] == 40
    assert plan_of(BUDGET, offspring=40, rounds=1).numbers["candidates"] == 20


def test_the_rounds_that_are_proposed_leave_as_many_votes_as_noise_and_one_more_does_not() -> None:
    few = {**PAPER, "selection": gaussian(10)}
    (note,) = plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **few).notes
    assert note.endswith(", or in at most 3 rounds")
    told = [plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **{**few, "rounds": rounds}).notes for rounds in (3, 4)]
    assert told[0] == ()
    assert len(told[1]) == 1
    (note,) = plan_of(Budget(1.0, 1 / TREC), schema_of(TREC, {}), **{**few, "selection": gaussian(1)}).notes
    assert "rounds" not in note, "no number of them would do"
