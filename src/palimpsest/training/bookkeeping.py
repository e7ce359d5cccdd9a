"""Exact per-example clipping with one forward and one backward pass.

The parameters are frozen while the pass runs, so that autograd propagates activation gradients only. Every supported
layer books its input and its output gradient; the per-example norms over all trainable parameters and the sum of
clipped gradients are then computed from the *same* records (ghost clipping: Li et al. 2022; book-keeping: Bu et al.
2023). A use of a weight that escapes the books therefore costs accuracy, never privacy; `self_check` finds it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from transformers.models.opt.modeling_opt import OPTDecoderLayer, OPTLearnedPositionalEmbedding
from transformers.pytorch_utils import Conv1D

from palimpsest.training.engine import ClippedSum, EngineError, Gradients, Losses
from palimpsest.training.ghost import (
    Contribution,
    Ghost,
    GhostRule,
    KeptGradients,
    WeightUse,
    ghost_is_cheaper,
    stack_contributions,
)
from palimpsest.training.scaling import Scaling, scaling_of, table_scale

Record = tuple[
    torch.Tensor | None, WeightUse | KeptGradients
]  # a weight matrix's use, or a vector's per-example gradients
Rule = Callable[[Any, torch.Tensor, torch.Tensor], Iterator[Record]]  # (layer, inputs, output gradient) -> records


class BookkeepingEngine:
    """Clipped sums for models made of Linear, Conv1D, Embedding, LayerNorm and RMSNorm layers.

    These are what GPT-2, Llama, Qwen, Mistral, Gemma, OPT and Phi are made of, and peft's LoRA matrices. A table may
    multiply its rows by a constant, as Gemma's does. Weights may be used several times and
    shared between layers, as GPT-2's table and head are. Frozen layers are not booked. Which parameters train is fixed
    when the engine is built.

    Guarantee: the norm of an example is that of its whole gradient over all trainable parameters, so its share of the
    sum is at most C. An example whose gradient is not finite is zeroed before the sum. Norms are computed in the
    parameters' dtype, also under bfloat16 autocast, and are never below the norm of what is summed. Sums are float64.

    Raises:
        EngineError: a trainable parameter sits in a layer without a rule or is narrower than float32, a layer mixes
            examples, or products of float32 matrices are rounded to fewer digits.
    """

    def __init__(self, model: nn.Module, prefer_ghost: GhostRule = ghost_is_cheaper) -> None:
        """Attach to `model`, whose modules are hooked only while its examples are read."""
        self._prefer_ghost = prefer_ghost
        self._names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
        _refuse_half_precision(self._names)
        _refuse_rounded_products(next(iter(self._names)).device)
        self._rules = _rules(model, self._names)
        self._flattened = {
            layer for block in model.modules() if isinstance(block, OPTDecoderLayer) for layer in block.modules()
        }

    def clipped_sums(
        self,
        losses: Losses,
        batch_size: int,
        clipping_norm: float,
        totals: Sequence[Gradients] | None = None,
        group: int = 1,
        weights: torch.Tensor | None = None,
        seeds: torch.Tensor | None = None,
    ) -> list[ClippedSum]:
        """Return for each loss the sum over examples of `weight * gradient * min(1, clipping_norm / |gradient|)`.

        An example is `group` rows side by side; its gradient is the gradient of the sum of their losses. There is one
        forward pass, and one backward pass for each loss.

        Guarantee: adding or removing one example changes each returned sum by at most `weight * clipping_norm` in L2
        norm over all trainable parameters together, provided that the losses of a row depend on that row alone.

        Args:
            losses: runs the model once and returns one tensor for each loss, (batch_size,) values, one for each row.
            batch_size: the number of rows, at least 1, a multiple of `group`.
            clipping_norm: C > 0; infinity leaves every finite gradient as it is.
            totals: one for each loss, the sums of earlier micro-batches; the new sums are added to them in place.
            group: rows of an example.
            weights: (batch_size / group,) float64 between 0 and 1; none means 1. An example of weight 0 adds nothing,
                whatever its gradient.
            seeds: (batch_size / group,) int32, public functions of each example and the step, for an engine that rounds
                by them.

        Raises:
            EngineError: the losses or the model cannot be treated exactly.
        """
        weights = torch.ones(batch_size // group, dtype=torch.float64) if weights is None else weights
        results = []
        for index, contributions in enumerate(self.book_losses(losses, batch_size, group)):
            total = {} if totals is None else totals[index]
            results.append(self._clip(contributions, weights, clipping_norm, total, seeds))
        return results

    def book_losses(
        self, losses: Losses, batch_size: int, group: int = 1
    ) -> Iterator[dict[torch.Tensor, Contribution]]:
        """Yield for each loss the contribution of each example to each parameter, the source of norms and sums."""
        books = _Books(self._prefer_ghost, batch_size, group)
        with self._booking(books), torch.enable_grad():
            values = losses()
            for index, value in enumerate(values):
                _require_per_example(value, batch_size)
                with torch.autocast(value.device.type, enabled=False):  # a caller's would round norms and sums
                    if value.requires_grad:
                        value.sum().backward(retain_graph=index + 1 < len(values))
                    yield books.close()

    def list_bits(self, contributions: dict[torch.Tensor, Contribution], _clipping_norm: float) -> list[torch.Tensor]:
        """Return all that the norms and sums of a batch are computed from, and the norms, examples first."""
        stacks = stack_contributions(contributions)
        return [part for stack in stacks for part in (*stack.tensors(), stack.squared_norms())]

    @contextmanager
    def _booking(self, books: "_Books") -> Iterator[None]:
        handles = []
        try:
            for parameter in self._names:
                parameter.requires_grad_(False)
            for layer in self._rules:
                handles.append(layer.register_forward_hook(partial(self._book_output, books), with_kwargs=True))
                if isinstance(layer, nn.Embedding):
                    handles.append(layer.register_forward_pre_hook(partial(_own_ids, batch_size=books.rows)))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for parameter in self._names:
                parameter.requires_grad_(True)

    def _book_output(
        self, books: "_Books", layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor
    ) -> torch.Tensor:
        (name, rule), batch_size, group = self._rules[layer], books.rows, books.group
        flattened = layer in self._flattened and output.dim() == 2
        if output.dim() < 2 or (output.size(0) != batch_size and not flattened):
            raise EngineError(
                f"The layer {name!r} got a tensor whose first dimension is not the batch: examples "
                "cannot be told apart.",
                "Keep the batch first: (batch, ..., features).",
            )
        inputs = _inputs(layer, args, kwargs, output)
        books.expect(layer, output)

        def book(inputs: torch.Tensor, gradient: torch.Tensor) -> None:
            if flattened:  # (batch * time, features), the examples one after another
                inputs, gradient = (part.reshape(batch_size, -1, part.size(-1)) for part in (inputs, gradient))
            if group > 1:  # the rows of an example are one long row: their gradients add up
                inputs, gradient = (part.unflatten(0, (-1, group)) for part in (inputs, gradient))
            for parameter, record in rule(layer, inputs, gradient):
                if parameter in self._names:
                    books.add(parameter, record)

        return _Booked.apply(output, inputs, books.anchor, book)

    @torch.no_grad()
    def _clip(
        self,
        contributions: dict[torch.Tensor, Contribution],
        weights: torch.Tensor,
        clipping_norm: float,
        totals: Gradients,
        _seeds: torch.Tensor | None = None,
    ) -> ClippedSum:
        like = next(iter(self._names))
        weights = weights.to(like.device)
        stacks = sorted(stack_contributions(contributions), key=lambda stack: stack.size)
        norms = sum((stack.squared_norms() for stack in stacks), torch.zeros_like(weights)).sqrt()
        finite = torch.isfinite(norms)
        kept = finite & (weights > 0)
        factors = (clipping_norm / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
        factors = torch.where(kept, factors * weights, torch.zeros_like(factors))
        all_kept = bool(kept.all())
        while stacks:
            part = stacks.pop()  # the largest records are freed first
            part = part if all_kept else part.mask(kept)
            part.add_weighted(factors, [self._total(parameter, totals) for parameter in part.parameters])
        return ClippedSum(totals, norms)

    def _total(self, parameter: torch.Tensor, totals: Gradients) -> torch.Tensor:
        """Return the parameter's sum, which begins at zero."""
        name = self._names[parameter]
        if name not in totals:
            totals[name] = zeros(parameter)
        return totals[name]


