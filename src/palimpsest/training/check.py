"""Checks on public examples, before any private one, that an engine treats a model and a loss exactly."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from palimpsest.training.bookkeeping import BookkeepingEngine, zeros
from palimpsest.training.engine import EngineError, Gradients

Losses = Callable[[nn.Module, Any], torch.Tensor]

_LARGEST_ALLOWANCE = 1.01
_LARGEST_ERROR = 0.1  # of a clipped gradient, most of it noise without bias: rounding to 8 and 15 bits adds .01 to .04
_SUM_ROUNDING = 2.0**-32  # more than a sum over one example can lose in float64


def self_check(
    make_engine: Callable[[nn.Module], BookkeepingEngine],
    model: nn.Module,
    losses: Losses,
    batch: Any,
    alone: Sequence[Any] = (),
    precision: torch.dtype | None = None,
) -> None:
    """Compare an engine with a loop over two or three public examples, and show that examples do not mix.

    Five things are tried, without dropout: each example's gradient equals the one autograd finds for its loss; an
    example's loss reaches no other example's activations; replacing an example by another, or leaving the last one
    out, moves neither the losses nor the gradients of the rest; nor does padding to the longest example; no buffer is
    written. These also find what gradients cannot show, such as a loss divided by the batch's size, by its number of
    tokens or by its width, and a model that treats all texts differently once one of them is long.

    Args:
        make_engine: builds the engine on a model.
        model: the model as it will be trained; it is left unchanged.
        losses: (model, batch) -> (B,) per-example losses.
        batch: two or three public examples of different lengths: a tensor, or tuples, mappings or dataclasses of
            tensors, whose first dimension is the example.
        alone: the same examples, each encoded without the others, without random draws.
        precision: the narrowest dtype that the losses compute in, if it is not the weights' dtype; it sets how far
            apart two computations of one number may lie.

    Raises:
        EngineError: a check failed; the message says what was found and what to do.
    """
    trial = copy.deepcopy(model).eval()
    probe = _Probe(make_engine(trial), trial, losses, precision or next(trial.parameters()).dtype)
    count = len(probe.losses(batch))
    if count < 2:
        raise EngineError("The self-check got fewer than two examples.", "Give it two or three public ones.")
    own = torch.eye(count, dtype=next(trial.parameters()).dtype, device=next(trial.parameters()).device)
    for example, only in enumerate(own):
        _check_exact(probe, batch, example, only)
        order = [(example + 1) % count if index == example else index for index in range(count)]
        other = _select(batch, order, count)
        _require_same(probe, batch, 1.0 - only, other, 1.0 - only, "changes when another example changes")
    rest, fewer = 1.0 - own[-1], _select(batch, list(range(count - 1)), count)
    _require_same(probe, batch, rest, fewer, rest[:-1], "changes with the size of the batch")
    for only, encoded in zip(own, alone, strict=False):
        _require_same(probe, batch, only, encoded, only[only > 0], "changes with the length of the others")
    _check_buffers(model, trial)


def has_same_bits(
    engine: BookkeepingEngine,
    losses: Callable[[Any], Sequence[torch.Tensor]],
    mixed: Any,
    alike: Any,
    size: int,
    group: int,
    clipping_norm: float = 1.0,
) -> bool:
    """Return whether one public example is booked to the same bits in every place and beside any other example.

    Args:
        engine: attached to the model that the losses run.
        losses: a batch -> per-row losses.
        mixed: a batch whose first example is this one, and whose others are not.
        alike: a batch of the same shape whose examples are all this one.
    """
    beside, among = (_bits(engine, partial(losses, batch), size, group, clipping_norm) for batch in (mixed, alike))
    if [one.shape for one in beside] != [every.shape for every in among]:
        return False
    return all(bool((one[:1] == every).all()) for one, every in zip(beside, among, strict=True))


def fill_zeros(model: nn.Module) -> None:
    """Fill trainable weights that are all zero with small public numbers, as half of LoRA's are before the first step.

    With zeros every order of summation gives the same bits; after the first step, orders begin to differ.
    """
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad and not bool(parameter.any()):
            with torch.no_grad():
                parameter.copy_(0.01 * torch.randn(parameter.shape, generator=generator))


def _bits(
    engine: BookkeepingEngine,
    losses: Callable[[], Sequence[torch.Tensor]],
    size: int,
    group: int,
    clipping_norm: float,
) -> list[torch.Tensor]:
    """Return all that the norms and sums of one batch are computed from, and the norms, examples first."""
    bits: list[torch.Tensor] = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for contributions in engine.book_losses(losses, size, group):
            bits += engine.list_bits(contributions, clipping_norm)
    return [tensor.detach() for tensor in bits]


def check_sums(
    make_engine: Callable[[nn.Module], BookkeepingEngine],
    model: nn.Module,
    losses: Losses,
    batch: Any,
    clipping_norm: float,
) -> bool:
    """Compare an engine's clipped sums of single public examples with float64 sums of the same records.

    Returns:
        Whether each lies near its gradient. Rounding grows with a model's width and the length of a text; then float64
        serves better.

    Raises:
        EngineError: an example adds more than C.
    """
    trial = copy.deepcopy(model).eval()
    count, near = len(losses(trial, batch)), True
    for example in torch.eye(count, dtype=torch.float64):
        found, exact = (
            _sum_of_one(kind(trial), partial(losses, trial, batch), example, clipping_norm)
            for kind in (make_engine, BookkeepingEngine)
        )
        apart = sum(float((found[name] - own).square().sum()) for name, own in exact.items())
        length, true = (sum(float(own.square().sum()) for own in one.values()) for one in (found, exact))
        if length > clipping_norm**2 * (1.0 + _SUM_ROUNDING):
            raise EngineError(
                "The engine's clipped sum of one example is longer than the clipping norm.",
                "Report the model's layers and this machine; the engine must not be used here.",
            )
        near = near and apart <= _LARGEST_ERROR**2 * true
    return near


def _sum_of_one(
    engine: BookkeepingEngine, losses: Callable[[], torch.Tensor], weights: torch.Tensor, clipping_norm: float
) -> Gradients:
    """Return the clipped sum of the one example that has a weight, with the draws that every call has."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        (found,) = engine.clipped_sums(lambda: (losses(),), len(weights), clipping_norm, weights=weights)
    return found.gradients


