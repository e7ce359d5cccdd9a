"""Private evolution: what a plan costs, how noisy counts become a population, and what authors are told."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from palimpsest.errors import BackendError, LedgerError
from palimpsest.methods.evolve.fit import Evolve, EvolvedTexts, EvolveSteps
from palimpsest.methods.evolve.plan import plan as planned
from palimpsest.methods.evolve.plan import writings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import ClassSums
from palimpsest.methods.shared.rounds import group_by_label, select_candidates
from palimpsest.privacy import votes
from palimpsest.privacy.accounting import epsilon
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.votes import Ballot, Round
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.encoders import Apart, encoding
from tests.methods.evolve.evolving import (
    LABELS,
    ROWS,
    SECRET,
    STEERING,
    THINGS,
    Writer,
    encode,
    evolve_settings,
    new_ledger,
    opened,
    schema_of,
    votes_of,
)

BUDGET = Budget(20.0, 1e-3)
EXACT = Budget(math.inf, 1e-3)
LOW = Budget(2.0, 1e-3)


def plan_of(budget: Budget, schema: PublicSchema | None = None, **changes: Any) -> Plan:
    schema = schema or schema_of()
    return planned(evolve_settings(**changes), schema, budget)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def evolve(
    ledger: Ledger,
    author: Any,
    budget: Budget = BUDGET,
    folder: Path | None = None,
    labels: Any = LABELS,
    **changes: Any,
) -> EvolvedTexts:
    """One attempt as the stage makes it."""
    schema = schema_of(labels=labels)
    plan = planned(evolve_settings(**changes), schema, budget)
    rows = ROWS if labels else [replace(row, label=None) for row in ROWS]
    with opened(ledger, schema, plan, "reference" if math.isinf(budget.epsilon) else "release", rows) as view:
        return fit_of(plan, schema, author, folder, **changes).ask(view)


def fit_of(plan: Plan, schema: PublicSchema, author: Any, folder: Path | None = None, **changes: Any) -> Evolve:
    return Evolve(evolve_settings(**changes), schema, plan, author, encoding(encode, len(THINGS)), 3, folder)


# What a plan costs.


def test_a_plan_tells_public_numbers() -> None:
    numbers = plan_of(BUDGET, votes={"neighbours": 4}, look_ahead=2, class_means=STEERING).numbers
    assert (numbers["candidates"], numbers["votes_each"]) == (18, 60 * 2 / 18)
    assert (numbers["new_texts"], numbers["variations"]) == (2 * 6, 2 * 3 * 6 * 2 + 3 * 18 * 2)


def test_notes_say_what_cannot_work() -> None:
    (note,) = plan_of(Budget(1.0, 1e-3)).notes
    assert "raise votes.neighbours towards" in note
    (note,) = plan_of(Budget(0.01, 1e-3)).notes
    assert "neighbours" not in note, "there are not so many candidates"
    assert "ask for fewer rows" in note
    assert plan_of(Budget(50.0, 1e-3)).notes == ()
    assert "every round votes for the same texts" in plan_of(Budget(50.0, 1e-3), expand=1).notes[-1]


def test_shares_leave_something_for_the_votes() -> None:
    with pytest.raises(ValidationError, match="leave nothing"):
        evolve_settings(class_means={"share": 0.96, "domain": 1.0, "first": 2, "pool": 2})


@pytest.mark.parametrize("changes", [{}, {"class_means": STEERING}])
def test_private_texts_are_read_by_themselves(ledger: Ledger, monkeypatch, changes: dict[str, Any]) -> None:
    """An encoder that reads them beside others would give a row's bits to its neighbours."""
    apart = Apart()
    monkeypatch.setitem(globals(), "encoding", apart.encoding)
    evolve(ledger, Writer(), **changes)
    assert apart.holds(row.text for row in ROWS)


# Selection.


def chosen(counts: Sequence[int], wanted: int, rng: int = 0, **changes: Any) -> list[int]:
    """Places of what goes on, of candidates "0", "1", ..."""
    one = Round({"refund": [str(place) for place in range(len(counts))]}, {"refund": list(counts)})
    found = select_candidates(one, {"refund": wanted}, votes_of(**changes), np.random.default_rng(rng))
    assert {record.label for record in found} <= {"refund"}
    return [int(record.text) for record in found]


