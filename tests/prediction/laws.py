"""The exact distribution of one drawn token, and what neighbouring batches may do to it. Nothing is sampled."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, product

import torch

from palimpsest.prediction.mechanism import Clipping, DifferenceClipping, FixedClipping, averaged_sum

ORDERS = torch.tensor([1.01, 1.5, 2.0, 4.0, 16.0, 64.0], dtype=torch.float64)
ALMOST = 1.0 + 1e-9
_ROUNDING = 1e-12  # of float64, on log-probabilities

Law = Callable[[Clipping, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Case = tuple[Clipping, torch.Tensor, torch.Tensor, torch.Tensor]  # private logits (n, v), the extra row, public ones


def law(clipping: Clipping, private: torch.Tensor, public: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Log-probability of every token, float64 (v,), from private logits (n, v), one context a unit of privacy."""
    return law_of_persons(clipping, list(private[:, None]), public, allowed)


def law_of_persons(
    clipping: Clipping, persons: Sequence[torch.Tensor], public: torch.Tensor, allowed: torch.Tensor
) -> torch.Tensor:
    """The same from the contexts of each person, (m, v) each: what the writer draws from."""
    columns = clipping.candidates(public, allowed).nonzero().squeeze(1)
    chosen, logits = public[columns], torch.cat([torch.zeros(0, len(public)), *persons])
    contexts = torch.tensor([len(own) for own in persons for _ in own], dtype=torch.long)
    total = averaged_sum(clipping.contributions(logits[:, columns], chosen), contexts, clipping.clip)
    return over(clipping.scores(total, chosen), columns, len(public))


def over(scores: torch.Tensor, columns: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Log-probabilities of a softmax over some columns; the others have none."""
    found = torch.full((vocabulary,), -torch.inf, dtype=torch.float64)
    return found.index_copy(0, columns, scores.log_softmax(dim=0))


def divergences(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Renyi divergences of p from q in nats, one per order; nan where one of the two is no distribution."""
    return torch.logsumexp(ORDERS[:, None] * log_p + (1.0 - ORDERS[:, None]) * log_q, dim=1) / (ORDERS - 1.0)


def holds(clipping: Clipping, log_p: torch.Tensor, log_q: torch.Tensor) -> bool:
    """Whether two neighbours' distributions are as near as the mechanism claims.

    They have the same tokens, Renyi divergences of at most order rho in both directions (zCDP), and log-ratios in a
    range of at most 2 sensitivity / temperature.
    """
    there = ~torch.isneginf(log_p)
    if not torch.equal(there, ~torch.isneginf(log_q)):
        return False
    p, q = log_p[there], log_q[there]
    most, ratios = ORDERS * clipping.rho * ALMOST + _ROUNDING, p - q
    widest = 2.0 * clipping.sensitivity / clipping.temperature * ALMOST + _ROUNDING  # type: ignore[attr-defined]
    near = bool((divergences(p, q) <= most).all() and (divergences(q, p) <= most).all())
    return near and float(ratios.max() - ratios.min()) <= widest


def refuted(cases: Iterable[Case], mutant: Law = law) -> bool:
    """Whether a law breaks the claim of its clipping in any case."""
    return any(
        not holds(clipping, *neighbours(mutant, private, extra, public, clipping))
        for clipping, private, extra, public in cases
    )


def neighbours(
    found: Law, private: torch.Tensor, extra: torch.Tensor, public: torch.Tensor, clipping: Clipping
) -> tuple[torch.Tensor, torch.Tensor]:
    """The distributions without and with one record."""
    allowed, joined = torch.ones(len(public), dtype=torch.bool), torch.cat([private, extra[None]])
    return found(clipping, private, public, allowed), found(clipping, joined, public, allowed)


PALETTE = torch.tensor([
    [0.0, 0.0, 0.0, 0.0], [9.0, -9.0, 0.0, 1.0], [-9.0, 9.0, 0.5, 0.0], [200.0, 191.0, 192.0, 190.0],
    [0.0, 0.0, -torch.inf, 3.0], [torch.inf, 0.0, 1.0, 2.0], [torch.nan, 0.0, 1.0, 2.0],
])  # fmt: skip
PUBLIC = torch.tensor([1.0, 0.5, -2.0, -6.0])


def enumerated(*clippings: Clipping) -> Iterator[Case]:
    """Every batch of up to two contexts of a palette, and every one that may join it."""
    lists = [rows for size in range(3) for rows in combinations_with_replacement(range(len(PALETTE)), size)]
    for clipping, rows, extra in product(clippings, lists, range(len(PALETTE))):
        yield clipping, PALETTE[list(rows)], PALETTE[extra], PUBLIC


CLIPPINGS: tuple[Clipping, ...] = (
    FixedClipping(0.5, 0.5, 2),
    FixedClipping(3.0, 2.0, 2),
    FixedClipping(3.0, 2.0, 2, 2),
    DifferenceClipping(0.5, 0.5, 2, 0),
    DifferenceClipping(3.0, 2.0, 2, 2),
)
