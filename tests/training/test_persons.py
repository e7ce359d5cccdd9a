"""A person is one unit: one coin, one clip, and a share of at most C, however many rows they have.

Neighbouring data sets differ by a whole person. The checks are functions of nothing, so that they also run on code with
one fault.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import is_for_persons
from palimpsest.privacy.rows import PrivateRow
from palimpsest.training.batches import bucket, micro_batches
from tests.training.test_dpsgd import NEIGHBOURS, VOCABULARY, Replay, Tied, make_plan, make_query

Unit = list[PrivateRow]
PERSON = ("joint", "rows")
C = 0.5


def person(name: str, *texts: str) -> Unit:
    """All rows of one person, with labels that alternate."""
    return [PrivateRow(text, "ab"[index % 2], name) for index, text in enumerate(texts)]


def widths(rows: Sequence[PrivateRow]) -> list[int]:
    return [bucket(len(row.text), 24) for row in rows]


def encode(rows: Sequence[PrivateRow]) -> torch.Tensor:
    """(B, T) ids of the characters, each row padded to its bucket; 0 pads."""
    width = max(widths(rows))
    ids = [[ord(character) % VOCABULARY for character in row.text[:width]] for row in rows]
    return torch.tensor([line + [0] * (width - len(line)) for line in ids])


def own_tokens(model: Tied, ids: torch.Tensor) -> tuple[torch.Tensor]:
    """Each token's own logit; padding counts for nothing, for a person's rows are padded to the longest of them."""
    own = model(ids).gather(2, ids[..., None])[..., 0] * (ids != 0)
    factors = torch.ones(len(ids), dtype=torch.float64)
    for mark, factor in (("~", math.nan), ("+", 1e6)):
        factors = factors.masked_fill((ids == ord(mark) % VOCABULARY).any(1), factor)
    return (factors * own.sum(1),)


def twice(model: Tied, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return own_tokens(model, ids)[0], 3.0 * own_tokens(model, ids)[0]


BASE = [
    *person("ann", "abc", "a longer one, of two"),
    *person("bob", "zz"),
    *person("eve", *["abcdefgh" * (1 + index % 3) for index in range(5)]),
]
ADDED = {name: person("zoe", text) for name, text in NEIGHBOURS.items()} | {
    "three alike": person("zoe", "hello", "hello", "hello"),
    "buckets": person("zoe", "a", "b" * 12, "c" * 20, "d" * 24, "e"),
    "one row is not a number": person("zoe", "abc", "~", "de"),
    "one row is an outlier": person("zoe", "abc", "+", "de"),
    "all rows are outliers": person("zoe", *["+" * length for length in (1, 2, 9, 17, 24, 3, 4)]),
    "sixteen": person("zoe", *["+ab" * (1 + index % 7) for index in range(16)]),
}


def sums(rows: Sequence[PrivateRow], clipping: str, how: str, micro_batch: int = 4) -> tuple[Replay, torch.Tensor]:
    """What the mechanisms of one step were given: (passes, weights)."""
    losses, passes = (twice, 2) if clipping == "separate" else (own_tokens, 1)
    plan = make_plan(clipping_norm=C, clipping=clipping, losses=passes)
    source = Replay(plan)
    more = {"encode": encode, "widths": widths, "person": how, "micro_batch": micro_batch}
    make_query(plan, losses=losses, **more).run(rows, source)
    return source, torch.stack([total.flatten() for total in source.inputs])


def check_a_person_moves_a_sum_by_at_most_c() -> None:
    for how, clipping in itertools.product(PERSON, ("joint", "separate")):
        without = sums(BASE, clipping, how)[1]
        moves = [(sums([*BASE, *added], clipping, how)[1] - without).norm(dim=1).max() for added in ADDED.values()]
        assert max(moves) <= C * (1 + 1e-9)
        assert max(moves) >= 0.99 * C, "no neighbour reaches the bound: the check has no power"


def check_a_person_has_one_coin() -> None:
    for added in (person("zoe", *"abc"), person("zoe", "abc")):
        assert sums([*BASE, *added], "joint", "joint")[0].sizes == [4]
    assert sums([PrivateRow(row.text, row.label) for row in BASE], "joint", "joint")[0].sizes == [8]


def own_gradients(rows: Unit) -> torch.Tensor:
    """(rows, weights) float64: each row's gradient, by autograd alone."""
    model = Tied()
    found = [torch.autograd.grad(own_tokens(model, encode([row]))[0].sum(), model.table.weight)[0] for row in rows]
    return torch.stack([gradient.flatten() for gradient in found])


def clipped(gradients: torch.Tensor) -> torch.Tensor:
    return gradients * (C / gradients.norm(dim=-1, keepdim=True)).clamp(max=1.0)


