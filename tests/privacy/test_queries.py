"""Record replay (tier T1): what reaches the mechanism on neighbouring data sets differs by the declared sensitivity."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.privacy import queries
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import is_for_persons, is_registered
from palimpsest.privacy.rows import PrivateRow
from tests.privacy.persons import data_sets, neighbours, records_in, rows_in

LABELS = ("refund", "outage", "praise")
ROWS = st.builds(
    PrivateRow, st.sampled_from(["", "short", "long " * 500]), st.sampled_from([*LABELS, "unheard of", "", None])
)


class TwoVotes(LabelHistogram):
    """The mutant: a record votes for its label and once more."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        return super().run([*rows, *rows], noise)


class DataSized(LabelHistogram):
    """The mutant: the list of counts depends on which labels occur."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        seen = tuple(label for label in self.labels if label in Counter(row.label for row in rows))
        return LabelHistogram(seen, self.sigma).run(rows, noise)


class EveryRow(LabelHistogram):
    """The mutant: a person counts once for each row."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        return super().run([PrivateRow(row.text, row.label) for row in rows], noise)


class EveryLabel(LabelHistogram):
    """The mutant: a person counts once for each label they have."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        found = {(row.person, row.label): PrivateRow(row.text, row.label) for row in rows}
        return super().run(list(found.values()), noise)


class FirstRow(LabelHistogram):
    """The mutant: the row that stands first counts."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        found = {row.person: PrivateRow(row.text, row.label) for row in reversed(rows)}
        return super().run(list(found.values()), noise)


@dataclass
class Replay:
    """Records what the mechanism is given and answers without noise."""

    inputs: list[tuple[list[int], float]]

    def __call__(self, counts: Sequence[int], sigma: float) -> list[int]:
        self.inputs.append((list(counts), sigma))
        return list(counts)

    def of(self, query: LabelHistogram, rows: Sequence[PrivateRow]) -> list[tuple[list[int], float]]:
        self.inputs.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queries, "discrete_gaussian", self)
            query.run(rows, NoiseSource())
        return list(self.inputs)


@pytest.fixture(scope="module")
def replay() -> Replay:
    return Replay([])


def sensitivity(replay: Replay, query: LabelHistogram, rows: Sequence[PrivateRow], extra: PrivateRow) -> float:
    """The L2 distance of all mechanism inputs with and without one row; infinite where anything public differs."""
    without, having = replay.of(query, rows), replay.of(query, [*rows, extra])
    public = [[(len(counts), sigma) for counts, sigma in calls] for calls in (without, having)]
    if public[0] != public[1]:
        return float("inf")
    gaps = [np.subtract(left, right) for (left, _), (right, _) in zip(without, having, strict=True)]
    return float(np.sqrt(sum(np.sum(gap**2) for gap in gaps)))


@given(st.lists(ROWS, max_size=8), ROWS)
def test_one_record_moves_the_histogram_by_at_most_one(replay, rows, extra):
    assert sensitivity(replay, LabelHistogram(LABELS, 2.0), rows, extra) == (1.0 if extra.label in LABELS else 0.0)


def test_duplicates_and_a_single_label_change_nothing_of_that(replay):
    rows = [PrivateRow("same", "refund")] * 50
    assert sensitivity(replay, LabelHistogram(LABELS, 2.0), rows, rows[0]) == 1.0
    assert sensitivity(replay, LabelHistogram(("refund",), 2.0), [], rows[0]) == 1.0


@pytest.mark.parametrize("mutant", [TwoVotes, DataSized])
def test_the_check_catches_mutants(replay, mutant):
    assert sensitivity(replay, mutant(LABELS, 2.0), [], PrivateRow("text", "outage")) > 1.0


@pytest.mark.parametrize("mutant", [TwoVotes, DataSized])
def test_no_subclass_is_admitted_with_its_class(mutant):
    assert is_registered(LabelHistogram(LABELS, 2.0))
    assert not is_registered(mutant(LABELS, 2.0))


def test_the_mechanism_is_asked_once_with_the_declared_scale(replay):
    calls = replay.of(LabelHistogram(LABELS, 2.5), [PrivateRow("text", "outage")])
    assert calls == [([0, 1, 0], 2.5)]
    assert LabelHistogram(LABELS, 2.5).event() == DiscreteGaussianDpEvent(2.5)


def test_without_noise_the_event_says_so():
    exact = LabelHistogram(LABELS, 0.0)
    assert isinstance(exact.event(), dpa.NonPrivateDpEvent)
    assert exact.run([PrivateRow("text", "praise")], NoiseSource()) == {"refund": 0, "outage": 0, "praise": 1}


def test_the_real_mechanism_adds_noise():
    answers = [LabelHistogram(LABELS, 50.0).run([], NoiseSource()) for _ in range(5)]
    assert len({tuple(answer.values()) for answer in answers}) == 5
    assert all(list(answer) == list(LABELS) for answer in answers)


def test_a_label_named_twice_is_refused():
    with pytest.raises(ValueError, match="differ"):
        LabelHistogram(("refund", "refund"), 1.0)


# Persons.

KINDS = [("one", "refund"), ("two", "refund"), ("one", "outage"), ("three", "outage"), ("one", "unheard of")]


def counted(rows: Sequence[PrivateRow], kind: type[LabelHistogram] = LabelHistogram) -> tuple[int, ...]:
    return tuple(kind(("refund", "outage"), 0.0).run(rows, NoiseSource()).values())


def one_person_moves_one_count_by_one(kind: type[LabelHistogram], most: int, persons: int) -> bool:
    """In every small data set, a person in every label among them; and whatever the order of the rows."""
    answers = {data: counted(rows_in(data), kind) for data in data_sets(KINDS, most, persons)}
    return all(
        sum(abs(new - old) for new, old in zip(answer, answers[other], strict=True)) <= 1
        for data, answer in answers.items()
        for other in neighbours(data)
    ) and all(counted(rows_in(data, backwards=True), kind) == answer for data, answer in answers.items())


@pytest.mark.parametrize(("most", "persons"), [(2, 3), (3, 2)])
def test_one_person_moves_one_count_by_one_in_every_small_data_set(most, persons):
    assert one_person_moves_one_count_by_one(LabelHistogram, most, persons)


@pytest.mark.parametrize("mutant", [EveryRow, EveryLabel, FirstRow])
def test_the_check_of_persons_catches_mutants(mutant):
    assert not one_person_moves_one_count_by_one(mutant, 2, 2)


def test_persons_of_one_row_count_as_records_do():
    assert all(counted(rows_in(data)) == counted(records_in(data)) for data in data_sets(KINDS, 1))


def test_every_person_counts_where_all_their_labels_are_known():
    known = [kind for kind in KINDS if kind[1] != "unheard of"]
    assert all(sum(counted(rows_in(data))) == sum(map(bool, data)) for data in data_sets(known, 2))


def test_its_class_bounds_persons():
    assert is_for_persons(LabelHistogram(LABELS, 2.0))
