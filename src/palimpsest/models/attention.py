"""What a causal model does beyond plain attention and a plain head: windows that slide, and logits that are capped."""

import torch
from transformers import PreTrainedConfig, PreTrainedModel

_FULL, _SLIDING = "full_attention", "sliding_attention"

Masks = torch.Tensor | dict[str, torch.Tensor]  # one for all layers, or one for each kind of layer


def masks_of(config: PreTrainedConfig, visible: torch.Tensor, apart: torch.Tensor, dtype: torch.dtype) -> Masks:
    """What to add to attention scores where every position is said whole: 0 where visible, the lowest number elsewhere.

    Args:
        config: of the model; layers with a sliding window see only so many tokens, themselves included.
        visible: bool (rows, 1, queries, columns).
        apart: int64, how many tokens each column is older than the query; of a shape that broadcasts to `visible`.
        dtype: of the scores.
    """
    text = config.get_text_config()
    window, kinds = getattr(text, "sliding_window", None), getattr(text, "layer_types", None)
    if not window or (kinds is not None and _SLIDING not in kinds):
        return _additive(visible, dtype)
    near = _additive(visible & (apart < window), dtype)
    return near if kinds is None else {_FULL: _additive(visible, dtype), _SLIDING: near}


def cap_of(model: PreTrainedModel) -> float | None:
    """The bound that the model presses its logits under, as Gemma 2 does; None where they are its head's output."""
    cap: float | None = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return cap


def capped(logits: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Logits of a head's output."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)