def room(parameters: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, Gradients]:
    """Return zero sums for all parameters, in one piece (all coordinates,) float64, and its parts by parameter name."""
    sizes = [parameter.numel() for parameter in parameters.values()]
    whole = torch.zeros(sum(sizes), dtype=torch.float64, device=next(iter(parameters.values())).device)
    return whole, {
        name: part.view(parameter.shape)
        for (name, parameter), part in zip(parameters.items(), whole.split(sizes), strict=True)
    }


def zeros(parameter: torch.Tensor) -> torch.Tensor:
    """Return the sum of no gradients: float64, in the parameter's shape."""
    return torch.zeros_like(parameter, dtype=torch.float64, memory_format=torch.contiguous_format)


class _Books:
    """The records of the layers during one pass over `rows` rows, with `group` rows to an example."""

    def __init__(self, prefer_ghost: GhostRule, rows: int, group: int) -> None:
        self._prefer_ghost, self.rows, self.group = prefer_ghost, rows, group
        self.anchor = torch.zeros((), requires_grad=True)  # makes the first booked output part of the graph
        self._tokens: Counter[torch.Tensor] = Counter()  # rows of Gram matrices that a weight's uses will need
        self._uses: dict[torch.Tensor, list[WeightUse]] = {}
        self._kept: dict[torch.Tensor, torch.Tensor] = {}

    def expect(self, layer: nn.Module, output: torch.Tensor) -> None:
        """Note in the forward pass how long a matrix's records will be."""
        if isinstance(layer, (nn.Linear, Conv1D)):
            self._tokens[layer.weight] += output.numel() // (self.rows // self.group * output.size(-1))

    def add(self, parameter: torch.Tensor, record: WeightUse | KeptGradients) -> None:
        """Book one use in the backward pass; where gradients are kept, the factors are freed at once."""
        if isinstance(record, KeptGradients):
            self._keep(parameter, record.gradients)
        elif self._prefer_ghost(self._tokens[parameter], *parameter.shape):
            self._uses.setdefault(parameter, []).append(record)
        else:
            self._kept[parameter] = record.gradients(parameter, self._kept.get(parameter))

    def close(self) -> dict[torch.Tensor, Contribution]:
        """Return what was booked since the last call, by parameter."""
        for parameter in self._uses.keys() & self._kept.keys():
            for use in self._uses.pop(parameter):
                self._kept[parameter] = use.gradients(parameter, self._kept[parameter])
        contributions: dict[torch.Tensor, Contribution] = {p: Ghost(tuple(uses)) for p, uses in self._uses.items()}
        contributions |= {p: KeptGradients(gradients) for p, gradients in self._kept.items()}
        self._uses, self._kept = {}, {}
        return contributions

    def _keep(self, parameter: torch.Tensor, gradients: torch.Tensor) -> None:
        known = self._kept.get(parameter)
        self._kept[parameter] = gradients.to(parameter.dtype) if known is None else known + gradients


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


