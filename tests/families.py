"""Small random models of the families of causal models that people use, made from their configurations."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_GEMMA = {"head_dim": 4, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 3},
    "qwen2": {"use_sliding_window": True, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]},
    "qwen3": {"head_dim": 4},
    "gemma": {"head_dim": 4},
    "gemma2": {**_GEMMA, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 2.0},
    "gemma3_text": _GEMMA,
    "phi": {},
    "phi3": {"sliding_window": 3},
    "smollm3": {},
}


def family(kind: str, vocabulary: int, width: int, context: int) -> PreTrainedModel:
    """Two layers with two heads; windows of three tokens where the family has windows."""
    config = AutoConfig.for_model(
        kind, vocab_size=vocabulary, hidden_size=width, intermediate_size=12, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2 if kind == "phi" else 1, max_position_embeddings=context,
        bos_token_id=0, eos_token_id=0, pad_token_id=1, **FAMILIES[kind],
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)  # the same model whatever was drawn before
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.eval()
