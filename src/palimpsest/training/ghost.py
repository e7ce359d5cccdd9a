"""Per-example gradients in factored form: their norms and weighted sums without building them.

One use of a weight matrix (m, n) on a batch leaves two records: `left` (B, T, m) and `right` (B, T, n), and example b's
gradient is `left[b]^T right[b]`. Its norm follows from two T x T Gram matrices (Goodfellow 2015; Li et al. 2022), and
the sum of clipped gradients from one matrix product with scaled rows (book-keeping: Bu et al. 2023). A table that was
looked up has one-hot `left` rows, kept as ids (B, T). Uses of one weight add up, so norms carry the cross terms between
every two uses: between the table and the head of a tied language model the term picks single entries of the head's
output gradient (Ding et al. 2024).

Records may be bfloat16. They are widened before anything is computed from them, so that norms and sums come from the
same numbers. Norms are rounded as float32 and carry a proved allowance for it, so that they are never too small. Sums
are computed in float64, in which a product of two float32 is exact: see `plan` for what is left.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch.nn import functional

LONGEST_PRODUCT = 1 << 16  # tokens that one product of matrices adds up
_RUN = 128  # columns whose products are added up before they are added to others

GhostRule = Callable[[int, int, int], bool]  # (tokens, rows, columns) -> whether norms come from Gram matrices


def ghost_is_cheaper(tokens: int, rows: int, columns: int) -> bool:
    """Return whether Gram matrices, tokens * (rows + columns), cost less than the gradients, rows * columns."""
    return tokens * (rows + columns) < rows * columns


@dataclass(frozen=True)
class WeightUse:
    """One use of a weight matrix: example b's gradient is `left[b]^T right[b]`.

    Attributes:
        left: (B, T, m), or the ids (B, T) of one-hot rows.
        right: (B, T, n).
    """

    left: torch.Tensor
    right: torch.Tensor

    @property
    def is_lookup(self) -> bool:
        """Whether `left` holds the ids of one-hot rows."""
        return self.left.dim() == 2

    def widen(self, dtype: torch.dtype) -> "WeightUse":
        """Return this use in the precision that norms and sums are computed in."""
        return WeightUse(self.left if self.is_lookup else self.left.to(dtype), self.right.to(dtype))

    def mask(self, keep: torch.Tensor) -> "WeightUse":
        """Return this use with the examples where `keep` (B,) is False set to zero, whatever they held."""
        left = self.left if self.is_lookup else _mask(self.left, keep)
        return WeightUse(left, _mask(self.right, keep))

    def gradients(self, like: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        """Return each example's gradient (B, m, n) in the dtype of the weight `like`, added to `total` if given."""
        wide = self.widen(like.dtype)
        if not self.is_lookup:
            return torch.bmm(wide.left.mT, wide.right) if total is None else total.baddbmm_(wide.left.mT, wide.right)
        if total is None:
            total = like.new_zeros(len(self.left), *like.shape)
        return total.scatter_add_(1, self.left[..., None].expand_as(self.right), wide.right)

    def add_weighted(self, factors: torch.Tensor, totals: Sequence[torch.Tensor]) -> None:
        """Add the sum over a parameter's examples of their factors times their gradients to its total (m, n).

        Args:
            factors: (examples of all parameters,) float64.
            totals: float64, one for each parameter whose examples are here, with equally many examples of each.
        """
        scale = factors[:, None, None]
        if self.is_lookup:
            parts = (part.flatten(0, 1).chunk(len(totals)) for part in (self.left, self.right.double() * scale))
            for total, places, rows in zip(totals, *parts, strict=True):
                _add_rows(total, places, rows)
        elif self.left.size(2) < self.right.size(2):
            _add_products(totals, self.left.double() * scale, self.right)
        else:
            _add_products([total.mT for total in totals], self.right.double() * scale, self.left)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return all tensors that norms and sums are computed from, examples first."""
        return self.left, self.right


@dataclass(frozen=True)
class KeptGradients:
    """Per-example gradients in full, (B, *shape): cheap for vectors and for long sequences."""

    gradients: torch.Tensor

    def squared_norms(self, like: torch.Tensor) -> torch.Tensor:
        """Return (B,) float64, from the gradients themselves; squares of float32 are exact in float64."""
        return torch.linalg.vector_norm(self.gradients.flatten(1), dim=1, dtype=torch.float64).square()

    def mask(self, keep: torch.Tensor) -> "KeptGradients":
        """Return the gradients with those of rows that are not kept at 0."""
        return KeptGradients(_mask(self.gradients, keep))

    def add_weighted(self, factors: torch.Tensor, totals: Sequence[torch.Tensor]) -> None:
        """As `WeightUse.add_weighted`."""
        _add_products([total.view(1, -1) for total in totals], factors[:, None], self.gradients.flatten(1))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors that it holds."""
        return (self.gradients,)


