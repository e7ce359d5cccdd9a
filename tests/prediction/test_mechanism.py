"""The token mechanism, enumerated: what one record does to the distribution of a drawn token, and nothing sampled."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from palimpsest.prediction.mechanism import (
    Clipping,
    DifferenceClipping,
    FixedClipping,
    SparseVector,
    clamp_values,
    draw,
    laplace,
    probabilities,
    token_rho,
)
from palimpsest.privacy.entropy import NoiseSource
from tests.prediction.laws import ALMOST, CLIPPINGS, PUBLIC, enumerated, holds, law, neighbours, over, refuted

FIXED = tuple(clipping for clipping in CLIPPINGS if isinstance(clipping, FixedClipping))
DIFFERENCE = tuple(clipping for clipping in CLIPPINGS if isinstance(clipping, DifferenceClipping))


# One record.


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_one_record_changes_the_draw_no_more_than_is_claimed_in_every_small_batch(clipping: Clipping) -> None:
    assert not refuted(enumerated(clipping))


NUMBERS = st.floats(-60, 60, width=32) | st.sampled_from([math.inf, -math.inf, math.nan, 3e38, -3e38])
CLIPS = st.floats(2**-6, 32, width=32)  # exact in float32
BATCHES = st.tuples(st.integers(1, 7), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float32, shape, elements=NUMBERS),
        arrays(np.float32, shape[1], elements=st.floats(-40, 40, width=32)),
    )
)
MECHANISMS = st.one_of(
    st.builds(FixedClipping, CLIPS, st.floats(0.1, 4.0), st.integers(1, 12)),
    st.builds(DifferenceClipping, CLIPS, st.floats(0.1, 4.0), st.integers(1, 12), st.integers(0, 10)),
)


@settings(deadline=None, max_examples=100)
@given(BATCHES, MECHANISMS)
def test_one_record_changes_the_draw_no_more_than_is_claimed(batch, clipping) -> None:
    rows, public = (torch.from_numpy(part) for part in batch)
    assert holds(clipping, *neighbours(law, rows[1:], rows[0], public, clipping))


@settings(deadline=None, max_examples=100)
@given(BATCHES, MECHANISMS, st.floats(2**-10, 64))
def test_a_contribution_never_passes_its_clip_whatever_the_logits(batch, clipping, clip) -> None:
    """Clips that float32 has no number for, too."""
    rows, public = (torch.from_numpy(part) for part in batch)
    found = replace(clipping, clip=clip).contributions(rows, public)
    assert found.shape == rows.shape
    assert float(found.double().abs().max()) <= clip * ALMOST


@pytest.mark.parametrize("clip", [0.1, 0.7, 1 / 3, 2.3, 10.1])
def test_bounded_is_bounded_where_float32_rounds_up(clip: float) -> None:
    assert float(clamp_values(torch.tensor([1e9, -1e9]), clip).double().abs().max()) <= clip * ALMOST


def test_what_is_no_number_counts_nothing() -> None:
    assert clamp_values(torch.tensor([math.nan, math.inf, -math.inf, 0.25]), 1.0).tolist() == [0.0, 1.0, -1.0, 0.25]
    assert probabilities(torch.tensor([[math.nan, 1.0], [0.0, 0.0]])).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    for clipping in CLIPPINGS:
        assert not clipping.contributions(torch.full((1, 4), math.nan), PUBLIC).any()


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_contexts_are_clipped_row_by_row(clipping: Clipping) -> None:
    rows = torch.randn(9, 4) * 5
    together = clipping.contributions(rows, PUBLIC)
    assert torch.equal(together, torch.cat([clipping.contributions(row[None], PUBLIC) for row in rows]))


# Mutants: the checker must refute each.


def contributions_of(clipping, private, public, allowed):
    columns = clipping.candidates(public, allowed).nonzero().squeeze(1)
    return columns, public[columns], clipping.contributions(private[:, columns], public[columns]).double()


def divided_by_count(clipping, private, public, allowed):
    columns, chosen, parts = contributions_of(clipping, private, public, allowed)
    real = replace(clipping, batch_size=max(1, len(private)))
    return over(real.scores(parts.sum(dim=0), chosen), columns, len(public))


def divided_by_count_once_it_is_larger(clipping, private, public, allowed):
    columns, chosen, parts = contributions_of(clipping, private, public, allowed)
    real = replace(clipping, batch_size=max(clipping.batch_size, len(private)))
    return over(real.scores(parts.sum(dim=0), chosen), columns, len(public))


def clipped_after_averaging(clipping, private, public, allowed):
    mean = torch.nan_to_num(private).sum(dim=0, keepdim=True) / clipping.batch_size
    columns, chosen, parts = contributions_of(clipping, mean, public, allowed)
    return over(clipping.scores(parts[0] * clipping.batch_size, chosen), columns, len(public))


def unclipped(clipping, private, public, allowed):
    return law(replace(clipping, clip=1e6), private, public, allowed)


def shifted_after_the_clip(clipping, private, public, allowed):
    columns = clipping.candidates(public, allowed).nonzero().squeeze(1)
    raw = private[:, columns] - (public[columns] if clipping in DIFFERENCE else 0.0)
    cut = torch.nan_to_num(raw.clamp(-clipping.clip, clipping.clip), nan=0.0)
    parts = cut + torch.nan_to_num(raw - raw.amin(dim=1, keepdim=True), 0.0, 50.0, -50.0)
    return over(clipping.scores(parts.double().sum(dim=0), public[columns]), columns, len(public))


def doubled(clipping, private, public, allowed):
    columns, chosen, parts = contributions_of(clipping, private, public, allowed)
    return over(clipping.scores(2.0 * parts.sum(dim=0), chosen), columns, len(public))


def numbers_missing(clipping, private, public, allowed):
    """A context whose logits are no numbers is not made to add nothing."""
    columns, chosen, parts = contributions_of(clipping, private, public, allowed)
    holes = private[:, columns].isnan().any(dim=1, keepdim=True)
    return over(clipping.scores(parts.masked_fill(holes, math.nan).sum(dim=0), chosen), columns, len(public))


def top_k_of_private(clipping, private, public, allowed):
    whole = law(clipping, private, public, allowed)
    return whole.masked_fill(whole < whole.topk(2).values[-1], -torch.inf).log_softmax(dim=0)


def top_p_of_private(clipping, private, public, allowed):
    whole = law(clipping, private, public, allowed)
    order = whole.argsort(descending=True)
    before = whole[order].exp().cumsum(dim=0) - whole[order].exp()
    return whole.index_fill(0, order[before >= 0.9], -torch.inf).log_softmax(dim=0)


def candidates_near_private_scores(clipping, private, public, allowed):
    """Tokens that any private context finds likely join the public ones."""
    likely = (torch.nan_to_num(private) > 5.0).any(dim=0)
    return law(clipping, private, public, clipping.candidates(public, allowed) & (likely | (public > 0.9)))


MUTANTS = [
    divided_by_count, divided_by_count_once_it_is_larger, clipped_after_averaging, unclipped, shifted_after_the_clip,
    doubled, numbers_missing, top_k_of_private, top_p_of_private, candidates_near_private_scores,
]  # fmt: skip


@pytest.mark.parametrize("kind", [FIXED, DIFFERENCE], ids=["fixed", "difference"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_of_the_draw_are_refuted(mutant, kind) -> None:
    assert refuted(enumerated(*kind), mutant)


class WithoutTemperature(FixedClipping):
    """The mutant: rho of c / s, where scores are divided by s tau."""

    @property
    def rho(self) -> float:
        return 0.5 * self.sensitivity**2


class Halved(DifferenceClipping):
    """The mutant: a record is thought to move scores by half of what it does."""

    @property
    def sensitivity(self) -> float:
        return 0.5 * self.clip / self.batch_size


@pytest.mark.parametrize("mutant", [WithoutTemperature(0.5, 0.5, 2), Halved(3.0, 2.0, 2, 0)])
def test_mutants_of_the_claim_are_refuted(mutant: Clipping) -> None:
    assert refuted(enumerated(mutant))


def test_the_bound_is_nearly_met() -> None:
    """So the checker would see one that is a little too small."""
    clipping, two = FixedClipping(1.0, 1.0, 2), torch.ones(2, dtype=torch.bool)
    empty, one = (law(clipping, rows, torch.zeros(2), two) for rows in (torch.zeros(0, 2), torch.tensor([[5.0, -5.0]])))
    assert float((one - empty).max() - (one - empty).min()) == pytest.approx(2 * clipping.sensitivity)


# What the scores are.


def test_fixed_clipping_is_the_published_formula() -> None:
    clipping, logits = FixedClipping(10.0, 2.0, 3), torch.tensor([[3.0, -1.0, -40.0], [0.0, 7.0, 6.0]])
    wanted = torch.tensor([[10.0, 6.0, -10.0], [3.0, 10.0, 9.0]])
    assert torch.equal(clipping.contributions(logits, torch.zeros(3)), wanted)
    assert clipping.scores(wanted.sum(dim=0), torch.zeros(3)).tolist() == pytest.approx([13 / 6, 16 / 6, -1 / 6])
    assert (clipping.sensitivity, clipping.rho) == (pytest.approx(10 / 3), pytest.approx(0.5 * (10 / 6) ** 2))


@settings(deadline=None)
@given(arrays(np.float32, (1, 5), elements=st.floats(-6, 6, width=32)), st.floats(-30, 30, width=32))
def test_clipping_is_the_identity_up_to_a_shift_while_the_range_is_small(logits, shift) -> None:
    logits = torch.from_numpy(logits)
    for clipping in (FixedClipping(6.0, 1.0, 1), DifferenceClipping(6.0, 1.0, 1, 0)):
        found = clipping.contributions(logits + shift, torch.zeros(5)) - logits
        assert float(found.max() - found.min()) < 1e-4


def test_difference_clipping_adds_what_is_clipped_to_public_logits() -> None:
    clipping = DifferenceClipping(2.0, 0.5, 4, 0)
    private = PUBLIC + torch.tensor([[1.0, -1.0, 0.0, 0.0], [9.0, 0.0, 0.0, -9.0]]) + 77.0
    found = clipping.contributions(private, PUBLIC)
    torch.testing.assert_close(found, torch.tensor([[1.0, -1.0, 0.0, 0.0], [2.0, 0.0, 0.0, -2.0]]), atol=1e-4, rtol=0)
    wanted = (PUBLIC.double() + found.double().sum(dim=0) / 4) / 0.5
    torch.testing.assert_close(clipping.scores(found.double().sum(dim=0), PUBLIC), wanted)


@settings(deadline=None)
@given(
    st.sampled_from([FixedClipping, DifferenceClipping]),
    arrays(np.float32, 9, elements=st.floats(-30, 30, width=32)),
    arrays(np.bool_, 9),
    st.integers(0, 12),
    st.floats(0.1, 8),
    st.integers(1, 9),
)
def test_candidates_are_the_public_top_k_and_what_clipped_differences_could_lift_as_high(
    kind, public, allowed, k, clip, size
) -> None:
    assume(allowed.any())
    found = kind(clip, 1.0, size, k).candidates(torch.from_numpy(public), torch.from_numpy(allowed))
    usable = np.sort(public[allowed])[::-1]
    lifted = 2.0 * clip / size if kind is DifferenceClipping else 0.0
    bar = -math.inf if k == 0 or k >= len(usable) else usable[k - 1] - lifted
    close = np.abs(public - bar) < 1e-4
    assert np.array_equal(found.numpy()[~close], (allowed & (public >= bar))[~close])
    assert found.sum() >= min(k or len(usable), len(usable))
    assert not (found.numpy() & ~allowed).any()


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"temperature": -1.0}, {"batch_size": 0}, {"clip": math.inf}])
def test_numbers_that_the_accounting_does_not_hold_for_are_refused(wrong) -> None:
    for clipping in CLIPPINGS:
        with pytest.raises(ValueError, match="must be > 0"):
            replace(clipping, **wrong)  # type: ignore[type-var]


def test_a_token_costs_its_rho_and_the_round_before_it() -> None:
    clipping, vector = FixedClipping(10.0, 2.0, 127), SparseVector(0.3, 0.2, 127)
    assert token_rho(clipping, None) == pytest.approx(0.5 * (10 / 254) ** 2)
    assert token_rho(clipping, vector) == pytest.approx(0.5 * (10 / 254) ** 2 + 2 / (127 * 0.2) ** 2)


# No token has probability 0.


class Told(NoiseSource):
    """Uniforms that favour one index as far as the source reaches."""

    def __init__(self, favoured: int) -> None:
        super().__init__(seed=0)
        self.favoured = favoured

    def uniform(self, size: int) -> np.ndarray:
        found = np.full(size, 2.0**-53)
        found[self.favoured] = 1.0 - 2.0**-53
        return found


REACH = 40.0  # nats below the likeliest


@settings(deadline=None, max_examples=200)
@given(BATCHES, MECHANISMS, st.data())
def test_every_candidate_has_a_finite_score_and_can_be_drawn(batch, clipping, data) -> None:
    rows, public = (torch.from_numpy(part) for part in batch)
    allowed = torch.from_numpy(data.draw(arrays(np.bool_, len(public), elements=st.booleans())))
    assume(allowed.any())
    columns = clipping.candidates(public, allowed).nonzero().squeeze(1)
    total = clipping.contributions(rows[:, columns], public[columns]).sum(dim=0, dtype=torch.float64)
    scores = clipping.scores(total, public[columns])
    assert scores.dtype == torch.float64
    assert bool(scores.isfinite().all())
    for index, score in enumerate(scores.tolist()):
        if score >= float(scores.max()) - REACH:
            assert draw(scores, Told(index)) == index


@pytest.mark.parametrize("seed", range(3))
def test_draws_follow_the_softmax(seed: int) -> None:
    scores, source = torch.tensor([2.0, -1.0, 0.0, 0.5, -5.0]), NoiseSource(seed)
    found = np.bincount([draw(scores, source) for _ in range(10_000)], minlength=5)
    assert stats.chisquare(found, 10_000 * scores.softmax(dim=0).numpy().astype(float), sum_check=False).pvalue > 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_laplace_draws_are_laplace(seed: int) -> None:
    source = NoiseSource(seed)
    found = np.array([laplace(source, 0.4) for _ in range(20_000)])
    assert stats.kstest(found, stats.laplace(scale=0.4).cdf).pvalue > 1e-6
    assert stats.kstest(found, stats.laplace(scale=0.46).cdf).pvalue < 1e-6
