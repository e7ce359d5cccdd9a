"""Products of float32 matrices by oneDNN, for models that are only read: on AMD processors torch's own take twice as
long.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

_SEVERAL = 8  # rows that are worth it: weights that are not packed are read once more


class Packed(nn.Module):
    """A linear layer (..., inputs) -> (..., outputs) without gradients. Copies and pickles are packed anew."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Pack a weight (outputs, inputs) and its bias (outputs,)."""
        super().__init__()
        self._bias = bias
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())  # noqa: SLF001 - no other way

    def __reduce__(self) -> tuple[type["Packed"], tuple[torch.Tensor, torch.Tensor | None]]:
        return Packed, (self._weight.to_dense(), self._bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs @ weight.T + bias."""
        return _multiply(inputs, self._weight, self._bias)


def pack_layers(model: nn.Module) -> None:
    """Replace the linear layers of a model in float32 where oneDNN serves; a layer that others have changed stays."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear | Conv1D) and _is_plain(layer):
                weight = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
                setattr(parent, name, Packed(weight, layer.bias))


def _is_plain(layer: nn.Linear | Conv1D) -> bool:
    return type(layer) in (nn.Linear, Conv1D) and "forward" not in vars(layer) and _serves(layer.weight)


class QuickProducts(TorchFunctionMode):
    """While it is entered, linear layers of several rows are oneDNN's products. Gradients reach their inputs alone."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is functional.linear and not kwargs:
            return multiply(*args)
        if func is torch.addmm and not kwargs:
            bias, inputs, weight = args
            return multiply(inputs, weight.T, bias)
        return func(*args, **(kwargs or {}))


def multiply(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return inputs (..., k) @ weight (m, k).T + bias (m,); no gradient reaches weight and bias from 8 rows on."""
    several = inputs.numel() >= _SEVERAL * inputs.shape[-1]
    if not several or inputs.dtype != torch.float32 or not _serves(weight):
        return functional.linear(inputs, weight, bias)
    made: torch.Tensor = _Product.apply(inputs, weight, bias)
    return made


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.weight = weight
        return _multiply(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _multiply(gradient, ctx.weight.T, None), None, None


def _multiply(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 - what else takes packed weights needs packed inputs
    made: torch.Tensor = product(inputs, weight, bias, "none", [], "")
    return made


def _serves(weight: torch.Tensor) -> bool:
    here = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return here and weight.is_cpu and weight.dtype == torch.float32