@pytest.mark.parametrize(
    ("counts", "wanted", "changes", "expected"),
    [
        ([3, 5, 4, 1], 2, {}, [1, 2]),
        ([3, 5, 5, 3], 3, {}, [1, 2, 0]),
        ([-7, -9, -8], 2, {}, [0, 1]),
        ([1, 2, 9, 3], 3, {"threshold": 4.0}, [2, 0, 1]),
        ([7, 9, 12], 2, {"threshold": 4.0, "neighbours": 4}, [2, 1]),
        ([7, 7, 8], 2, {"threshold": 4.0, "neighbours": 4}, [0, 1]),
        ([2, 1], 5, {}, [0, 1]),
        ([], 3, {}, []),
    ],
)
def test_rank_takes_the_largest_counts_above_the_threshold(counts, wanted, changes, expected) -> None:
    assert chosen(counts, wanted, **changes) == expected


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 9))
def test_rank_is_a_stable_order(counts, wanted, threshold) -> None:
    found = chosen(counts, wanted, threshold=float(threshold))
    assert found == sorted(range(len(counts)), key=lambda place: (-max(counts[place], threshold), place))[:wanted]


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=12), st.integers(1, 40), st.integers(0, 9))
def test_sample_draws_as_many_above_the_threshold_in_their_order(counts, wanted, threshold) -> None:
    found = chosen(counts, wanted, selection="sample", threshold=float(threshold))
    assert (len(found), found) == (wanted, sorted(found))
    if max(counts) > threshold:
        assert all(counts[place] > threshold for place in found)


@pytest.mark.parametrize(
    ("counts", "changes", "shares"),
    [
        ([1, 2, 3, -4], {}, [1 / 6, 2 / 6, 3 / 6, 0]),
        ([4, 6, 9, 3], {"threshold": 2.0, "neighbours": 4}, [0, 1 / 3.5, 2.5 / 3.5, 0]),
        ([-4, -2, 0, -7], {}, [0.25] * 4),
        ([5, 5, 5, 5], {"threshold": 5.0}, [0.25] * 4),
    ],
)
def test_sample_draws_in_proportion_to_what_is_above_the_threshold(counts, changes, shares) -> None:
    drawn = Counter(chosen(counts, 6000, selection="sample", **changes))
    seen, wanted = zip(*[(drawn[place], 6000 * share) for place, share in enumerate(shares) if share], strict=True)
    assert sum(seen) == 6000
    assert stats.chisquare(seen, wanted).pvalue > 1e-6


def test_each_label_is_chosen_for_by_its_own_counts() -> None:
    one = Round({"refund": ["a", "b"], "praise": ["c", "d"], "": ["e"]}, {"refund": [1, 2], "praise": [2, 1], "": [0]})
    found = select_candidates(one, {"praise": 1, "refund": 1, "": 1}, votes_of(), np.random.default_rng(0))
    assert found == [Record("c", "praise"), Record("b", "refund"), Record("e", None)]


def test_texts_of_a_label_are_told_apart_by_their_words_alone() -> None:
    rows = [Record("a", "refund"), Record("b", None), Record("a", "refund"), Record("a", "praise")]
    assert group_by_label(rows, ("refund", "praise", "")) == {"refund": ["a"], "praise": ["a"], "": ["b"]}


# Steps between votes.


def steps_of(author: Any, sums: ClassSums | None = None, folder: Path | None = None, **changes: Any) -> EvolveSteps:
    return EvolveSteps(evolve_settings(**changes), {"refund": 2, "praise": 1}, author, encode, sums, 3, folder)


def test_a_slate_is_the_selected_texts_and_their_variations() -> None:
    author = Writer()
    first = steps_of(author).first()
    assert {label: len(texts) for label, texts in first.texts.items()} == {"refund": 6, "praise": 3}
    assert author.calls == ["random", 0]
    done = [Round(first.texts, {"refund": [0, 9, 0, 8, 0, 0], "praise": [0, 0, 7]})]
    second = steps_of(author).propose(done)
    best = [first.texts["refund"][1], first.texts["refund"][3], first.texts["praise"][2]]
    assert [*second.texts["refund"][:2], second.texts["praise"][0]] == best
    assert author.given[-6:] == [
        part for text, label in zip(best, ("refund", "refund", "praise"), strict=True) for part in (text, label)
    ]
    assert {label: len(texts) for label, texts in second.texts.items()} == {"refund": 6, "praise": 3}
    for label, texts in second.texts.items():
        np.testing.assert_array_equal(second.vectors[label], encode(texts))


