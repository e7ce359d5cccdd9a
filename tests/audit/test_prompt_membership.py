"""The attack on prompts finds what a judge knows of its demonstration, and nothing where that tells of nobody."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.membership import Control, audit_membership
from palimpsest.audit.statistics import Estimate, Interval
from palimpsest.audit.units import Guessed, Scores
from palimpsest.errors import DataError
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest_lab.audits.prompt_membership import (
    ATTACK,
    BINS,
    Density,
    Own,
    Prompted,
    PromptMembershipAudit,
    ask,
    log_odds,
    pair_records,
)

PASSED = Control(Estimate(0.5, 0.4, 0.6), Interval(0.4, 0.6))
LABELS = ("x", "y")


def audited(rows: int, persons: int | None = None) -> Guessed:
    """So many records a side, of as many persons each or of nobody; labels take turns."""
    sides = [
        [
            SplitRow(f"{side} {row}", LABELS[row % 2], True, None if persons is None else f"{side} {row % persons}")
            for row in range(rows)
        ]
        for side in ("member", "other")
    ]
    return Guessed.of(*sides)


def judging(knows: Callable[[Record, Record], bool]) -> Own:
    """A judge that is sure of what it knows by its demonstration, and else of a text's own fixed probability."""

    def own(shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        alone = [0.2 + 0.5 * (int(row.text.split()[-1]) % 7) / 7 for row in asked]
        known = [any(knows(one, row) for one in shown) for row in asked]
        return np.where(known, 0.99, alone)

    return own


READER = judging(lambda shown, asked: shown.text == asked.text)
ECHO = judging(lambda shown, asked: shown.label == asked.label)
BLIND = judging(lambda shown, asked: False)


def prompted(own: Own, rows: Sequence[Record], guess: Guessed, draws: int = 20) -> Prompted:
    return ask(own, rows, guess, draws=draws, shown=30, seed=3)


def audit(found: Prompted, claim: float | None = 0.01) -> PromptMembershipAudit:
    judged = audit_membership(
        {ATTACK: found.scores}, PASSED, claim=claim, delta=1e-5, guess_share=0.2, alpha=0.05, seed=0,
        units=found.guess.units,
    )  # fmt: skip
    return PromptMembershipAudit(judged, found.density, found.shown)


FRESH = [Record(f"fresh {row}", LABELS[row % 2]) for row in range(50)]


def test_rows_that_repeat_members_are_found():
    guess = audited(60)
    found = audit(prompted(READER, guess.members, guess, draws=300))
    assert found.shown.attack.auc.value == 1.0
    assert found.membership.attacks[ATTACK].auc.value > 0.95
    assert found.verdict == found.membership.verdict == "refuted"


def test_fresh_rows_say_nothing_and_the_control_still_works():
    found = audit(prompted(READER, FRESH, audited(60)))
    assert (found.shown.works, found.membership.attacks[ATTACK].auc.value) == (True, 0.5)
    assert found.verdict == "not refuted"
    assert found.density.members == found.density.others  # both sides hold the same fixed probabilities


def test_a_label_that_is_repeated_is_no_member():
    """Others of the control have the member's label: what the demonstration's label does, it does to both."""
    found = prompted(ECHO, FRESH, audited(60))
    records = [*found.guess.members, *found.guess.others]
    assert all(records[member].label == records[other].label for member, other in found.pairs)
    assert np.ptp(log_odds(found.behind_member)) == 0.0
    assert not found.shown.works or found.shown.attack.auc.value < 0.7


def test_a_judge_that_does_not_read_its_prompt_proves_nothing():
    guess = audited(60)
    found = audit(prompted(BLIND, guess.members, guess))
    assert (found.shown.attack.auc.value, found.shown.works) == (0.5, False)
    assert (found.membership.verdict, found.verdict) == ("not refuted", "inconclusive")


def test_a_refuted_claim_is_refuted_though_the_control_failed():
    guess = audited(60)
    found = prompted(READER, guess.members, guess, draws=300)
    unknown = audit(replace(found, behind_member=found.alone[found.pairs]))
    assert (unknown.shown.attack.auc.value, unknown.shown.works) == (0.5, False)
    assert unknown.verdict == unknown.membership.verdict == "refuted"


def test_a_score_is_what_a_row_adds_to_the_log_odds():
    guess = audited(4)
    found = prompted(READER, guess.members, guess, draws=6)
    records = [*guess.members, *guess.others]
    alone = READER([], records)
    shown = [[int(row.text == one.text) for row in records] for one in _drawn(found, records)]
    gain = np.mean(shown, axis=0) * (np.log(99.0) - np.log(alone / (1 - alone)))
    assert found.scores.joined == pytest.approx(gain)


def _drawn(found: Prompted, records: Sequence[Record]) -> list[Record]:
    """The demonstrations, each known by the one record that it makes sure of."""
    return [records[int(np.argmax(draw - found.alone))] for draw in found.behind_rows]


def test_a_person_is_one_guess_and_one_count():
    found = prompted(READER, FRESH, audited(30, persons=10))
    judged = audit(found)
    assert (judged.membership.members, judged.membership.nonmembers, judged.membership.unit) == (10, 10, "person")
    assert (sum(judged.density.members), sum(judged.density.others)) == (10, 10)
    owners = found.guess.units.owner[found.pairs]
    assert len(found.pairs) == 10
    assert len(np.unique(owners)) == owners.size


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 4)), min_size=1, max_size=12), st.integers(1, 9))
def test_pairs_share_a_label_and_no_unit(rows: list[tuple[str, int]], most: int):
    sides = [
        [SplitRow(str(place), label, True, f"{side}{who}") for place, (label, who) in enumerate(rows)]
        for side in ("in", "out")
    ]
    guess = Guessed.of(*sides)
    records, pairs = [*guess.members, *guess.others], pair_records(guess, most, 0)
    assert len(pairs) <= most
    assert all(member < len(rows) <= other for member, other in pairs)
    assert all(records[member].label == records[other].label for member, other in pairs)
    assert len({*guess.units.owner[pairs].ravel()}) == pairs.size


def test_a_density_counts_every_unit_and_the_ends_too():
    found = Density.of(Scores(np.array([0.0, 1.0, 0.51]), np.array([0.049, 0.05])))
    assert (len(found.members), sum(found.members), sum(found.others)) == (BINS, 3, 2)
    assert (found.members[0], found.members[10], found.members[-1]) == (1, 1, 1)
    assert (found.others[0], found.others[1]) == (1, 1)


def test_what_is_written_is_read_again():
    found = audit(prompted(BLIND, FRESH, audited(60)))
    document = found.to_json("dp3")
    assert (document["variant"], document["zone"], document["verdict"]) == ("dp3", "internal", "inconclusive")
    assert document["shown"]["works"] is False
    assert PromptMembershipAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document


@pytest.mark.parametrize("rows", [[], FRESH])
def test_without_a_row_or_a_pair_there_is_no_attack(rows: list[Record]):
    apart = Guessed.of([SplitRow("secret 1", "x", True)], [SplitRow("secret 2", "y", True)])
    with pytest.raises(DataError) as caught:
        prompted(READER, rows, apart if rows else audited(20))
    assert "secret" not in str(caught.value)
