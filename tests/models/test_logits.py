"""Logits in parts come to what they come to whole, and a head that does more is refused."""

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM

from palimpsest.errors import ModelError
from palimpsest.models import attention
from palimpsest.models.attention import drawn_logits, logits_of, measure_logits, require_plain_head, states
from tests.families import family


@pytest.mark.parametrize("kind", ["gemma2", "phi"])  # capped; with a bias
def test_parts_give_the_losses_and_gradients_of_the_models_own_logits(kind: str, monkeypatch) -> None:
    model, seen = family(kind, 70, 8, 32), []
    require_plain_head(model)
    tokens = torch.arange(24).view(2, 12)
    model(input_ids=tokens, labels=tokens).loss.backward()
    wanted = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    monkeypatch.setattr(attention, "MOST_LOGITS", 5 * 70 + 1)
    model.get_output_embeddings().register_forward_hook(lambda *given: seen.append(len(given[2])))
    losses = measure_logits(model, states(model, tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    losses.mean().backward()
    assert max(seen) == 5
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, wanted[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["gemma2", "phi"])  # capped; with a bias
@pytest.mark.parametrize("rows", [1, 9])
def test_a_table_in_blocks_gives_what_it_gives_whole(kind: str, rows: int, monkeypatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK", 16)
    model, width = family(kind, 70, 8, 32), 8
    if model.get_output_embeddings().bias is not None:
        torch.nn.init.normal_(model.get_output_embeddings().bias)
    hidden = torch.randn(rows, width, generator=torch.Generator().manual_seed(1)).requires_grad_()
    weights = torch.randn(rows, 70, generator=torch.Generator().manual_seed(2))
    found, wanted = drawn_logits(model, hidden), logits_of(model, hidden)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad((part * weights).sum(), hidden)[0] for part in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_logits_that_are_scaled_behind_the_head_are_refused() -> None:
    granite = GraniteConfig(
        num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=270, logits_scaling=8.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with pytest.raises(ModelError, match="behind its head"):
        require_plain_head(GraniteForCausalLM(granite))