@dataclass(frozen=True)
class Ghost:
    """Per-example gradients as the factors of every use of the weight."""

    uses: tuple[WeightUse, ...]

    def squared_norms(self, like: torch.Tensor) -> torch.Tensor:
        """Return (B,) float64, at least the squared norm of each example's gradient of the parameter `like`.

        They come from Gram matrices, with an allowance for what rounding may have taken.
        """
        uses = [use.widen(like.dtype) for use in self.uses]
        nothing = uses[0].right.new_zeros(4, len(uses[0].right), dtype=torch.float64)
        squares, sizes = nothing[0], nothing[1:]
        for use in uses:
            own, own_sizes = _own_squares(use)
            squares, sizes = squares + own, sizes + own_sizes
        for one, other in itertools.combinations(uses, 2):
            squares = squares + 2 * _inner(one, other)
        # A sum of entries that overflowed may be negative: the norm is then unknown, and not zero.
        return torch.where(squares.isfinite(), squares.clamp_min(0.0), torch.inf) + _allowance(sizes, like)

    def mask(self, keep: torch.Tensor) -> "Ghost":
        """Return it with the contributions of rows that are not kept at 0."""
        return Ghost(tuple(use.mask(keep) for use in self.uses))

    def add_weighted(self, factors: torch.Tensor, totals: Sequence[torch.Tensor]) -> None:
        """Add one product for each use; no example's gradient is formed."""
        for use in self.uses:
            use.add_weighted(factors, totals)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors that it holds."""
        return tuple(tensor for use in self.uses for tensor in use.tensors())


Contribution: TypeAlias = KeptGradients | Ghost  # the contribution of one batch to one parameter


@dataclass(frozen=True)
class Stack:
    """The contribution of one batch to parameters of one shape, the examples of one parameter after those of the other.

    Attributes:
        parameters: (P,).
        contribution: of P * B examples.
    """

    parameters: tuple[torch.Tensor, ...]
    contribution: Contribution

    def squared_norms(self) -> torch.Tensor:
        """Return (B,) float64, at least the squared norm of each example's gradient of all these parameters."""
        squares = self.contribution.squared_norms(self.parameters[0]).unflatten(0, (len(self.parameters), -1))
        return squares.T.contiguous().sum(1)  # along a row: across rows, the last examples would be added up otherwise

    def mask(self, keep: torch.Tensor) -> "Stack":
        """Return it with the contributions of rows that are not kept at 0."""
        return replace(self, contribution=self.contribution.mask(keep.repeat(len(self.parameters))))

    def add_weighted(self, factors: torch.Tensor, totals: Sequence[torch.Tensor]) -> None:
        """Add the sum over examples of `factors[b]` (B,) times its gradient to each parameter's total, in float64."""
        self.contribution.add_weighted(factors.repeat(len(totals)), totals)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return all tensors that norms and sums are computed from, (B, P, ...)."""
        parts = self.contribution.tensors()
        return (part.unflatten(0, (len(self.parameters), -1)).transpose(0, 1) for part in parts)

    @property
    def size(self) -> int:
        """The count of numbers in the records."""
        return _size(self.contribution)


def stack_contributions(contributions: dict[torch.Tensor, Contribution]) -> Iterator[Stack]:
    """Take the contributions out of the mapping and yield those of one shape together. A call for all costs what it
    does for one, which is most of the time that a small matrix takes, and on a CUDA device nearly all of it."""
    alike: dict[tuple[object, ...], list[torch.Tensor]] = defaultdict(list)
    for parameter, contribution in contributions.items():
        parts = contribution.tensors()
        alike[tuple((one.shape, one.dtype) for one in (parameter, *parts))].append(parameter)
    for parameters in alike.values():
        each = _size(contributions[parameters[0]]) + parameters[0].numel()
        most = max(1, _stack_limit(parameters[0]) // each)
        for start in range(0, len(parameters), most):
            some = tuple(parameters[start : start + most])
            yield Stack(some, _join_contributions([contributions.pop(parameter) for parameter in some]))


def _join_contributions(parts: Sequence[Contribution]) -> Contribution:
    """Join the examples of contributions, one after another; all have one shape."""
    first = parts[0]
    if len(parts) == 1:
        return first
    joined = iter([torch.cat(alike) for alike in zip(*(part.tensors() for part in parts), strict=True)])
    if isinstance(first, KeptGradients):
        return KeptGradients(next(joined))
    return Ghost(tuple(WeightUse(left, right) for left, right in zip(joined, joined, strict=True)))


def _size(contribution: Contribution) -> int:
    return sum(tensor.numel() for tensor in contribution.tensors())


def _stack_limit(values: torch.Tensor) -> int:
    """Return how many numbers are copied so that one call does for all of them: a CUDA device waits for calls."""
    return 1 << 26 if values.is_cuda else 1 << 18


def _widen_limit(values: torch.Tensor) -> int:
    """Return how many numbers are float64 at once: few enough to stay in a processor's caches."""
    return 1 << 26 if values.is_cuda else 1 << 22