def test_with_one_candidate_each_nothing_is_varied() -> None:
    author = Writer()
    assert {label: len(texts) for label, texts in steps_of(author, expand=1).first().texts.items()} == {
        "refund": 2,
        "praise": 1,
    }
    assert author.calls == ["random"]


class Ahead(Writer):
    """Writes two variations of the first text, none of the second, one of each other."""

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        self.calls.append(turn)
        return [
            [Record(f"the {thing}", record.label) for thing in [("stove", "fridge"), (), ("phone",)][min(place, 2)]]
            for place, record in enumerate(records)
        ]


def test_a_look_ahead_votes_by_the_mean_of_a_text_and_its_variations() -> None:
    slate = steps_of(Ahead(), expand=1, look_ahead=2).first()
    assert slate.texts["refund"] == ["refund new 0 lamp", "refund new 1 kettle"]
    lamp, kettle, _, stove, fridge, _ = np.eye(6)
    np.testing.assert_allclose(slate.vectors["refund"], [(lamp + stove + fridge) / 3, kettle])
    np.testing.assert_allclose(slate.vectors["praise"], [(lamp + stove + fridge) / 3])


def test_a_look_ahead_varies_anew_each_round() -> None:
    author = Writer()
    steps = steps_of(author, expand=2, look_ahead=2)
    steps.propose([Round(steps.first().texts, {"refund": [1, 2, 3, 4], "praise": [1, 2]})])
    turns = author.calls[1:]
    assert turns[0] == 0
    assert turns[3] == 1
    assert turns[1] == turns[2] != turns[4] == turns[5]
    assert not set(turns[1:3]) & set(range(1000))


def sums_of(refund: Sequence[str], praise: Sequence[str]) -> ClassSums:
    return ClassSums(("refund", "praise"), np.stack([encode(own).sum(axis=0) for own in (refund, praise)]))


def test_steering_keeps_what_is_most_like_its_label() -> None:
    """Four new texts of refund and two of praise are written; radio is of refund, kettle of praise."""
    author = Writer()
    sums = sums_of(["radio", "radio", "stove"], ["kettle", "kettle", "fridge"])
    steps = steps_of(author, sums, class_means=STEERING, expand=1)
    texts = steps.first().texts
    assert author.sizes == [6]
    assert any("radio" in text for text in texts["refund"])
    assert all("kettle" in text for text in texts["praise"])
    assert {label: len(own) for label, own in texts.items()} == {"refund": 2, "praise": 1}


def test_steering_writes_more_and_keeps_as_many() -> None:
    author = Writer()
    steps = steps_of(
        author, sums_of(THINGS[:3], THINGS[3:]), class_means=STEERING.model_copy(update={"first": 5, "pool": 5})
    )
    slate = steps.first()
    assert author.sizes == [15, 30]
    assert {label: len(own) for label, own in slate.texts.items()} == {"refund": 6, "praise": 3}


def test_a_text_that_was_drawn_twice_has_twice_the_variations() -> None:
    author = Writer()
    steps = steps_of(author, votes={"selection": "sample"})
    done = [Round({"refund": ["a", "b"], "praise": ["c"]}, {"refund": [5, 0], "praise": [1]})]
    assert Counter(steps.select(done, 0)) == {Record("a", "refund"): 2, Record("c", "praise"): 1}
    slate = steps.propose(done)
    assert sorted(author.sizes) == [2, 4]
    assert {label: len(own) for label, own in slate.texts.items()} == {"refund": 5, "praise": 3}


def test_draws_from_counts_differ_between_rounds_and_come_again() -> None:
    texts = {"refund": [str(place) for place in range(200)], "praise": ["c"]}
    done = [Round(texts, {"refund": [1] * 200, "praise": [1]})] * 2
    steps = steps_of(Writer(), votes={"selection": "sample"})
    steps.counts = {"refund": 50, "praise": 1}
    first, second = steps.select(done, 0), steps.select(done, 1)
    assert first != second
    assert steps.select(done, 0) == first


# A fit.


