"""Exact sums of clipped gradients in whole numbers: no rounding is left in a sum, in whatever order it is added up.

Theorem. Let a unit of privacy have a contribution that its own rows decide to the last bit: whole numbers q of each
weight, times the weight's public power of two s. Let it be added only where the sum over all weights of s^2 |q|^2 is at
most (w C)^2, w being the unit's public share. The sum over the units of a batch is exact, so the sums of neighbours,
one of which has a unit more, differ by exactly that unit's contribution: by at most w C in L2.

So rounding leaves nothing to charge for. A plan charges for float64 sums all the same (`rounding.eta`): which of the
two serves is known only on the machine. A clip factor, a scale or a rounding that is wrong costs accuracy, never
privacy: what is checked are the very numbers that are summed. The whole numbers come from the records of `bookkeeping`:

* a matrix's gradient is sum_t left_t (x) right_t. The wider side becomes int8 by a scale of each token's own, without
  bias; the narrower side takes that scale, the clip factor and 1 / s, and becomes whole numbers of 15 bits. The squared
  norm of the product follows from the Gram matrices of both, which are exact, as is the sum of the products (`whole`);
* rows of a table that was looked up, and gradients that are kept for each example (vectors, adapters, long texts),
  are rounded to s = 2^-20 C, or the power of two below it. They are added in float64, which holds such sums exactly;
* a table that is also a head has both, and the cross term between them, for which the side that the ids pick from
  becomes int8, wider or not.

An example whose numbers are longer than w C, which rounding may make them, is shrunk up to twice and then left out. It
decides that alone. So is one whose gradient is not finite, or too large for float32 to square.

C is below 2^31 of s for a weight of up to 2^32 numbers, so sums stay below 2^53 of s in a batch of fewer than 2^22
units. What is still assumed: that the bits of a contribution are its unit's own. It is tried on public records, the
whole numbers included (`TrainQuery.batch_bits`), because rounding makes a difference in a last bit larger, up to 10^-3
of C where float64 sums move by 10^-6. Where it fails, float64 sums serve (`bookkeeping`, `plan`), and so they do
where the sums of public records are far from their gradients (`check.check_sums`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.engine import ClippedSum, Gradients
from palimpsest.training.ghost import Contribution, Ghost, GhostRule, KeptGradients, WeightUse
from palimpsest.training.whole import (
    TOP,
    Whole,
    add_product,
    add_rows,
    bound_square,
    peaks,
    scale_rows,
    square_rows,
    uses_int8,
)

_PEAK = 64.0  # times the mean: the largest entry that one token may add to a matrix; one with more is shortened
_FINE = 2.0**-20  # of C: the grid of vectors and of table rows
_LARGEST = 2.0**23  # whole numbers that float32 holds
_SLACK = 1.0 - 2.0**-30  # of C^2: more than float64 loses in a sum of squares
_AIM = 0.998  # of C: the length that examples are shrunk to, so that rounding seldom makes them longer
_ADAPTER = 32  # the rank of a matrix that may be one
_SHRINK = (0.99, 0.9, 0.0)  # what an example that is too long is shrunk to, of C: a little less, then nothing


def _grams_are_cheaper(tokens: int, rows: int, columns: int) -> bool:
    """Return whether Gram matrices cost less than the gradients of each example: measured, and sooner without int8.

    The gradients of adapters take no longer than their Gram matrices, and less memory.
    """
    wide, narrow = max(rows, columns), min(rows, columns)
    cheap = 3 if narrow > _ADAPTER and uses_int8("cpu") else 1
    return tokens * (wide + 2 * narrow) < cheap * rows * columns


@dataclass
class Matrix:
    """A batch's gradients of a weight matrix: the wide side is whole, the narrow side waits for the clip factors.

    Attributes:
        narrow: (B, T, p) float32.
        peak: (B, T), the largest entry of a token's narrow row.
        wide: (B, T, d) of one digit.
        scale: (B, T), of the wide side.
        gram: (B, T, T), of the wide side, exact.
        unit: s, public, a power of two.
        swapped: whether the wide side is `left`.
        folded: the narrow side with all scales, once there are clip factors.
    """

    narrow: torch.Tensor
    peak: torch.Tensor
    wide: Whole
    scale: torch.Tensor
    gram: torch.Tensor
    unit: float
    swapped: bool
    folded: Whole | None = None

    @classmethod
    def of(cls, uses: Sequence[WeightUse], seeds: torch.Tensor, clipping_norm: float, tied: bool = False) -> "Matrix":
        """Round the wide side of all uses of a weight, which are one longer row of tokens.

        Args:
            seeds: (B,) int32.
            tied: the weight is also a table, whose ids pick entries of `left`: that side counts as the wide one.
        """
        left, right = (_along([getattr(use, side) for use in uses]).float().contiguous() for side in ("left", "right"))
        swapped = tied or left.size(2) > right.size(2)
        wide, narrow = (left, right) if swapped else (right, left)
        scale = peaks(wide) / TOP[1]
        whole = Whole.round(wide, _inverse(scale), _seeds(seeds, wide.size(1)))
        entry = min(1.0, _PEAK / math.sqrt(wide.size(2) * narrow.size(2)))  # of C: the wider, the finer
        unit = _power_above(entry * clipping_norm / (TOP[1] * TOP[2]))
        return cls(narrow, peaks(narrow), whole, scale, whole.gram(), unit, swapped)

    def estimate(self) -> torch.Tensor:
        """Return (B,) float64 squared norms, nearly; infinite where something is not finite."""
        near = torch.bmm(self.narrow, self.narrow.mT)
        found = bound_square(near, self.gram, self.scale.nan_to_num(0.0, 0.0, 0.0).double())
        return torch.where((self.scale.isfinite() & self.peak.isfinite()).all(1), found, torch.inf)

    def spread(self) -> torch.Tensor:
        """Return (B,) the expected square of what rounding the narrow side adds."""
        return self.narrow.size(2) / 12 * self.unit**2 * self.gram.diagonal(dim1=1, dim2=2).double().sum(1)

    def fold(self, factors: torch.Tensor) -> None:
        """Round the narrow side with all scales; a token beyond the range, which has none, would be shrunk into it."""
        wanted = self.scale.double() * (factors / self.unit)[:, None]
        bounded = torch.minimum(wanted, TOP[2] * _inverse(self.peak.double()))
        self.folded = Whole.split(self.narrow, torch.where(factors[:, None] > 0, bounded, 0.0), self.peak)

    def squares(self) -> torch.Tensor:
        """Return (B,) at least the squared norm of exactly what `add` adds."""
        ones = torch.ones_like(self.scale, dtype=torch.float64)
        return self.unit**2 * bound_square(self.whole().gram(), self.gram, ones)

    def add(self, total: torch.Tensor) -> None:
        """Add all examples to `total` (m, n) float64."""
        sides = (self.wide, self.whole()) if self.swapped else (self.whole(), self.wide)
        add_product(total, *sides, self.unit)

    def bits(self) -> tuple[torch.Tensor, ...]:
        """Return all whole numbers, examples first."""
        return (*self.wide.digits, *self.whole().digits)

    def whole(self) -> Whole:
        """Return the narrow side, folded."""
        assert self.folded is not None
        return self.folded


@dataclass
class Table:
    """Rows of a table that was looked up, whole on a fine grid; the head that shares it gives cross terms.

    Attributes:
        ids: (B, T).
        rows: (B, T, n) float32.
        unit: s, public, a power of two.
        head: the same weight as a head, folded before this.
        folded: (B, T, n) float64 whole numbers.
    """

    ids: torch.Tensor
    rows: torch.Tensor
    unit: float
    head: Matrix | None
    folded: torch.Tensor | None = None

    @classmethod
    def of(cls, uses: Sequence[WeightUse], unit: float, head: Matrix | None) -> "Table":
        """Join all look-ups of a table along the tokens."""
        return cls(_along([use.left for use in uses]), _along([use.right for use in uses]).float(), unit, head)

    def estimate(self) -> torch.Tensor:
        rows = self.rows.nan_to_num(0.0, 0.0, 0.0)
        found = self._own_squares(rows)
        if self.head is not None:
            met = torch.bmm(rows, self.head.narrow.nan_to_num(0.0, 0.0, 0.0).mT).double()
            found = found + 2 * (met * self.head.scale.nan_to_num().double()[:, None, :] * self._picked()).sum(2).sum(1)
        return torch.where(peaks(self.rows.contiguous()).isfinite().all(1), found.clamp_min(0.0), torch.inf)

    def spread(self) -> torch.Tensor:
        return torch.zeros(len(self.rows), dtype=torch.float64, device=self.rows.device)

    def fold(self, factors: torch.Tensor) -> None:
        rows = scale_rows(self.rows.flatten(1), factors / self.unit, _LARGEST)
        self.folded = rows.view_as(self.rows).double()

    def squares(self) -> torch.Tensor:
        """Return (B,) at least the squared norm of what is added, the cross term with the head included."""
        found = self.unit**2 * self._own_squares(self._folded())
        if self.head is None:
            return found
        met = torch.bmm(self._folded(), self.head.whole().to(torch.float64).mT) * self._picked()
        allowance = 2.0**-36 * met.abs().sum(2).sum(1)  # a term is rounded once, and its sums
        return found + 2 * self.unit * self.head.unit * (met.sum(2).sum(1) + allowance)

    def add(self, total: torch.Tensor) -> None:
        total.index_add_(0, self.ids.flatten(), self._folded().flatten(0, 1), alpha=self.unit)

    def bits(self) -> tuple[torch.Tensor, ...]:
        return (self._folded(),)

    def _own_squares(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (B,) float64 squared norms; rows of one id are added up first, at the first place of it."""
        first = (self.ids[:, :, None] == self.ids[:, None, :]).to(torch.uint8).argmax(2)
        joined = torch.zeros_like(rows).scatter_add_(1, first[..., None].expand_as(rows), rows)
        return joined.flatten(1).double().square().sum(1)

    def _picked(self) -> torch.Tensor:
        """Return the entries of the head's wide rows at the table's ids, (B, T of the table, T of the head)."""
        assert self.head is not None
        return self.head.wide.pick(self.ids).mT

    def _folded(self) -> torch.Tensor:
        assert self.folded is not None
        return self.folded


