"""Per-example gradients in factored form: their norms and weighted sums without building them.

One use of a weight matrix (m, n) on a batch leaves two records: `left` (B, T, m) and `right` (B, T, n), and example b's
gradient is `left[b]^T right[b]`. Its norm follows from two T x T Gram matrices (Goodfellow 2015; Li et al. 2022), and
the sum of clipped gradients from one matrix product with scaled rows (book-keeping: Bu et al. 2023). A table that was
looked up has one-hot `left` rows, kept as ids (B, T). Uses of one weight add up, so norms carry the cross terms between
every two uses: between the table and the head of a tied language model the term picks single entries of the head's
output gradient (Ding et al. 2024).

Records may be bfloat16. They are widened before anything is computed from them, so that norms and sums come from the
same numbers and both are rounded as float32.

A squared norm from Gram matrices is a sum of terms that may cancel, and each Gram entry is rounded, or lost where it
underflows. A bound on what that can take away is added, so that a norm is never understated: for ordinary gradients
some 1e-6 of it, for two tokens that cancel all of it.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

GhostRule = Callable[[int, int, int], bool]


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
        """Whether `left` is the ids of one-hot rows."""
        return self.left.dim() == 2

    def widened(self, dtype: torch.dtype) -> "Use":
        """The same in the precision that norms and sums are computed in."""
        return Use(self.left if self.is_lookup else self.left.to(dtype), self.right.to(dtype))

    def masked(self, keep: torch.Tensor) -> "Use":
        """The same with the examples where `keep` (B,) is False set to zero, whatever they held."""
        left = self.left if self.is_lookup else _mask(self.left, keep)
        return Use(left, _mask(self.right, keep))

    def gradients(self, like: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        """Each example's gradient (B, m, n) in the dtype of the weight `like`, added to `total` where there is one."""
        wide = self.widened(like.dtype)
        if not self.is_lookup:
            return torch.bmm(wide.left.mT, wide.right) if total is None else total.baddbmm_(wide.left.mT, wide.right)
        if total is None:
            total = like.new_zeros(len(self.left), *like.shape)
        return total.scatter_add_(1, self.left[..., None].expand_as(self.right), wide.right)

    def weighted_sum(self, factors: torch.Tensor, like: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
        """The sum over examples of `factors[b]` times its gradient (m, n), added to `total` where there is one."""
        wide, scale = self.widened(like.dtype), factors[:, None, None]
        if self.is_lookup:
            if total is None:
                total = torch.zeros_like(like, memory_format=torch.contiguous_format)
            return total.index_add_(0, self.left.flatten(), (wide.right * scale).flatten(0, 1))
        if wide.left.size(2) < wide.right.size(2):
            left, right = wide.left * scale, wide.right
        else:
            left, right = wide.left, wide.right * scale
        left, right = left.flatten(0, 1).mT, right.flatten(0, 1)
        return left @ right if total is None else total.addmm_(left, right)


class Contribution(Protocol):
    """What one batch gives to one parameter."""

    def squared_norms(self, like: torch.Tensor) -> torch.Tensor:
        """(B,) squared L2 norm of each example's gradient, in the dtype of the parameter `like`."""
        ...

    def masked(self, keep: torch.Tensor) -> "Contribution":
        """The same with the examples where `keep` (B,) is False set to zero, whatever they held."""
        ...

    def weighted_sum(self, factors: torch.Tensor, like: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
        """The sum over examples of `factors[b]` times its gradient, added to `total` where there is one."""
        ...


@dataclass(frozen=True)
class Kept:
    """Per-example gradients as they are, (B, *shape): cheap for vectors and for long sequences."""

    gradients: torch.Tensor

    def squared_norms(self, like: torch.Tensor) -> torch.Tensor:
        """From the gradients themselves."""
        flat = self.gradients.flatten(1)
        return torch.linalg.vecdot(flat, flat)

    def masked(self, keep: torch.Tensor) -> "Kept":
        return Kept(_mask(self.gradients, keep))

    def weighted_sum(self, factors: torch.Tensor, like: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
        """One product of the factors and the gradients."""
        flat = self.gradients.flatten(1).mT
        if total is None:
            return torch.mv(flat, factors).view(like.shape)
        total.view(-1).addmv_(flat, factors)
        return total


@dataclass(frozen=True)
class Ghost:
    """Per-example gradients as the factors of every use of the weight."""

    uses: tuple[Use, ...]

    def squared_norms(self, like: torch.Tensor) -> torch.Tensor:
        """From Gram matrices, with an allowance for what rounding may have taken."""
        uses = [use.widened(like.dtype) for use in self.uses]
        squares, sizes = like.new_zeros(len(uses[0].right)), like.new_zeros(3, len(uses[0].right))
        for use in uses:
            own, own_sizes = _own_squares(use)
            squares, sizes = squares + own, sizes + own_sizes
        for one, other in itertools.combinations(uses, 2):
            squares += 2 * _inner(one, other)
        return squares.clamp_min_(0.0) + _allowance(sizes, like)

    def masked(self, keep: torch.Tensor) -> "Ghost":
        return Ghost(tuple(use.masked(keep) for use in self.uses))

    def weighted_sum(self, factors: torch.Tensor, like: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
        """One product for each use; no example's gradient is formed."""
        for use in sorted(self.uses, key=lambda use: use.is_lookup):  # a product can begin a sum, a lookup cannot
            total = use.weighted_sum(factors, like, total)
        assert total is not None
        return total


def _own_squares(use: Use) -> tuple[torch.Tensor, torch.Tensor]:
    """(B,) squared norms of one use's gradients, and its sizes (3, B).

    A Gram matrix is symmetric: of two halves of the tokens, the block between them is computed once and counts twice.
    """
    examples, tokens = use.right.shape[:2]
    if tokens % 2:
        left, right = _left_gram(use.left, use.left), torch.bmm(use.right, use.right.mT)
        return (left * right).sum((1, 2)), _sizes(left, right)
    halves = Use(*(part.reshape(2 * examples, tokens // 2, *part.shape[2:]) for part in (use.left, use.right)))
    left, right = _left_gram(halves.left, halves.left), torch.bmm(halves.right, halves.right.mT)
    within = (left * right).sum((1, 2)).view(examples, 2).sum(1)
    first, second = (Use(halves.left[which::2], halves.right[which::2]) for which in (0, 1))
    return within + 2 * _inner(second, first), _sizes(left, right).view(3, examples, 2).sum(2)


def _inner(one: Use, other: Use) -> torch.Tensor:
    """(B,) inner products of the gradients of two uses of one weight."""
    return (_left_gram(one.left, other.left) * torch.bmm(one.right, other.right.mT)).sum((1, 2))


def _left_gram(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """(B, T1, T2) inner products of left rows, ids standing for one-hot rows."""
    if one.dim() == other.dim() == 2:
        return one[:, :, None] == other[:, None, :]
    if one.dim() == 2:
        return _left_gram(other, one).mT
    if other.dim() == 2:
        return one.gather(2, other[:, None, :].expand(-1, one.size(1), -1))
    return torch.bmm(one, other.mT)


def _sizes(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(3, B) sums over tokens of |a||g|, |a| and |g|, from the Gram matrices' diagonals."""
    one, other = (gram.diagonal(dim1=1, dim2=2).to(right.dtype).clamp_min(0.0).sqrt() for gram in (left, right))
    return torch.stack([(one * other).sum(1), one.sum(1), other.sum(1)])


def _allowance(sizes: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(B,) the most that rounding and underflow can take from a squared norm of the weight `like` (m, n).

    A Gram entry is a product of rows of up to k = max(m, n) numbers. Its rounding error is a few units of |a||a'|, and
    grows as the root of k: the units here are twice the largest that a search for cancelling records found (10 at
    k = 128,256). Each of its k products may underflow and lose up to the smallest normal number.
    """
    numbers, longest = torch.finfo(like.dtype), max(like.shape)
    product, left, right = sizes.square()
    units = 4.0 + math.sqrt(longest) / 8.0
    return units * numbers.eps * product + longest * numbers.tiny * (left + right)


def _mask(values: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    # A factor of zero would not do: 0 * NaN is NaN.
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, torch.zeros_like(values))