@pytest.fixture
def slates(monkeypatch) -> list[Mapping[str, Sequence[str]]]:
    """The candidates of every vote that is held."""
    found: list[Mapping[str, Sequence[str]]] = []
    held = Ballot.held

    def noted(self: Ballot, rows: Any, slate: votes.Slate, noise: Any) -> Any:
        found.append(slate.texts)
        return held(self, rows, slate, noise)

    monkeypatch.setattr(Ballot, "held", noted)
    return found


def test_every_round_has_n_times_l_candidates_and_selects_n(ledger, slates) -> None:
    found = evolve(ledger, Writer(), prior={"refund": 2.0, "praise": 1.0})
    assert [{label: len(texts) for label, texts in slate.items()} for slate in slates] == [
        {"refund": 12, "praise": 6}
    ] * 3
    assert [Counter(row.label for row in one) for one in found.rounds] == [{"refund": 4, "praise": 2}] * 3
    for slate, one in zip(slates, found.rounds, strict=True):
        assert all(row.text in slate[row.label or ""] for row in one)


def test_the_last_round_alone_is_the_result(ledger) -> None:
    found = evolve(ledger, Writer(), Budget(0.5, 1e-3))
    assert len(found.rounds) == 3
    assert found.records == found.rounds[2] != found.rounds[1]
    made = fit_of(plan_of(LOW), schema_of(), Writer()).made(found)
    assert (made.rows, made.drawn, made.told) == (list(found.rounds[2]), 6, {"rounds": 3})


@pytest.mark.parametrize("rows", [2, 7, 31])
def test_counts_of_all_labels_sum_to_the_rows(ledger, rows) -> None:
    found = evolve(ledger, Writer(), LOW, rows=rows, label_counts="noisy")
    assert [len(one) for one in found.rounds] == [rows] * 3


def test_a_label_without_rows_is_left_out(ledger, slates) -> None:
    found = evolve(ledger, Writer(), prior={"refund": 1.0, "praise": 0.0})
    assert [set(slate) for slate in slates] == [{"refund"}] * 3
    assert Counter(row.label for row in found.records) == {"refund": 6}


def test_a_task_without_labels_is_one_population(ledger, slates) -> None:
    found = evolve(ledger, Writer(), labels={})
    assert [list(slate) for slate in slates] == [[""]] * 3
    assert [row.label for row in found.records] == [None] * 6


def test_exact_votes_find_what_the_rows_are_about(tmp_path) -> None:
    """Of things that are named at random, those that the label's rows name are left."""
    found = evolve(new_ledger(tmp_path), Writer(), EXACT, rows=6, rounds=4)
    named = {
        label: {thing for row in found.records if row.label == label for thing in THINGS if thing in row.text}
        for label in LABELS
    }
    assert named == {"refund": set(THINGS[:3]), "praise": set(THINGS[3:])}


def test_a_fit_asks_what_was_planned(ledger) -> None:
    evolve(ledger, Writer(), LOW, class_means=STEERING, label_counts="noisy")
    charges = ledger.charges("tickets")
    assert [(charge.query, charge.state, charge.steps_begun) for charge in charges] == [
        ("label_histogram", "committed", 0),
        ("class_means", "committed", 0),
        ("vote rounds", "committed", 3),
    ]
    total = dpa.ComposedDpEvent([charge.event for charge in charges])
    assert LOW.epsilon * (1 - 2e-3) <= epsilon(total, LOW.delta) <= LOW.epsilon


def test_a_fit_asks_no_more_than_was_planned(ledger) -> None:
    schema = schema_of()
    plan, dearer = (plan_of(Budget(target, 1e-3)) for target in (2.0, 3.0))
    with pytest.raises(LedgerError, match="no reservation"), opened(ledger, schema, plan) as view:
        fit_of(dearer, schema, Writer()).ask(view)


def test_no_private_text_reaches_an_author(ledger) -> None:
    author = Writer()
    evolve(ledger, author, LOW, class_means=STEERING, label_counts="noisy", look_ahead=1)
    told = " ".join(str(part) for part in author.given)
    assert SECRET not in told
    assert not {row.text for row in ROWS} & set(author.given)
    assert len(author.given) > 50
    assert SECRET in ROWS[0].text