@dataclass
class Kept:
    """Gradients of each example as they are, whole on a fine grid: biases, norms' weights, adapters, long texts.

    Attributes:
        gradients: (B, n) float32.
        unit: s, public, a power of two.
        folded: (B, n) whole numbers of float32.
    """

    gradients: torch.Tensor
    unit: float
    folded: torch.Tensor | None = None

    def estimate(self) -> torch.Tensor:
        found = square_rows(self.gradients)
        return torch.where(found.isfinite(), found, torch.inf)

    def spread(self) -> torch.Tensor:
        """Return (B,) the expected square of what rounding adds."""
        numbers = self.gradients.size(1) / 12 * self.unit**2
        return torch.full((len(self.gradients),), numbers, dtype=torch.float64, device=self.gradients.device)

    def fold(self, factors: torch.Tensor) -> None:
        self.folded = scale_rows(self.gradients, factors / self.unit, _LARGEST)

    def squares(self) -> torch.Tensor:
        return self.unit**2 * square_rows(self._folded())

    def add(self, total: torch.Tensor) -> None:
        add_rows(total.view(-1), self._folded(), self.unit)

    def bits(self) -> tuple[torch.Tensor, ...]:
        return (self._folded(),)

    def _folded(self) -> torch.Tensor:
        assert self.folded is not None
        return self.folded


