"""Causal models of many kinds: features beyond plain attention, and functions of logits, a part of them at a time.

Features are sliding windows, soft caps, mixtures of experts. With 262,144 tokens the logits of sixteen texts of 64
tokens take a GiB, and their gradient another. So they are computed only where a token is predicted and a few at once,
and a backward pass computes them again.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from palimpsest.errors import ModelError

_ONE_QUERY = "palimpsest_one_query"
_FULL, _SLIDING = "full_attention", "sliding_attention"

Masks = torch.Tensor | dict[str, torch.Tensor]  # one for all layers, or one for each kind of layer
MOST_LOGITS = 1 << 25  # logits that are there at once: 128 MiB in float32
_BLOCK = 1024  # rows of a table: what they give for a hundred states stays in a processor's cache
_SEVERAL = 8  # states that are worth it

Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits (k, vocabulary), targets (k,) -> (k, ...)


def masks_of(config: PreTrainedConfig, visible: torch.Tensor, apart: torch.Tensor, dtype: torch.dtype) -> Masks:
    """Return the additive attention mask of all positions: 0 where visible, the lowest number elsewhere.

    Args:
        config: the model's; layers with a sliding window see only so many tokens, the query's own included.
        visible: bool (rows, 1, queries, columns).
        apart: int64, by how many tokens each column is older than the query; its shape broadcasts to `visible`.
        dtype: type of the scores.
    """
    text = config.get_text_config()
    window, kinds = getattr(text, "sliding_window", None), getattr(text, "layer_types", None)
    if not window or (kinds is not None and _SLIDING not in kinds):
        return _additive_mask(visible, dtype)
    near = _additive_mask(visible & (apart < window), dtype)
    return near if kinds is None else {_FULL: _additive_mask(visible, dtype), _SLIDING: near}


def attend_by_products(model: PreTrainedModel) -> None:
    """Let a model in float32 attend from single tokens by two products: a third faster than torch's on a processor."""
    chosen = model.config.get_text_config()._attn_implementation  # noqa: SLF001 - it is told nowhere else
    if chosen == "sdpa" and model.device.type == "cpu" and model.dtype == torch.float32:
        model.set_attn_implementation(_ONE_QUERY)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Return what each head makes of the values, (rows, queries, heads, head width)."""
    rows, heads, queries, width = query.shape
    if queries > 1 or mask is None:
        return sdpa_attention_forward(module, query, key, value, mask, **more)
    sharing = query.view(rows, key.shape[1], -1, width)  # heads of the same keys are rows of one product
    scores = (sharing @ key.mT) * (more.get("scaling") or width**-0.5) + mask
    return (scores.softmax(dim=-1) @ value).view(rows, 1, heads, width), None


AttentionInterface.register(_ONE_QUERY, _attend)
AttentionMaskInterface.register(_ONE_QUERY, sdpa_mask)


def cap_of(model: PreTrainedModel) -> float | None:
    """The bound of the model's soft-capped logits, as in Gemma 2; None where the logits are its head's output."""
    cap: float | None = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return cap


def cap_logits(logits: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Apply the cap to a head's output."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """The transformer blocks, under any architecture's name for them.

    Raises:
        ModelError: there is no such list of modules.
    """
    depth = model.config.get_text_config().num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    raise ModelError(
        "The model's transformer blocks were not found.",
        "Use a model such as GPT-2, Llama, Qwen, Mistral, Gemma, OPT or Phi, or freeze no blocks.",
    )


def _additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)


def is_mixture(model: nn.Module) -> bool:
    """Return whether the model, or one inside it, sends tokens to experts.

    An expert processes the tokens of all texts that are sent to it, so the shapes of its products are not public.
    """
    parts = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    settings = [setting for part in parts for setting in part.config.get_text_config().to_dict().items()]
    return any("experts" in name and isinstance(value, int) and value > 1 for name, value in settings)


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

    size = max(1, MOST_LOGITS // len(model.get_output_embeddings().weight))
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
