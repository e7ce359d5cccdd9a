"""A person with several rows moves what one record may: enumerated, and replayed with and without the whole person."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.prediction.cells import Cells
from palimpsest.prediction.mechanism import Clipping, SparseVector, averaged_sum, grid, probabilities
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy.query import is_for_persons
from palimpsest.privacy.rows import PrivateRow, select_one_each
from palimpsest_lab.shots import WriteShots
from tests.prediction.laws import CLIPPINGS, PALETTE, PUBLIC, holds, law_of_persons, over
from tests.prediction.test_replay import KINDS, LAST_STEP, cell_of, replay
from tests.prediction.world import FIXED, LABELS, ROWS, VECTOR, claimed, wave

Persons = Sequence[torch.Tensor]
ALL = torch.ones(4, dtype=torch.bool)


# The draw, enumerated.


def persons() -> list[torch.Tensor]:
    """Every person of one or two contexts of the palette, and one of three."""
    lists = [rows for size in (1, 2) for rows in combinations_with_replacement(range(len(PALETTE)), size)]
    return [PALETTE[list(rows)] for rows in [*lists, (1, 1, 1)]]


def neighbouring() -> Iterator[tuple[Persons, torch.Tensor]]:
    """The persons of a batch, and one who may join it."""
    batches: list[list[torch.Tensor]] = [[], *([own] for own in persons()[::5])]
    yield from product(batches, persons())


def counted_whole(clipping: Clipping, batch: Persons, public: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """The mutant: every context of a person adds as much as a record does."""
    return law_of_persons(clipping, [row[None] for own in batch for row in own], public, allowed)


def refuted(clipping: Clipping, found=law_of_persons) -> bool:
    return any(
        not holds(clipping, found(clipping, batch, PUBLIC, ALL), found(clipping, [*batch, extra], PUBLIC, ALL))
        for batch, extra in neighbouring()
    )


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_one_person_changes_the_draw_no_more_than_is_claimed_in_every_small_batch(clipping: Clipping) -> None:
    assert not refuted(clipping)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_contexts_that_count_whole_are_refuted(clipping: Clipping) -> None:
    assert refuted(clipping, counted_whole)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_a_person_adds_the_mean_of_what_each_context_would_add(clipping: Clipping) -> None:
    """Clipped before they are averaged; one whose logits are no numbers adds nothing and the others what they do."""
    for own in persons():
        parts = clipping.contributions(own, PUBLIC).double()
        whole = averaged_sum(parts, torch.full((len(own),), len(own)), clipping.clip)
        torch.testing.assert_close(whole, parts.mean(dim=0), rtol=0, atol=4 * grid(clipping.clip))
        wanted = over(clipping.scores(parts.mean(dim=0), PUBLIC), torch.arange(4), 4)
        if torch.equal(clipping.candidates(PUBLIC, ALL), ALL):
            torch.testing.assert_close(law_of_persons(clipping, [own], PUBLIC, ALL), wanted, rtol=0, atol=1e-6)


# The sparse vector's distance, enumerated.


def far(batch: Persons, public: torch.Tensor, whole: bool = False) -> float:
    logits = torch.cat([torch.zeros(0, len(public)), *batch])
    contexts = torch.tensor([1 if whole else len(own) for own in batch for _ in own], dtype=torch.long)
    return SparseVector(0.5, 0.2, 2).distance(averaged_sum(probabilities(logits), contexts, 1.0), probabilities(public))


def test_one_person_moves_the_distance_by_at_most_one_over_s_in_every_small_batch() -> None:
    found = [abs(far([*batch, extra], PUBLIC) - far(batch, PUBLIC)) for batch, extra in neighbouring()]
    assert 0.9 / 2 < max(found) <= 1 / 2 + LAST_STEP


def test_probabilities_that_are_summed_within_a_person_are_refuted() -> None:
    found = [abs(far([*batch, extra], PUBLIC, True) - far(batch, PUBLIC, True)) for batch, extra in neighbouring()]
    assert max(found) > 1.05 / 2


# Sums are exact.

ANY_VALUES = st.tuples(st.integers(1, 9), st.integers(1, 5), st.floats(2**-10, 50)).flatmap(
    lambda case: st.tuples(
        arrays(np.float32, case[:2], elements=st.floats(-1, 1, width=32)).map(
            lambda found: found * np.float64(case[2])
        ),
        arrays(np.int64, case[0], elements=st.integers(1, 16)),
        st.just(case[2]),
    )
)


@settings(deadline=None)
@given(ANY_VALUES, st.randoms(use_true_random=False), st.integers(0, 9))
def test_no_order_of_a_sum_shows_in_any_bit(case, random, cut) -> None:
    values, contexts, bound = torch.from_numpy(case[0]), torch.from_numpy(case[1]), case[2]
    order = list(range(len(values)))
    random.shuffle(order)
    whole = averaged_sum(values, contexts, bound)
    assert torch.equal(averaged_sum(values[order], contexts[order], bound), whole)
    parts = [averaged_sum(values[part], contexts[part], bound) for part in (slice(0, cut), slice(cut, None))]
    assert torch.equal(parts[0] + parts[1], whole)


@settings(deadline=None)
@given(ANY_VALUES)
def test_a_person_never_adds_more_than_the_bound(case) -> None:
    values, bound = torch.from_numpy(case[0]), case[2]
    contexts = torch.full((len(values),), len(values))
    assert float(averaged_sum(values, contexts, bound).abs().max()) <= bound
    assert (
        float(averaged_sum(torch.full((16, 1), bound, dtype=torch.float64), torch.full((16,), 16), bound).abs().max())
        <= bound
    )


@pytest.mark.parametrize("tokens", [2, 3, 270, 50_257])
def test_probabilities_of_a_person_never_pass_one(tokens: int) -> None:
    generator = torch.Generator().manual_seed(tokens)
    for spread in (0.0, 1e-3, 1.0, 10.0):
        logits = torch.randn(3, tokens, generator=generator) * spread
        assert float(averaged_sum(probabilities(logits), torch.full((3,), 3), 1.0).sum()) <= 1.0
        assert float(averaged_sum(probabilities(logits[:1]), torch.ones(1, dtype=torch.long), 1.0).sum()) <= 1.0


# The batch of a person.

NAMED = st.builds(PrivateRow, st.text(max_size=4), st.sampled_from(["a", "b", "unheard of", None]), st.just("5a" * 32))


@settings(deadline=None)
@given(st.lists(NAMED, min_size=1, max_size=6), st.binary(min_size=32, max_size=32))
def test_a_person_is_in_one_batch_of_one_label_whatever_labels_the_rows_have(own, key) -> None:
    cells = Cells({"a": 3, "b": 5}, {"a": 2, "b": 5}, key)
    (standing,), found = select_one_each(own), cells.of(own)
    if found is None:
        assert standing.label not in cells.counts or standing.label == "a"
        return
    assert cells.labels[found[0]] == standing.label
    assert found[1] == [row for row in own if row.label == standing.label]
    other = replace(standing, text=f"{standing.text} again")  # the batch follows from the id, not from the row
    again = cells.of([other])
    assert again is not None
    assert again[0] == found[0]


def test_without_labels_all_rows_of_a_person_are_contexts() -> None:
    own = [PrivateRow(text, label, "5a" * 32) for text, label in (("one", None), ("two", "free"), ("three", "free"))]
    assert Cells({"": 4}, {"": 4}, bytes(32)).of(own) == (Cells({"": 4}, {"": 4}, bytes(32)).of(own[:1])[0], own)  # type: ignore[index]


# Replay.


def named(number: int) -> str:
    return f"{number:064x}"


AUTHORS = [replace(row, person=named(number % 7)) for number, row in enumerate(ROWS)]
PERSONS = {
    "one row": [PrivateRow("The stove smokes.", "praise")],
    "rows of one label": [
        PrivateRow(f"The stove {verb}.", "praise") for verb in ("smokes", "roars", "is cold", "glows")
    ],
    "the same row again": [PrivateRow("The stove smokes.", "praise")] * 3,
    "rows of another's": [row for row in AUTHORS if row.person == named(3)],
    "in every label": [PrivateRow(f"The {thing}.", label) for thing in ("stove", "oven", "pan") for label in LABELS],
    "partly without label": [
        PrivateRow("The stove.", label) for label in ("praise", "a question", None, "a complaint")
    ],
    "very long and empty": [PrivateRow(text, "a complaint") for text in ("", "a long text about nothing " * 30)],
}
DATA = {"authors": AUTHORS, "none": [], "records": ROWS}


def joined(rows: Sequence[PrivateRow], extra: str) -> tuple[list[PrivateRow], list[PrivateRow]]:
    """The person's rows, and the data set with them spread over it."""
    own, found = [replace(row, person="c0" * 32) for row in PERSONS[extra]], list(rows)
    for number, row in enumerate(own):
        found.insert(5 * number % (len(found) + 1), row)
    return own, found