def _require_per_example(values: torch.Tensor, batch_size: int) -> None:
    if values.shape != (batch_size,):
        raise EngineError(
            f"The loss has shape {tuple(values.shape)!r} where one value per example, ({batch_size},), is due.",
            "Return per-example losses, each computed from that example alone.",
        )


def _inputs(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor) -> torch.Tensor:
    """Return what the layer computed its output from: ids of a table, or values in the precision they were used in."""
    if isinstance(layer, OPTLearnedPositionalEmbedding):
        if kwargs.get("position_ids") is None:
            raise EngineError("OPT's position table was called without position_ids.", "Call it through the decoder.")
        return kwargs["position_ids"] + layer.offset
    inputs: torch.Tensor = (args[0] if args else next(iter(kwargs.values()))).detach()
    rounded = isinstance(layer, (nn.Linear, Conv1D)) and inputs.dtype != output.dtype  # by autocast
    return inputs.to(output.dtype) if rounded else inputs


def _own_ids(layer: nn.Module, args: tuple[Any, ...], *, batch_size: int) -> tuple[Any, ...]:
    """Give each example its own position ids, which may arrive once for all examples, (1, T)."""
    if args and args[0].dim() > 1 and args[0].size(0) == 1:
        return (args[0].expand(batch_size, *args[0].shape[1:]), *args[1:])
    return args


