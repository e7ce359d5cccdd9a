"""Hidden states behind a block: those that the model itself tells of, and what moves when they are moved."""

import numpy as np
import pytest
import torch
from torch import nn

from palimpsest.errors import ModelError
from palimpsest.models.activations import Activations, shift_states
from palimpsest.models.attention import blocks
from palimpsest.models.tokens import train_tokenizer
from tests.families import FAMILIES, family
from tests.methods.two_classes import two_class_records

TEXTS = [*[record.text for record in two_class_records()][:5], "", "A", "The lamp is great and fine, and lovely."]


@pytest.fixture(scope="module")
def loaded():
    tokenizer = train_tokenizer(TEXTS, 300, 48)
    return family("qwen3", len(tokenizer), 8, 48), tokenizer


def told(model, tokenizer, text: str, block: int, most: int) -> np.ndarray:
    """The mean of what the model tells of its states, each text by itself."""
    ids = tokenizer.encode(text, add_special_tokens=False)[:most]
    if not ids:
        return np.zeros(model.config.hidden_size, dtype=np.float32)
    with torch.no_grad():
        states = model(torch.tensor([[0, *ids]]), output_hidden_states=True).hidden_states[block + 1]
    return states[0, 1:].mean(dim=0).numpy()


def test_states_are_those_that_the_model_tells_of(loaded):
    model, tokenizer = loaded
    reader = Activations(model, tokenizer, 0, [0], 12)
    own = np.stack([told(model, tokenizer, text, 0, 12) for text in TEXTS])
    assert np.allclose(reader.encode_batch(TEXTS), own, atol=1e-5)
    assert reader.dimension == own.shape[1]


def test_a_text_read_by_itself_has_the_bits_that_it_has_alone(loaded):
    reader = Activations(*loaded, 0, [0], 12)
    for text in TEXTS:
        assert np.array_equal(reader.encode_batch([text]), reader.encode_batch([text]))


def test_the_blocks_behind_are_not_run(loaded):
    model, tokenizer = loaded
    ran = []
    handle = blocks(model)[1].register_forward_hook(lambda *_: ran.append(1))
    Activations(model, tokenizer, 0, [0], 12).encode_batch(TEXTS)
    handle.remove()
    assert ran == []


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_family_is_read_and_moved(kind):
    model = family(kind, 40, 8, 32)
    tokens, shift = torch.arange(6)[None] + 3, np.linspace(-1.0, 1.0, 8)
    with torch.no_grad():
        before = model(tokens, output_hidden_states=True)
        with shift_states(model, 0, shift):
            after = model(tokens)
        again = model(tokens)
    assert len(blocks(model)) == 2
    assert not torch.allclose(after.logits, before.logits)
    assert torch.equal(again.logits, before.logits)  # nothing stays behind
    seen = []
    handle = blocks(model)[1].register_forward_pre_hook(lambda _block, given: seen.append(given[0]))
    with torch.no_grad(), shift_states(model, 0, shift):
        model(tokens)
    handle.remove()
    assert torch.allclose(seen[0], before.hidden_states[1] + torch.tensor(shift, dtype=torch.float32), atol=1e-6)


def test_a_text_that_does_not_fit_is_refused_before_any_is_read(loaded):
    with pytest.raises(ModelError, match="has 48") as caught:
        Activations(*loaded, 0, [0], 48)
    assert "Lower max_tokens" in caught.value.remedy


def test_a_model_without_blocks_says_so(loaded):
    class Other(nn.Module):
        config = loaded[0].config
        base_model = nn.Linear(1, 1)

    with pytest.raises(ModelError, match="not found"):
        blocks(Other())  # type: ignore[arg-type]