_Piece = Matrix | Table | Kept  # what a batch adds to one weight


class IntegerEngine(BookkeepingEngine):
    """The engine of `bookkeeping`, with sums in whole numbers where C is finite.

    Guarantee: the theorem above. Adding or removing one example changes each returned sum by at most
    `weight * clipping_norm` in L2 over all trainable parameters, with nothing left for rounding.
    """

    def __init__(self, model: torch.nn.Module, prefer_ghost: GhostRule = _grams_are_cheaper) -> None:
        """Attach to `model`, as the engine of `bookkeeping` does."""
        super().__init__(model, prefer_ghost)

    @torch.no_grad()
    def list_bits(self, contributions: dict[torch.Tensor, Contribution], clipping_norm: float) -> list[torch.Tensor]:
        """Return also the whole numbers, of seeds that all examples share."""
        examples = len(next(part for given in contributions.values() for part in given.tensors()))
        seeds = torch.zeros(examples, dtype=torch.int32)
        pieces = [piece for given in contributions.values() for piece in _pieces_of(given, seeds, clipping_norm)]
        like = next(iter(self._names))
        norms = _fold_within(pieces, torch.ones(examples, dtype=torch.float64, device=like.device), clipping_norm)
        bits = [norms, *(part for piece in pieces for part in piece.bits())]
        return [*bits, *super().list_bits(contributions, clipping_norm)]

    @torch.no_grad()
    def _clip(
        self,
        contributions: dict[torch.Tensor, Contribution],
        weights: torch.Tensor,
        clipping_norm: float,
        totals: Gradients,
        seeds: torch.Tensor | None = None,
    ) -> ClippedSum:
        if math.isinf(clipping_norm):
            return super()._clip(contributions, weights, clipping_norm, totals)
        weights = weights.to(next(iter(self._names)).device)
        seeds = torch.zeros(len(weights), dtype=torch.int32) if seeds is None else seeds
        named = []
        while contributions:  # a record is freed once it is whole
            parameter, given = contributions.popitem()
            named += [(parameter, piece) for piece in _pieces_of(given, seeds, clipping_norm)]
        norms = _fold_within([piece for _, piece in named], weights, clipping_norm)
        for parameter, piece in named:
            piece.add(self._total(parameter, totals))
        return ClippedSum(totals, norms)