def _tokens(values: torch.Tensor) -> torch.Tensor:
    """Reshape (B, ..., n) to (B, T, n)."""
    return values.reshape(values.size(0), -1, values.size(-1))


def _linear(layer: nn.Linear, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    yield layer.weight, WeightUse(_tokens(gradient), _tokens(inputs))
    if layer.bias is not None:
        yield layer.bias, KeptGradients(_sum_between(gradient, layer.bias))


def _conv1d(layer: Conv1D, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    yield layer.weight, WeightUse(_tokens(inputs), _tokens(gradient))
    yield layer.bias, KeptGradients(_sum_between(gradient, layer.bias))


def _embedding(layer: nn.Embedding, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    if layer.padding_idx is not None:
        gradient = gradient.masked_fill((inputs == layer.padding_idx)[..., None], 0.0)
    yield layer.weight, WeightUse(inputs.reshape(inputs.size(0), -1), _tokens(gradient))


def _scaled_table(scale: float, layer: nn.Embedding, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    yield from _embedding(layer, inputs, gradient * scale)  # output = scale * row, so the row's gradient has the factor


def _layer_norm(layer: nn.LayerNorm, inputs: torch.Tensor, gradient: torch.Tensor) -> Iterator[Record]:
    if layer.weight is not None:
        normalised = functional.layer_norm(inputs.to(gradient.dtype), layer.normalized_shape, eps=layer.eps)
        yield layer.weight, KeptGradients(_sum_between(gradient * normalised, layer.weight))
    if layer.bias is not None:
        yield layer.bias, KeptGradients(_sum_between(gradient, layer.bias))


def _sum_between(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Sum (B, ..., *shape) over the dimensions in between, in the dtype of the parameter `like`: (B, *shape)."""
    between = tuple(range(1, values.dim() - like.dim()))
    return values.sum(between, dtype=like.dtype) if between else values.to(like.dtype)


_RULES: dict[type, Rule] = {
    nn.Linear: _linear,
    Conv1D: _conv1d,
    nn.Embedding: _embedding,
    OPTLearnedPositionalEmbedding: _embedding,
    nn.LayerNorm: _layer_norm,
}


def _record_scaling(
    scaling: Scaling, layer: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor
) -> Iterator[Record]:
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    yield weight, KeptGradients(_sum_between(gradient * scaling.slope(inputs), weight))


def _rules(model: nn.Module, trainable: Mapping[torch.Tensor, str]) -> dict[nn.Module, tuple[str, Rule]]:
    """Return the names and rules of the layers that hold trainable parameters."""
    rules = {}
    for name, layer in model.named_modules():
        if isinstance(layer, _NormBase):
            raise EngineError(
                f"The layer {name!r} ({type(layer).__name__}) mixes the examples of a batch or remembers them.",
                "Use LayerNorm, which treats each example alone.",
            )
        if any(parameter in trainable for parameter in layer.parameters(recurse=False)):
            rules[layer] = name, _rule_of(name, layer)
    return rules


def _refuse_half_precision(trainable: Mapping[torch.Tensor, str]) -> None:
    for parameter, name in trainable.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise EngineError(
                f"The trainable parameter {name!r} is {parameter.dtype}: its grid would show through the noise.",
                "Load the model in float32; bf16 autocast may still compute with half of it.",
            )


# Whole numbers of up to 12 bits. A row is shorter than 2^12, so that float32 holds every sum of an inner product.
_KNOWN = 3001.0 * torch.eye(64, 128, dtype=torch.float64)
_KNOWN += torch.arange(64 * 128, dtype=torch.float64).mul(37).remainder(199).sub(99).view(64, 128)
# Whole numbers just below 2^24, in rows of 32: every inner product is just below 2^53 and takes all digits of float64.
_LONG = (1 << 24) - 1 - torch.arange(64 * 32).mul(7_368_787).remainder(65_521).view(64, 32)


def _refuse_rounded_products(device: torch.device) -> None:
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # torch cannot tell where its newer switches and this older one were set against each other
        raise EngineError(
            "torch's switches for products of float32 matrices contradict each other: their digits are not known.",
            "Set torch.backends.fp32_precision, torch.backends.mkldnn.fp32_precision and "
            "torch.backends.cuda.matmul.fp32_precision to 'ieee', or leave all of them as they are.",
        ) from None
    if precision != "highest":
        raise EngineError(
            "torch is set to compute products of float32 matrices with fewer digits: norms would be wrong.",
            "Call torch.set_float32_matmul_precision('highest').",
        )
    here = _KNOWN.to(device, torch.float32)[None]
    with torch.autocast(device.type, enabled=False):
        found = torch.bmm(here, here.mT)[0].cpu().double()
        long = _LONG.to(device, torch.float64)
        sums = (long @ long.T).cpu()
    if not torch.equal(sums, (_LONG @ _LONG.T).double()):  # as where they are made of products of fewer digits
        raise EngineError(
            f"Products of float64 matrices on {device} have fewer digits than float64: sums would be wrong.",
            "Unset what has the device's library emulate them, or use another device.",
        )
    if not torch.equal(found, _KNOWN @ _KNOWN.T):  # environment variables can lower the precision unseen
        raise EngineError(
            f"Products of float32 matrices on {device} have fewer digits than float32: norms would be wrong.",
            "Unset NVIDIA_TF32_OVERRIDE and MKL_BLAS_COMPUTE_MODE, or use another device.",
        )


def _recognise_rule(layer: nn.Module) -> Rule | None:
    """Return the rule of a layer that is recognised by what it does: a scaling, or a table times a constant."""
    if isinstance(layer, nn.Embedding):
        scale = table_scale(layer)
        return None if scale is None else partial(_scaled_table, scale)
    scaling = scaling_of(layer)
    return None if scaling is None else partial(_record_scaling, scaling)


def _rule_of(name: str, layer: nn.Module) -> Rule:
    # A subclass may change what forward does, so only the exact types have rules.
    rule = _RULES.get(type(layer)) or _recognise_rule(layer)
    if rule is None:
        raise EngineError(
            f"The layer {name or 'model'!r} ({type(layer).__name__}) trains without a per-example rule.",
            f"Freeze it (requires_grad_(False)), train LoRA matrices in its place, or build it from "
            f"{', '.join(t.__name__ for t in _RULES)}, an RMSNorm or a table times a constant.",
        )
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        raise EngineError(
            f"The embedding {name!r} uses max_norm, scale_grad_by_freq or sparse gradients, which mix examples.",
            "Build it without these options.",
        )
    return rule
