"""Per-example gradients in factored form: their norms and weighted sums without building them.

One use of a weight matrix (m, n) on a batch leaves two records: `left` (B, T, m) and `right` (B, T, n), and example b's
gradient is `left[b]^T right[b]`. Its norm follows from two T x T Gram matrices (Goodfellow 2015; Li et al. 2022), and
the sum of clipped gradients from one matrix product with scaled rows (book-keeping: Bu et al. 2023). A table that was
looked up has one-hot `left` rows, kept as ids (B, T). Uses of one weight add up, so norms carry the cross terms between
every two uses: between the table and the head of a tied language model the term picks single entries of the head's
output gradient (Ding et al. 2024).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

GhostRule = Callable[[int, int, int], bool]
# A squared norm from Gram matrices is a sum of terms that may cancel; below this many rounding units of the sum of
# their sizes nothing of it is left, and the sum of sizes stands in.
_ROUNDING_UNITS = 16.0


def ghost_is_cheaper(tokens: int, rows: int, columns: int) -> bool:
    """Whether Gram matrices, tokens * (rows + columns), cost less than the gradients themselves, rows * columns."""
    return tokens * (rows + columns) < rows * columns


@dataclass(frozen=True)
class Use:
    """One use of a weight matrix: example b's gradient is `left[b]^T right[b]`.

    Attributes:
        left: (B, T, m), or the ids (B, T) of one-hot rows.
        right: (B, T, n).
    """

    left: torch.Tensor
    right: torch.Tensor

    @property
    def is_lookup(self) -> bool:
        return self.left.dim() == 2

    def masked(self, keep: torch.Tensor) -> "Use":
        """The same with the examples where `keep` (B,) is False set to zero, whatever they held."""
        left = self.left if self.is_lookup else _mask(self.left, keep)
        return Use(left, _mask(self.right, keep))

    def add_gradients(self, total: torch.Tensor) -> None:
        """Add each example's gradient to `total` (B, m, n)."""
        if self.is_lookup:
            total.scatter_add_(1, self.left[..., None].expand_as(self.right), self.right)
        else:
            total.baddbmm_(self.left.mT, self.right)

    def add_weighted(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        """Add the sum over examples of `factors[b]` times its gradient to `total` (m, n)."""
        scale = factors[:, None, None]
        if self.is_lookup:
            total.index_add_(0, self.left.flatten(), (self.right * scale).flatten(0, 1))
        elif self.left.size(2) < self.right.size(2):
            total.addmm_((self.left * scale).flatten(0, 1).mT, self.right.flatten(0, 1))
        else:
            total.addmm_(self.left.flatten(0, 1).mT, (self.right * scale).flatten(0, 1))

    def size(self) -> torch.Tensor:
        """(B,) sum over tokens of the sizes of its rank-one terms: the norm's bound when nothing cancels."""
        sizes = torch.linalg.vector_norm(self.right, dim=2)
        return (sizes if self.is_lookup else sizes * torch.linalg.vector_norm(self.left, dim=2)).sum(1)


class Contribution(Protocol):
    """What one batch gives to one parameter."""

    def squared_norms(self) -> torch.Tensor:
        """(B,) squared L2 norm of each example's gradient."""
        ...

    def masked(self, keep: torch.Tensor) -> "Contribution":
        """The same with the examples where `keep` (B,) is False set to zero, whatever they held."""
        ...

    def add_weighted(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        """Add the sum over examples of `factors[b]` times its gradient to `total`."""
        ...


@dataclass(frozen=True)
class Kept:
    """Per-example gradients as they are, (B, *shape): cheap for vectors and for long sequences."""

    gradients: torch.Tensor

    def squared_norms(self) -> torch.Tensor:
        return self.gradients.flatten(1).square().sum(1)

    def masked(self, keep: torch.Tensor) -> "Kept":
        return Kept(_mask(self.gradients, keep))

    def add_weighted(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        total.view(-1).addmv_(self.gradients.flatten(1).mT, factors)


@dataclass(frozen=True)
class Ghost:
    """Per-example gradients as the factors of every use of the weight."""

    uses: tuple[Use, ...]

    def squared_norms(self) -> torch.Tensor:
        pairs = itertools.combinations_with_replacement(self.uses, 2)
        squares = torch.stack([(1 if one is other else 2) * _inner(one, other) for one, other in pairs]).sum(0)
        sizes = torch.stack([use.size() for use in self.uses]).sum(0)
        floor = _ROUNDING_UNITS * torch.finfo(sizes.dtype).eps * sizes.square()
        return torch.maximum(squares, floor)

    def masked(self, keep: torch.Tensor) -> "Ghost":
        return Ghost(tuple(use.masked(keep) for use in self.uses))

    def add_weighted(self, total: torch.Tensor, factors: torch.Tensor) -> None:
        for use in self.uses:
            use.add_weighted(total, factors)


def matrix_contribution(uses: tuple[Use, ...], rows: int, columns: int, prefer_ghost: GhostRule) -> Ghost | Kept:
    """One weight matrix's contribution, in the form that costs less.

    Args:
        uses: every use of the weight on this batch.
        rows: m, the weight's first dimension.
        columns: n, its second.
        prefer_ghost: (tokens, rows, columns) -> True for Gram matrices, False to build and keep the gradients.
    """
    tokens = sum(use.right.size(1) for use in uses if not use.is_lookup)
    if prefer_ghost(tokens, rows, columns):
        return Ghost(uses)
    total = uses[0].right.new_zeros(uses[0].right.size(0), rows, columns)
    for use in uses:
        use.add_gradients(total)
    return Kept(total)


def _inner(one: Use, other: Use) -> torch.Tensor:
    """(B,) inner product of the gradients of two uses of one weight."""
    right = torch.bmm(one.right, other.right.mT)  # (B, T1, T2)
    return (_left_gram(one.left, other.left) * right).sum((1, 2))


def _left_gram(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """(B, T1, T2) inner products of left rows, ids standing for one-hot rows."""
    if one.dim() == other.dim() == 2:
        return one[:, :, None] == other[:, None, :]
    if one.dim() == 2:
        return _left_gram(other, one).mT
    if other.dim() == 2:
        return one.gather(2, other[:, None, :].expand(-1, one.size(1), -1))
    return torch.bmm(one, other.mT)


def _mask(values: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    # A factor of zero would not do: 0 * NaN is NaN.
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, torch.zeros_like(values))