def test_the_author_writes_as_much_as_the_plan_says(ledger) -> None:
    author = Writer()
    changes: dict[str, Any] = {"class_means": STEERING, "look_ahead": 2, "rows": 8}
    evolve(ledger, author, **changes)
    assert sum(author.sizes) == sum(writings(evolve_settings(**changes)))


# Errors.


def test_too_few_new_texts_cost_nothing(ledger) -> None:
    with pytest.raises(BackendError, match="fewer texts for label 'refund' than each round selects"):
        evolve(ledger, Writer(share=0.9))
    assert [charge.state for charge in ledger.charges("tickets")] == ["refunded"]
    assert ledger.balance("tickets").spent == 0


def test_too_few_variations_are_an_error_and_half_are_enough(ledger) -> None:
    class Lazy(Writer):
        def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
            found = super().vary(records, times, turn)
            return [own[: 0 if place % 3 else times] for place, own in enumerate(found)] if turn == 2 else found

    with pytest.raises(BackendError, match="fewer than half of the variations before round 3"):
        evolve(ledger, Lazy())
    assert [(charge.state, charge.steps_begun) for charge in ledger.charges("tickets")] == [("begun", 2)]


@pytest.mark.parametrize(("share", "enough"), [(0.5, True), (0.49, False)])
def test_half_of_the_variations_are_enough(ledger, share, enough) -> None:
    class Half(Writer):
        def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
            found = [record for own in super().vary(records, times, turn) for record in own]
            return [found[: int(share * times * len(records))], *[[] for _ in records[1:]]]

    if enough:
        assert len(evolve(ledger, Half(), rows=10).records) == 10
    else:
        with pytest.raises(BackendError, match="fewer than half of the variations"):
            evolve(ledger, Half(), rows=10)


# A run that stops.


@pytest.mark.parametrize("fails", [1, 2])
def test_a_stopped_run_goes_on_with_what_it_kept(ledger, tmp_path, slates, fails) -> None:
    changes: dict[str, Any] = {
        "budget": LOW,
        "folder": tmp_path / "kept",
        "class_means": STEERING,
        "label_counts": "noisy",
    }
    with pytest.raises(BackendError, match="cannot be reached"):
        evolve(ledger, Writer(fails=fails), **changes)
    spent, before = ledger.balance("tickets").spent, list(slates)
    again = Writer()
    found = evolve(ledger, again, **changes)
    assert len(before) == fails
    assert (len(slates), len(found.rounds)) == (3, 3)
    assert again.calls == list(range(fails, 3))
    for slate, one in zip(slates, found.rounds, strict=True):
        assert all(row.text in slate[row.label or ""] for row in one)
    assert ledger.balance("tickets").spent == spent
    states = {charge.query: charge.state for charge in ledger.charges("tickets") if charge.state != "refunded"}
    assert set(states.values()) == {"committed"}


def test_a_run_that_never_voted_writes_its_first_population_once(ledger, tmp_path, monkeypatch) -> None:
    def stopped(*_: Any) -> None:
        raise BackendError("Stopped.", "Run again.")

    author, folder = Writer(), tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(votes.VoteRounds, "run_steps", stopped)
        with pytest.raises(BackendError):
            evolve(ledger, author, folder=folder)
    assert author.calls == ["random", 0]
    evolve(ledger, author, folder=folder)
    assert author.calls == ["random", 0, 1, 2]


def test_other_sums_have_another_first_population(tmp_path) -> None:
    author = Writer()
    for sums in (sums_of(["radio"], ["kettle"]), sums_of(["lamp"], ["kettle"]), sums_of(["radio"], ["kettle"])):
        steps_of(author, sums, tmp_path, class_means=STEERING).first()
    assert author.calls == ["random", 0] * 2
    assert len(list(tmp_path.iterdir())) == 2
    assert tmp_path.is_dir()


def test_kept_files_hold_synthetic_texts_and_noisy_counts_alone(ledger, tmp_path) -> None:
    folder = tmp_path / "kept"
    evolve(ledger, Writer(), folder=folder, class_means=STEERING)
    files = sorted(folder.iterdir())
    assert len(files) == 2
    for path in files:
        assert SECRET not in path.read_text()
    rounds = json.loads(next(path for path in files if "first" not in path.name).read_text())
    assert set(rounds) == {"begun", "kept"}
    assert all(set(one) == {"texts", "counts", "slate"} for one in rounds["kept"])
    assert folder.stat().st_mode & 0o077 == 0
