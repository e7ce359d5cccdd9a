"""Products and attention of a model that is only read: the same numbers, nearly, and the same bits in a copy."""

import copy
import pickle

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from palimpsest.models.products import Packed, QuickProducts, pack_layers
from palimpsest.prediction.contexts import Contexts, Shape, give_dtype
from tests.prediction.tiny import KINDS, model

PROMPTS = [[0, 9, 5, 77], [0, 4], [0, 200, 31, 8, 8, 90, 14]]


def states(given: torch.nn.Module) -> torch.Tensor:
    """The states after the prompts and one more token."""
    contexts, everyone = Contexts(given, PROMPTS, Shape(4, 8, 8, 4)), torch.ones(3, dtype=torch.bool)
    contexts.step(torch.tensor([5, 6, 7]), everyone, everyone)
    return contexts.hidden(0, 3).clone()


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_only_read_reads_the_same(kind: str) -> None:
    given = copy.deepcopy(model(kind))
    wanted = states(given)
    give_dtype(given, torch.float32)
    assert any(isinstance(layer, Packed) for layer in given.modules())
    assert given.config._attn_implementation != "sdpa"  # noqa: SLF001
    found = states(given)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    assert torch.equal(states(copy.deepcopy(given)), found)
    assert torch.equal(states(pickle.loads(pickle.dumps(given))), found)


def test_a_layer_that_another_library_has_changed_stays() -> None:
    layers = torch.nn.Sequential(Conv1D(3, 2), Conv1D(3, 3))
    layers[0].forward = torch.zeros_like
    pack_layers(layers)
    assert [type(layer) for layer in layers] == [Conv1D, Packed]


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("kind", [Conv1D, torch.nn.Linear])
def test_quick_products_are_the_layers_and_reach_inputs(kind: type[torch.nn.Module], rows: int) -> None:
    layer, inputs = kind(5, 6) if kind is Conv1D else kind(6, 5), torch.randn(rows, 1, 6, requires_grad=True)
    wanted = layer(inputs)
    (slope,) = torch.autograd.grad(wanted.square().sum(), inputs)
    with QuickProducts():
        found = layer(inputs)
    torch.testing.assert_close(found, wanted)
    own, weight = torch.autograd.grad(found.square().sum(), [inputs, layer.weight], allow_unused=True)
    torch.testing.assert_close(own, slope)
    assert (weight is None) == (rows == 9)