def _fold_within(pieces: Sequence[_Piece], weights: torch.Tensor, clipping_norm: float) -> torch.Tensor:
    """Choose every example's whole numbers: at most `weights * clipping_norm` long over all pieces together.

    Args:
        weights: (B,) float64 between 0 and 1.

    Returns:
        (B,) float64 norms before clipping, nearly; infinite where a gradient is not finite.
    """
    nothing = torch.zeros_like(weights)
    squares = sum((piece.estimate() for piece in pieces), nothing)
    squares = torch.where(squares.isfinite(), squares.clamp_min(0.0), torch.inf)  # float32 may overflow and say NaN
    spread = sum((piece.spread() for piece in pieces), nothing)
    most = clipping_norm * weights
    room = ((_AIM * most).square() - 1.05 * spread).clamp_min(0.0)
    factors = (room / squares.clamp_min(torch.finfo(squares.dtype).tiny)).sqrt().minimum(weights)
    for shrink in (*_SHRINK, None):
        for piece in pieces:
            piece.fold(factors)
        found = sum((piece.squares() for piece in pieces), nothing)
        over = ~(found <= _SLACK * most.square()) & (factors > 0)
        if shrink is None or not bool(over.any()):
            break
        shorter = (factors * shrink * most / found.sqrt()).nan_to_num(0.0, 0.0, 0.0)
        factors = torch.where(over, shorter, factors)
    return squares.sqrt()


def _pieces_of(given: Contribution, seeds: torch.Tensor, clipping_norm: float) -> list[_Piece]:
    fine = _power_below(clipping_norm * _FINE)
    if isinstance(given, KeptGradients):
        return [Kept(given.gradients.flatten(1).float().contiguous(), fine)]
    assert isinstance(given, Ghost)
    products = [use for use in given.uses if not use.is_lookup]
    lookups = [use for use in given.uses if use.is_lookup]
    head = Matrix.of(products, seeds, clipping_norm, bool(lookups)) if products else None
    table = Table.of(lookups, fine, head) if lookups else None
    return [piece for piece in (head, table) if piece is not None]


def _power_above(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value))


def _power_below(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))


def _seeds(seeds: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return (B, T) int32 seeds of the public hash, odd: of the example's own and the place, of no computed number,
    whose last bits would move every rounding where they depend on the machine."""
    places = torch.arange(tokens, dtype=torch.int32) * 40_503
    return (seeds[:, None] * 1_640_531 + places) | 1


def _along(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)


def _inverse(values: torch.Tensor) -> torch.Tensor:
    return torch.where((values > 0) & values.isfinite(), 1 / values, torch.zeros_like(values))
