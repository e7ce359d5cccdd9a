"""Computes functions of a causal model's logits, a part of the logits at a time.

With 262,144 tokens the logits of sixteen texts of 64 tokens take a GiB, and their gradient another. So they are
computed only where a token is predicted and a few at once, and a backward pass computes them again.
"""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from palimpsest.errors import ModelError
from palimpsest.models.attention import cap_logits, cap_of

MOST = 1 << 25  # logits that are there at once: 128 MiB in float32
_BLOCK = 1024  # rows of a table: what they give for a hundred states stays in a processor's cache
_SEVERAL = 8  # states that are worth it

Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits (k, vocabulary), targets (k,) -> (k, ...)


def states(model: PreTrainedModel, tokens: torch.Tensor, front: torch.Tensor | None = None) -> torch.Tensor:
    """Last hidden states (rows, time, width) of right-padded tokens (rows, time).

    `front` are token embeddings (rows, n, width) before every row; their own states are left out.
    """
    given = {"input_ids": tokens}
    if front is not None:
        given = {"inputs_embeds": torch.cat([front, model.get_input_embeddings()(tokens)], dim=1)}
    before = 0 if front is None else front.shape[1]
    everywhere = tokens.new_ones(len(tokens), before + tokens.shape[1])  # padding follows the text: no mask is needed
    hidden: torch.Tensor = model.base_model(**given, attention_mask=everywhere, use_cache=False).last_hidden_state
    return hidden[:, before:]


def logits_of(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Next-token logits (..., vocabulary) of last hidden states (..., width)."""
    return cap_logits(model.get_output_embeddings()(hidden), cap_of(model))


def block_of(states: torch.Tensor, table: torch.Tensor) -> int:
    """Return how many rows of a table (vocabulary, width) a product with states (n, width) takes at once.

    In float32 on a processor, a block at a time takes .7 to .9 of the time for 8 to 100 states; in bf16 more than 1.
    """
    blocks = len(states) >= _SEVERAL and table.device.type == "cpu" and table.dtype == torch.float32
    return _BLOCK if blocks else len(table)


def drawn_logits(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """`logits_of` for drawing, of states (n, width), reading the head's table in blocks: equal except for rounding."""
    head, cap = model.get_output_embeddings(), cap_of(model)
    if type(head) is not nn.Linear or (size := block_of(hidden, head.weight)) == len(head.weight):
        return logits_of(model, hidden)
    biases = repeat(None) if head.bias is None else head.bias.split(size)
    parts = zip(head.weight.split(size), biases, strict=False)
    return cap_logits(torch.cat([functional.linear(hidden, *part) for part in parts], dim=-1), cap)


def cross_entropies(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy in nats of each target, float32 (k,)."""
    return functional.cross_entropy(logits.float(), targets, reduction="none")


def measure_logits(
    model: PreTrainedModel, hidden: torch.Tensor, targets: torch.Tensor, measure: Measure = cross_entropies
) -> torch.Tensor:
    """`measure` of the logits at n positions, (n, ...), from last hidden states (n, width) and targets int64 (n,)."""

    def part(some: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return measure(logits_of(model, some), wanted)

    size = max(1, MOST // len(model.get_output_embeddings().weight))
    if len(hidden) <= size:
        return part(hidden, targets)
    parts = zip(hidden.split(size), targets.split(size), strict=True)
    return torch.cat([checkpoint(part, *both, use_reentrant=False, preserve_rng_state=False) for both in parts])


@torch.no_grad()
def require_plain_head(model: PreTrainedModel) -> None:
    """Raise ModelError where a model computes its logits by more than its head and a cap."""
    training, tokens = model.training, torch.arange(4, device=model.device)[None]
    model.eval()  # dropout would make two passes differ
    own, plain = model(tokens).logits, logits_of(model, states(model, tokens))
    model.train(training)
    if not torch.allclose(plain, own, rtol=1e-4, atol=1e-4):
        raise ModelError(
            "The model changes its logits behind its head by more than a cap, which is not supported.",
            "Use a model whose logits are its head's output, capped or not, such as GPT-2, Llama, Qwen, Mistral, "
            "Gemma, OPT or Phi.",
        )