@dataclasses.dataclass(frozen=True)
class _Probe:
    engine: BookkeepingEngine
    model: nn.Module
    losses_of: Losses
    precision: torch.dtype

    def is_close(self, computed: torch.Tensor, expected: torch.Tensor) -> bool:
        """Return whether two computations of one number agree up to half of the precision's digits."""
        tolerance = torch.finfo(self.precision).eps ** 0.5
        tiny = torch.finfo(torch.float32).tiny
        computed, expected = computed.double(), expected.double()
        return bool((computed - expected).norm() <= tolerance * expected.norm() + tiny)

    def bounds(self, norm: torch.Tensor, summed: torch.Tensor, true: torch.Tensor) -> bool:
        """Return whether a norm covers what is summed, and equals the true norm or lies a little above it.

        The charge is for a sum of gradients that are each at most as long as the norm says, up to the rounding of
        float64. A lower norm would cost privacy, so no more rounding is allowed, not even in bfloat16. Engines add to a
        norm what rounding may have taken, which grows with the length of the text and of the rows. An example is then
        clipped to a little less than C, which costs no privacy.
        """
        covers = bool(summed.norm() <= norm * (1.0 + _SUM_ROUNDING))
        return covers and (self.is_close(norm, true) or bool(true < norm <= _LARGEST_ALLOWANCE * true))

    def losses(self, batch: Any) -> torch.Tensor:
        # A loss may draw a random replacement; the same draws make two calls comparable.
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.losses_of(self.model, batch)

    def engine_gradient(self, batch: Any, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the kept examples' summed gradient, flat, and every example's norm when only kept losses count."""
        (total,) = self.engine.clipped_sums(lambda: (self.losses(batch) * kept,), len(kept), float("inf"))
        trained = [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        gradients = [total.gradients.get(name, zeros(parameter)) for name, parameter in trained]
        return torch.cat([gradient.flatten() for gradient in gradients]), total.norms

    def true_gradient(self, batch: Any, example: int) -> torch.Tensor:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        loss = self.losses(batch)[example]
        if not loss.requires_grad:
            return torch.cat([torch.zeros_like(parameter).flatten() for parameter in parameters])
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in gradients])


def _check_exact(probe: _Probe, batch: Any, example: int, only: torch.Tensor) -> None:
    """Compare an example's gradient with autograd's; `only` (count,) is one there and zero elsewhere."""
    summed, norms = probe.engine_gradient(batch, only)
    others = torch.cat([norms[:example], norms[example + 1 :]])
    numbers = torch.finfo(next(probe.model.parameters()).dtype)
    nothing = numbers.eps * norms[example] + 1e6 * numbers.tiny**0.5  # a norm of 0, with the allowance for underflow
    if bool((others > nothing).any()):
        raise EngineError(
            "An example's loss depends on another example of its batch.",
            "Compute each loss from its own example: no batch statistics, no attention across examples.",
        )
    true = probe.true_gradient(batch, example)
    if not probe.is_close(summed, true) or not probe.bounds(norms[example], summed, true.norm()):
        raise EngineError(
            "The engine's per-example gradient differs from autograd's: a weight is used outside its layer.",
            "Call the layer itself (layer(x), not F.linear(x, layer.weight)), or freeze that weight.",
        )


def _check_buffers(before: nn.Module, after: nn.Module) -> None:
    for (name, old), new in zip(before.named_buffers(), after.buffers(), strict=True):
        if not torch.equal(old, new):
            raise EngineError(
                f"The model writes into its buffer {name!r}: what it keeps of a batch reaches later steps un-noised.",
                "Use a model whose forward pass leaves its buffers alone.",
            )


def _require_same(
    probe: _Probe, batch: Any, kept: torch.Tensor, other: Any, other_kept: torch.Tensor, what: str
) -> None:
    losses = probe.losses(batch)[kept > 0], probe.losses(other)[other_kept > 0]
    gradients = probe.engine_gradient(batch, kept)[0], probe.engine_gradient(other, other_kept)[0]
    if not (probe.is_close(*losses) and probe.is_close(*gradients)):
        raise EngineError(
            f"An example's loss {what}.",
            "Compute each loss from its own example and divide only by its own counts or by public constants.",
        )


def _select(batch: Any, order: list[int], count: int) -> Any:
    """Replace the batch's examples by those at `order`; anything but a tensor of examples stays as it is."""
    if isinstance(batch, torch.Tensor):
        return batch[order] if batch.dim() and batch.size(0) == count else batch
    if isinstance(batch, Mapping):
        return {key: _select(value, order, count) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[_select(value, order, count) for value in batch])
    if isinstance(batch, (tuple, list)):
        return type(batch)(_select(value, order, count) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        values = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init}
        return dataclasses.replace(batch, **{name: _select(value, order, count) for name, value in values.items()})
    return batch
