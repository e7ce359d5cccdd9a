"""Exact per-example clipping with one forward and one backward pass.

The parameters are frozen while the pass runs, so that autograd propagates activation gradients only. Every supported
layer books its input and its output gradient; the per-example norms over all trainable parameters and the sum of
clipped gradients are then computed from the *same* records (ghost clipping: Li et al. 2022; book-keeping: Bu et al.
2023). A use of a weight that escapes the books therefore costs accuracy, never privacy; `self_check` finds it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from transformers.pytorch_utils import Conv1D

from palimpsest.training.engine import ClippedSum, EngineError
from palimpsest.training.ghost import Contribution, GhostRule, Kept, Use, ghost_is_cheaper, matrix_contribution

Record = tuple[torch.Tensor | None, Use | Kept]  # a weight matrix's use, or a vector's per-example gradients
Books = dict[torch.Tensor, list[Use | Kept]]


class BookkeepingEngine:
    """A `GradientEngine` for models made of Linear, Conv1D, Embedding and LayerNorm layers.

    Weights may be used several times and shared between layers, as GPT-2's table and head are. Frozen layers are not
    booked. Which parameters train is fixed when the engine is built.

    Guarantee: the norm of an example is that of its whole gradient over all trainable parameters, so its share of the
    sum is at most C. An example whose gradient is not finite is zeroed before the sum.

    Raises:
        EngineError: a trainable parameter sits in a layer without a rule, or a layer mixes examples.
    """

    def __init__(self, model: nn.Module, prefer_ghost: GhostRule = ghost_is_cheaper) -> None:
        """Attach to `model`.

        Args:
            model: its modules are hooked only while `clipped_sum` runs.
            prefer_ghost: (tokens, rows, columns) -> whether a weight's norms come from Gram matrices.
        """
        self._prefer_ghost = prefer_ghost
        self._names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
        self._layers = _booked_layers(model, self._names)

    def clipped_sum(self, losses: Callable[[], torch.Tensor], batch_size: int, clipping_norm: float) -> ClippedSum:
        """See `GradientEngine.clipped_sum`."""
        books = self._backward(losses, batch_size)
        with torch.no_grad():
            contributions = {p: self._contribution(p, uses) for p, uses in books.items()}
            return self._assemble(contributions, batch_size, clipping_norm)

    def _backward(self, losses: Callable[[], torch.Tensor], batch_size: int) -> Books:
        books: Books = {parameter: [] for parameter in self._names}
        with self._booking(books, batch_size), torch.enable_grad():
            values = losses()
            if values.shape != (batch_size,):
                raise EngineError(
                    f"The loss has shape {tuple(values.shape)!r} where one value per example, ({batch_size},), is due.",
                    "Return per-example losses, each computed from that example alone.",
                )
            if values.requires_grad:
                values.sum().backward()
        return {parameter: uses for parameter, uses in books.items() if uses}

    @contextmanager
    def _booking(self, books: Books, batch_size: int) -> Iterator[None]:
        anchor = torch.zeros((), requires_grad=True)  # makes the first booked output part of the graph
        handles = []
        try:
            for parameter in self._names:
                parameter.requires_grad_(False)
            for layer, name in self._layers.items():
                hook = partial(_book_output, anchor=anchor, books=books, batch_size=batch_size, name=name)
                handles.append(layer.register_forward_hook(hook, with_kwargs=True))
                if isinstance(layer, nn.Embedding):
                    handles.append(layer.register_forward_pre_hook(partial(_own_ids, batch_size=batch_size)))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for parameter in self._names:
                parameter.requires_grad_(True)

    def _contribution(self, parameter: torch.Tensor, uses: list[Use | Kept]) -> Contribution:
        matrices = tuple(use for use in uses if isinstance(use, Use))
        vectors = [use.gradients for use in uses if isinstance(use, Kept)]
        if matrices and vectors:
            raise EngineError(
                f"The parameter {self._names[parameter]!r} serves as a weight matrix and as a vector.",
                "Give the two layers parameters of their own.",
            )
        if vectors:
            return Kept(vectors[0] if len(vectors) == 1 else torch.stack(vectors).sum(0))
        return matrix_contribution(matrices, parameter.size(0), parameter.size(1), self._prefer_ghost)

    def _assemble(
        self, contributions: Mapping[torch.Tensor, Contribution], batch_size: int, clipping_norm: float
    ) -> ClippedSum:
        like = next(iter(self._names))
        squares = sum((c.squared_norms() for c in contributions.values()), like.new_zeros(batch_size))
        norms = squares.sqrt()
        finite = torch.isfinite(norms)
        dropped = int((~finite).sum())
        factors = (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
        factors = torch.where(finite, factors, torch.zeros_like(factors))
        gradients = {}
        for parameter, name in self._names.items():
            gradients[name] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            if parameter in contributions:
                part = contributions[parameter]
                (part.masked(finite) if dropped else part).add_weighted(gradients[name], factors)
        return ClippedSum(gradients, norms, dropped)


class _Booked(torch.autograd.Function):
    """The identity on a layer's output; its backward pass hands the layer's input and output gradient to `book`.

    Saving the input through autograd makes a later in-place change of it an error, as in a plain backward pass.
    """

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, inputs: torch.Tensor, anchor: torch.Tensor, book: Any) -> torch.Tensor:
        ctx.save_for_backward(inputs)
        ctx.book = book
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        ctx.book(ctx.saved_tensors[0], gradient)
        return gradient, None, None, None


def _book_output(
    layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: torch.Tensor,
    *,
    anchor: torch.Tensor,
    books: Books,
    batch_size: int,
    name: str,
) -> torch.Tensor:
    inputs = args[0] if args else next(iter(kwargs.values()))
    if output.dim() < 2 or output.size(0) != batch_size:
        raise EngineError(
            f"The layer {name!r} got a tensor whose first dimension is not the batch: examples cannot be told apart.",
            "Keep the batch first: (batch, ..., features).",
        )

    def book(inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        for parameter, record in _RULES[type(layer)](layer, inputs, gradient):
            if parameter in books:
                books[parameter].append(record)

    return _Booked.apply(output, inputs.detach(), anchor, book)


def _own_ids(layer: nn.Module, args: tuple[Any, ...], *, batch_size: int) -> tuple[Any, ...]:
    """Position ids arrive once for all examples, (1, T): give each example its own."""
    if args and args[0].dim() > 1 and args[0].size(0) == 1:
        return (args[0].expand(batch_size, *args[0].shape[1:]), *args[1:])
    return args


def _tokens(values: torch.Tensor) -> torch.Tensor:
    """(B, ..., n) as (B, T, n)."""
    return values.reshape(values.size(0), -1, values.size(-1))


def _linear(layer: nn.Linear, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    yield layer.weight, Use(_tokens(gradient), _tokens(inputs))
    yield layer.bias, Kept(_tokens(gradient).sum(1))


def _conv1d(layer: Conv1D, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    yield layer.weight, Use(_tokens(inputs), _tokens(gradient))
    yield layer.bias, Kept(_tokens(gradient).sum(1))


def _embedding(layer: nn.Embedding, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    if layer.padding_idx is not None:
        gradient = gradient.masked_fill((inputs == layer.padding_idx)[..., None], 0.0)
    yield layer.weight, Use(inputs.reshape(inputs.size(0), -1), _tokens(gradient))


def _layer_norm(layer: nn.LayerNorm, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    between = tuple(range(1, gradient.dim() - len(layer.normalized_shape)))
    normalised = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    yield layer.weight, Kept((gradient * normalised).sum(between) if between else gradient * normalised)
    yield layer.bias, Kept(gradient.sum(between) if between else gradient)


_RULES: dict[type, Callable[..., Iterator[Record]]] = {
    nn.Linear: _linear,
    Conv1D: _conv1d,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
}


def _booked_layers(model: nn.Module, trainable: Mapping[torch.Tensor, str]) -> dict[nn.Module, str]:
    """The layers that hold trainable parameters, with their names."""
    layers = {}
    for name, layer in model.named_modules():
        _refuse_mixing(name, layer)
        if any(parameter in trainable for parameter in layer.parameters(recurse=False)):
            _refuse_unruled(name, layer)
            layers[layer] = name
    return layers


def _refuse_mixing(name: str, layer: nn.Module) -> None:
    if isinstance(layer, _NormBase):
        raise EngineError(
            f"The layer {name!r} ({type(layer).__name__}) mixes the examples of a batch or remembers them.",
            "Use LayerNorm, which treats each example alone.",
        )


def _refuse_unruled(name: str, layer: nn.Module) -> None:
    # A subclass may change what forward does, so only the exact types have rules.
    if type(layer) not in _RULES:
        raise EngineError(
            f"The layer {name or 'model'!r} ({type(layer).__name__}) trains without a per-example rule.",
            f"Freeze it (requires_grad_(False)) or build it from {', '.join(t.__name__ for t in _RULES)}.",
        )
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        raise EngineError(
            f"The embedding {name!r} uses max_norm, scale_grad_by_freq or sparse gradients, which mix examples.",
            "Build it without these options.",
        )
