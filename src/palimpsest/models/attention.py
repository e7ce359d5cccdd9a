"""Features of causal models beyond plain attention: sliding windows, soft caps, mixtures of experts."""

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from palimpsest.errors import ModelError

_ONE_QUERY = "palimpsest_one_query"
_FULL, _SLIDING = "full_attention", "sliding_attention"

Masks = torch.Tensor | dict[str, torch.Tensor]  # one for all layers, or one for each kind of layer


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