def _add_rows(total: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> None:
    """Add the rows (k, n) to those of `total` (m, n) at `places` (k,). Rows for one place are added to each other
    first, as in a product, so that a row of `total` is added to once in a part."""
    for here, some in zip(places.split(LONGEST_PRODUCT), rows.split(LONGEST_PRODUCT), strict=True):
        distinct, which = here.unique(return_inverse=True)
        total.index_add_(0, distinct, some.new_zeros(len(distinct), some.size(1)).index_add_(0, which, some))


def _add_products(totals: Sequence[torch.Tensor], left: torch.Tensor, right: torch.Tensor) -> None:
    """Add left^T right to each total (m, n) in float64; left (..., m) is float64, right (..., n) is widened in parts.
    Each total has an equal share of the first dimension of both."""
    left, right = (part.reshape(len(totals), -1, part.size(-1)) for part in (left, right))
    for some, others in zip(left.split(LONGEST_PRODUCT, 1), right.split(LONGEST_PRODUCT, 1), strict=True):
        width = max(1, _widen_limit(right) // (len(totals) * some.size(1)))
        for start in range(0, others.size(2), width):
            columns = slice(start, start + width)
            products = torch.bmm(some.mT, others[:, :, columns].double())
            for total, product in zip(totals, products, strict=True):
                total[:, columns].add_(product)


def _own_squares(use: WeightUse) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (B,) squared norms of one use's gradients, and its sizes (3, B).

    A Gram matrix is symmetric: the block between two halves of the tokens is computed once and counts twice.
    """
    examples, tokens = use.right.shape[:2]
    if tokens % 2:
        left, right = _left_gram(use.left, use.left), _gram(use.right, use.right)
        return _dots(left, right), _sizes(left, right)
    halves = WeightUse(*(part.reshape(2 * examples, tokens // 2, *part.shape[2:]) for part in (use.left, use.right)))
    left, right = _left_gram(halves.left, halves.left), _gram(halves.right, halves.right)
    within = _dots(left, right).view(examples, 2).sum(1)
    first, second = (WeightUse(halves.left[which::2], halves.right[which::2]) for which in (0, 1))
    return within + 2 * _inner(second, first), _sizes(left, right).view(3, examples, 2).sum(2)


def _inner(one: WeightUse, other: WeightUse) -> torch.Tensor:
    """Return (B,) inner products of the gradients of two uses of one weight."""
    return _dots(_left_gram(one.left, other.left), _gram(one.right, other.right))


def _left_gram(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return (B, T1, T2) inner products of left rows, ids standing for one-hot rows."""
    if one.dim() == other.dim() == 2:
        return one[:, :, None] == other[:, None, :]
    if one.dim() == 2:
        return _left_gram(other, one).mT
    if other.dim() == 2:
        return one.gather(2, other[:, None, :].expand(-1, one.size(1), -1))
    return _gram(one, other)


def _gram(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return (B, T1, T2) inner products of rows, in runs of columns that are added up: see `_roundings`."""
    width = _RUN * _run_limit(one)
    parts = [_run_products(left, right) for left, right in zip(one.split(width, 2), other.split(width, 2), strict=True)]
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


def _run_limit(values: torch.Tensor) -> int:
    """Return how many runs one product does: on a CUDA device the number of kernels decides the time."""
    return 32 if values.is_cuda else 1


def _run_products(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the inner products of a few runs, in one product."""
    width = left.size(2)
    if width <= _RUN:
        return torch.bmm(left, right.mT)
    filled = (functional.pad(part, (0, -width % _RUN)).unflatten(2, (-1, _RUN)) for part in (left, right))
    return torch.einsum("btrn,bsrn->brts", *filled).sum(1)


def _dots(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return (B,) float64 inner products of float32 matrices: each product is exact."""
    return (left.double() * right.double()).sum((1, 2))


def _sizes(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return (3, B) float64 sums over tokens of |a||g|, |a| and |g|, from the Gram matrices' diagonals."""
    one, other = (gram.diagonal(dim1=1, dim2=2).double().clamp_min(0.0).sqrt() for gram in (left, right))
    return torch.stack([(one * other).sum(1), one.sum(1), other.sum(1)])


def _roundings(length: int) -> int:
    """Return the most roundings that a product takes part in where `length` of them are added up in runs."""
    return min(length, _RUN) + math.ceil(length / _RUN)


def _allowance(sizes: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return (B,) the most that rounding and underflow can take from a squared norm of the weight `like` (m, n).

    Proof. Let u be the unit roundoff, a_t and g_t the records' rows, k the sum over all tokens of |a_t||g_t|. Added up
    in any order, a Gram entry of rows of m numbers is off by at most gamma_p |a_t||a_s|, with p = `_roundings(m)` and
    gamma_p = p u / (1 - p u) (Higham 2002, section 3.1, and Cauchy and Schwarz). The product of two entries is exact in
    float64, and the sum of all adds less than one rounding. So the squared norm is off by at most
    ((1 + gamma_p)(1 + gamma_q)(1 + u)^2 - 1) k^2, below 1.02 (p + q + 2) u k^2 for p + q below 10^5. The rows' lengths
    come from rounded Gram entries themselves, which is within the remaining 2 u k^2 (p + q + 4 stands below). Each of
    the up to max(m, n) products of an entry may underflow and lose the smallest normal number. Where an entry
    overflows, the sum is not finite, and the example is dropped.
    """
    numbers, longest = torch.finfo(like.dtype), max(like.shape)
    product, left, right = sizes.square()
    units = 1.05 * (sum(_roundings(length) for length in like.shape) + 4) * numbers.eps / 2
    return units * product + longest * numbers.tiny * (left + right)


def _mask(values: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    # A factor of zero would not do: 0 * NaN is NaN.
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, torch.zeros_like(values))