def check_a_person_adds_what_is_defined() -> None:
    for added in (ADDED["buckets"], ADDED["three alike"], ADDED["sixteen"], ADDED["one more"]):
        gradients = own_gradients(added)
        expected = {"joint": clipped(gradients.mean(0)), "rows": clipped(gradients).mean(0)}
        for how in PERSON:
            moved = (sums([*BASE, *added], "joint", how)[1] - sums(BASE, "joint", how)[1])[0]
            assert (moved - expected[how]).norm() <= 1e-9 * C


CHECKS = [check_a_person_moves_a_sum_by_at_most_c, check_a_person_has_one_coin, check_a_person_adds_what_is_defined]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_holds(check):
    check()


def test_it_is_marked_for_persons():
    assert is_for_persons(make_query(make_plan()))


@pytest.mark.parametrize("how", PERSON)
def test_a_person_of_one_row_is_a_record(how):
    texts = ("abc", "+", "a longer one", "", "b" * 24)
    records = sums([PrivateRow(text, "a") for text in texts], "joint", "joint")[1]
    persons = sums([PrivateRow(text, "a", str(index)) for index, text in enumerate(texts)], "joint", how)[1]
    assert torch.equal(records, persons)


@pytest.mark.parametrize("how", PERSON)
def test_the_order_of_the_rows_and_the_size_of_a_micro_batch_say_nothing(how):
    rows = [*BASE, *ADDED["buckets"]]
    whole = sums(rows, "joint", how, micro_batch=32)[1]
    for micro_batch in (1, 2, 4, 8):
        other = sums(rows[::-1], "joint", how, micro_batch)[1]
        torch.testing.assert_close(other, whole, rtol=1e-12, atol=1e-12)


def test_a_reference_without_a_person_in_the_batch_is_a_step():
    plan = make_plan(rate=1e-12, steps=2)
    source = Replay(plan)
    make_query(plan, encode=encode, widths=widths).run(BASE, source)
    assert source.sizes == [3, 3]
    assert all(total.eq(0).all() for total in source.inputs)


texts = st.text(st.sampled_from("ab+"), max_size=26)
people = st.lists(st.lists(texts, min_size=1, max_size=9), min_size=1, max_size=9)


@settings(max_examples=200, deadline=None)
@given(others=people, own=st.lists(texts, min_size=1, max_size=9), size=st.integers(1, 9), how=st.sampled_from(PERSON))
def test_what_stands_for_a_person_depends_on_that_person_alone(others, own, size, how):
    mine = person("zoe", *own)
    units = [person(str(index), *rows) for index, rows in enumerate(others)]
    together, alone = (list(micro_batches(found, size, how, widths)) for found in ([*units, mine], [mine]))
    assert clippings(together, "zoe") == clippings(alone, "zoe")
    weights = [weight for _, _, weight in clippings(alone, "zoe")]
    assert math.fsum(weights) <= 1 + 1e-12
    counted = sum(1 for part in together for share, weight in shared(part) if share and weight)
    assert counted == sum(map(len, units)) + len(own)


def shared(part) -> list[tuple[float, float]]:
    return [(share, weight) for shares, weight in zip(part.shares, part.weights, strict=True) for share in shares]


def clippings(parts, name: str) -> list[tuple]:
    """Shape of the micro-batch, rows with their shares, weight: of each clipping of one person."""
    found = []
    for part in parts:
        shape = len(part.rows), part.group, max(widths(part.rows))
        for place, weight in enumerate(part.weights.tolist()):
            rows = part.rows[place * part.group : (place + 1) * part.group]
            assert len({row.person for row in rows}) == 1, "a clipping mixes persons"
            if rows[0].person == name and weight:
                kept = tuple(zip([row.text for row in rows], part.shares[place].tolist(), strict=True))
                found.append((shape, kept, weight))
    return sorted(found)


def test_every_bucket_holds_what_it_is_for():
    found = [bucket(length, 100) for length in range(110)]
    assert all(width >= length for length, width in enumerate(found))
    assert found == sorted(found)
    assert sorted({bucket(length, 10**9) for length in range(200)}) == [8, 16, 24, 32, 48, 64, 96, 128, 192, 256]


def test_persons_join_independently_at_the_planned_rate():
    rate, steps = 0.3, 400
    plan = make_plan(rate=rate, steps=steps, noise_multiplier=0.0)
    joined: list[set[str]] = []

    def noting(rows: Sequence[PrivateRow]) -> torch.Tensor:
        joined[-1] |= {row.person for row in rows}
        return encode(rows)

    class Counting(NoiseSource):
        def bernoulli(self, size: int, chance: float) -> np.ndarray:
            joined.append(set())
            return super().bernoulli(size, chance)

    make_query(plan, encode=noting, widths=widths).run(BASE, Counting())
    together = np.array([[name in step for name in ("ann", "bob", "eve")] for step in joined])
    spread = 5 * math.sqrt(rate * (1 - rate) / steps)
    assert np.abs(together.mean(0) - rate).max() <= spread
    assert np.abs(np.corrcoef(together.T) - np.eye(3)).max() <= 5 / math.sqrt(steps)