def furthest(kind: str, data: str, extra: str) -> tuple[float, float, float]:
    """How far the person moves the scores of their own batch, those of all others, and the distances of their own."""
    query = wave(tokens=5, **KINDS[kind])
    own, rows = joined(DATA[data], extra)
    (before, one, first), (after, two, second) = replay(DATA[data], query), replay(rows, query)
    assert (before, one) == (after, two)
    assert [event for event, _ in first.events] == [event for event, _ in second.events]
    place, moved = cell_of(query, *own), [0.0, 0.0, 0.0]
    for (batch, old), (same, new) in zip(first.draws(), second.draws(), strict=True):
        assert batch == same
        moved[batch != place] = max(moved[batch != place], float((old - new).abs().max()))
    for (batch, old_far), (_, new_far) in zip(first.distances(), second.distances(), strict=True):
        where = 2 if batch == place else 1
        moved[where] = max(moved[where], abs(old_far - new_far))
    return moved[0], moved[1], moved[2]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("extra", PERSONS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_person_moves_their_own_batch_by_at_most_the_sensitivity(kind: str, extra: str, data: str) -> None:
    own, others, distance = furthest(kind, data, extra)
    assert own <= claimed(wave(**KINDS[kind]).rules.clipping) + LAST_STEP
    assert distance <= 1.0 / VECTOR.batch_size + LAST_STEP
    assert others == 0.0


@pytest.mark.parametrize("kind", ["fixed", "difference"])
def test_the_sensitivity_is_nearly_met(kind: str) -> None:
    """So a person whose contributions were a little too large would show."""
    assert furthest(kind, "none", "the same row again")[0] > 0.95 * claimed(wave(**KINDS[kind]).rules.clipping)


def test_a_person_in_every_label_is_in_one_batch() -> None:
    own, _ = joined([], "in every label")
    (standing,) = select_one_each(own)
    texts = {tuple(scores.tolist()) for _, scores in replay(own, wave(tokens=1, clipping=FIXED))[2].draws()}
    assert len(texts) == 2  # one batch has contexts, the others all have none
    found = wave().cells.of(own)
    assert found is not None
    assert {row.label for row in found[1]} == {standing.label}


def test_a_person_adds_the_mean_of_what_their_rows_would_add_alone() -> None:
    """Through the model: the scores of the first draw are those of the rows as records of their own, averaged."""
    own, _ = joined([], "rows of one label")
    query = wave(tokens=1, clipping=FIXED)
    place = cell_of(query, *own)

    def scores(rows: Sequence[PrivateRow]) -> torch.Tensor:
        return next(found for batch, found in replay(rows, query)[2].draws() if batch == place)

    alone = torch.stack([scores([row]) for row in own])
    torch.testing.assert_close(scores(own), alone.mean(dim=0), rtol=0, atol=1e-8)
    assert not torch.allclose(alone[0], alone[1], atol=1e-3)


def test_the_queries_answer_for_persons() -> None:
    assert is_for_persons(wave())
    assert all(is_for_persons(object.__new__(kind)) for kind in (WriteWave, WriteShots))
