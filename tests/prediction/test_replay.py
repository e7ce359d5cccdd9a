"""Record replay: the same run with and without one record, while what the mechanisms give back is frozen.

What they are given then differs by at most the declared sensitivity, in the record's own batch alone, and everything
public is equal.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from palimpsest.models.grammar import Grammar
from palimpsest.prediction.mechanism import SparseVector
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.conformity import conforms
from palimpsest.records.structured import members_of
from tests.prediction.tiny import tokenizer
from tests.prediction.world import DIFFERENCE, EXTRAS, FIXED, ROWS, VECTOR, Counted, Frozen, claimed, freeze, wave

LAST_STEP = 1e-12  # of float64, where a sum that is exact becomes a score
DATA = {
    "mixed": ROWS,
    "one label": [row for row in ROWS if row.label == "praise"],
    "few": ROWS[:2],
    "none": [],
    "all the same": [ROWS[0]] * 5,
}
KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"clipping": FIXED},
    "difference": {"clipping": DIFFERENCE},
    "sparse vector": {"clipping": FIXED, "vector": VECTOR},
}
FILM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["title"],
}
RECORDS = {
    "clipping": DIFFERENCE, "vector": VECTOR, "grammar": Grammar(tokenizer(), FILM, len(tokenizer())), "longest": 40,
    "most": 80,
}  # fmt: skip


def replay(rows: Sequence[PrivateRow], query: WriteWave) -> tuple[Any, Counted, Frozen]:
    """The answer, the meter and what the mechanisms were given."""
    meter = Counted(query.steps)
    with pytest.MonkeyPatch.context() as patch:
        frozen = freeze(patch)
        answer = query.run_steps(rows, NoiseSource(0), meter)
    return answer, meter, frozen


@cache
def without(kind: str, data: str) -> tuple[Any, Counted, Frozen]:
    """The run that others are compared with."""
    return replay(DATA[data], query_of(kind))


def query_of(kind: str) -> WriteWave:
    return wave(tokens=6, **(KINDS | {"records": RECORDS})[kind])


def cell_of(query: WriteWave, *own: PrivateRow) -> int | None:
    """The batch of one unit of privacy, by its rows."""
    found = query.cells.of(own)
    return None if found is None else found[0]


def furthest(kind: str, data: str, extra: PrivateRow) -> tuple[float, float]:
    """How far the record moves the scores of its own batch, and those of all others; what is public is equal."""
    rows, query = DATA[data], query_of(kind)
    place = len(rows) // 2
    before, one, first = without(kind, data)
    after, two, second = replay([*rows[:place], extra, *rows[place:]], query)
    assert (before, one) == (after, two)
    assert [kind for kind, _ in first.events] == [kind for kind, _ in second.events]
    own, moved = cell_of(query, extra), [0.0, 0.0]
    for (batch, old), (same, new) in zip(first.draws(), second.draws(), strict=True):
        assert batch == same
        assert old.shape == new.shape
        moved[batch != own] = max(moved[batch != own], float((old - new).abs().max()))
    for (rounds_of, far), (_, near) in zip(first.distances(), second.distances(), strict=True):
        assert abs(far - near) <= (1.0 / VECTOR.batch_size + LAST_STEP if rounds_of == own else 0.0)
    return moved[0], moved[1]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("kind", [*KINDS, "records"])
def test_one_record_moves_its_own_batch_by_at_most_the_sensitivity(kind: str, extra: str, data: str) -> None:
    own, others = furthest(kind, data, EXTRAS[extra])
    assert own <= claimed(query_of(kind).rules.clipping) + LAST_STEP
    assert others == 0.0


@pytest.mark.parametrize("kind", ["fixed", "difference"])
def test_the_sensitivity_is_nearly_met(kind: str) -> None:
    """So contributions that were a little too large would show."""
    assert furthest(kind, "mixed", EXTRAS["ordinary"])[0] > 0.95 * claimed(query_of(kind).rules.clipping)


def test_a_record_of_no_batch_moves_nothing_at_all() -> None:
    for extra in ("unknown label", "no label"):
        assert furthest("fixed", "mixed", EXTRAS[extra]) == (0.0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_order_of_rows_shows(kind: str) -> None:
    (before, one, first), (after, two, second) = without(kind, "mixed"), replay(ROWS[::-1], query_of(kind))
    assert (before, one) == (after, two)
    for (_, old), (_, new) in zip(first.draws(), second.draws(), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("micro_batch", [1, 2, 100])
def test_no_size_of_forward_passes_shows(micro_batch: int) -> None:
    first, second = (replay(ROWS, wave(clipping=DIFFERENCE, micro_batch=size))[2] for size in (3, micro_batch))
    for (_, old), (_, new) in zip(first.draws(), second.draws(), strict=True):
        torch.testing.assert_close(old, new, atol=1e-5, rtol=1e-5)


def test_candidates_are_bit_for_bit_the_same_whatever_the_private_rows(monkeypatch) -> None:
    """Public logits that private rows round otherwise could tip a token over the bar of top-k+."""
    seen: list[list[torch.Tensor]] = []
    original = type(DIFFERENCE).candidates

    def noted(self, public: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        seen[-1].append(public.clone())
        return original(self, public, allowed)

    monkeypatch.setattr(type(DIFFERENCE), "candidates", noted)
    for rows in (ROWS, [*ROWS, EXTRAS["very long"]], ROWS[1:], []):
        seen.append([])
        replay(rows, wave(clipping=DIFFERENCE))
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("most", [9, 40])
def test_tokens_are_what_the_rules_allow(most: int) -> None:
    answer, _, frozen = replay(ROWS, wave(vector=VECTOR, tokens=7, most=most))
    batches = [batch for batch, _ in frozen.draws()]
    assert [batches.count(batch) for batch in range(4)] == [batch["private"] for batch in answer]
    assert len(batches) == sum(batch["drawn"] for batch in answer) > sum(batch["private"] for batch in answer)
    for batch in answer:
        assert batch["private"] == 7 or batch["drawn"] == most
        assert batch["private"] <= 7
    assert [batch["label"] for batch in answer] == ["praise", "praise", "a complaint", "a complaint"]


def test_every_round_has_a_threshold_of_its_own(monkeypatch) -> None:
    """It is drawn anew behind each private token, and not before: a token that passed costs nothing."""
    given: list[float] = []

    def numbered(_self: SparseVector, _source: NoiseSource) -> float:
        given.append(float(len(given)))
        return given[-1]

    compared: list[float] = []
    monkeypatch.setattr(SparseVector, "new_threshold", numbered)
    frozen = freeze(monkeypatch)

    def noted(_self: SparseVector, distance: float, threshold: float, _source: NoiseSource) -> bool:
        compared.append(threshold)
        return frozen.passes(distance)

    monkeypatch.setattr(SparseVector, "passes", noted)
    query = wave(vector=VECTOR, first=0, last=1)
    query.run_steps(ROWS, NoiseSource(0), Counted(query.steps))
    private = [batch is not None for batch, _ in frozen.draws()]
    assert compared == [float(sum(private[:place])) for place in range(len(private))]
    assert not all(private)


@pytest.mark.parametrize("kind", KINDS)
def test_no_example_begins_with_its_end(kind: str) -> None:
    """With two words and the end allowed, the first draw of an example is between the words."""
    three = torch.zeros(len(tokenizer()), dtype=torch.bool).index_fill(0, torch.tensor([0, 70, 71]), True)
    answer, _, frozen = replay(ROWS, wave(**KINDS[kind], allowed=three, first=0, last=1, longest=1))
    assert {len(scores) for _, scores in frozen.draws()} == {2}
    assert all(answer[0]["examples"])
    _, _, frozen = replay(ROWS, wave(**KINDS[kind], allowed=three, first=0, last=1, longest=9))
    assert [len(scores) for _, scores in frozen.draws()][:2] == [2, 3]


def test_what_a_schema_leaves_no_choice_of_is_free_and_reads_nothing() -> None:
    answer, _, frozen = replay(ROWS, query_of("records"))
    drawn, private = (sum(batch[key] for batch in answer) for key in ("drawn", "private"))
    assert private == sum(batch is not None for batch, _ in frozen.draws())
    assert drawn > len(frozen.draws())
    assert all(len(scores) > 1 for _, scores in frozen.draws())
    summed = [kind for kind, _ in frozen.events if kind == "sum"]
    assert len(summed) == private + len(frozen.distances())


def test_what_is_written_by_a_schema_conforms() -> None:
    answer = wave(**RECORDS | {"tokens": 60, "most": 200}).run_steps(ROWS, NoiseSource(0), Counted(60))
    written = [text for batch in answer for text in batch["examples"]]
    assert len(written) >= 8
    assert all(map(conforms(FILM), map(members_of, written)))


def test_the_meter_counts_ahead_in_strides() -> None:
    assert replay(ROWS, wave(tokens=7))[1].asked == [3, 3, 1]
    assert replay(ROWS, wave(tokens=7, stride=100))[1].asked == [7]
    assert replay(ROWS, wave(tokens=2, stride=1))[1].asked == [1, 1]


def test_a_wave_of_some_batches_is_that_part_of_all() -> None:
    """Its own contexts alone stand behind each batch."""
    whole = replay(ROWS, wave(tokens=1))[2].draws()
    for batch in range(4):
        ((_, scores),) = replay(ROWS, wave(tokens=1, first=batch, last=batch + 1))[2].draws()
        torch.testing.assert_close(scores, whole[batch][1], atol=1e-5, rtol=1e-5)
    assert replay(ROWS, wave(first=4, last=4))[0] == []
