"""Tiny random models whose next token depends strongly on what they read, and the tokenizer they share."""

from functools import cache

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from palimpsest.models.tokens import train_tokenizer
from tests.families import FAMILIES, family

VOCABULARY, CONTEXT = 270, 96
KINDS = ("gpt2", "llama", "opt")
EVERY = (*KINDS, *FAMILIES)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, three special tokens and a few pairs."""
    return train_tokenizer(["the lamp hums in the hall", "a kettle leaks"], VOCABULARY, CONTEXT)


@cache
def model(kind: str = "gpt2") -> PreTrainedModel:
    """A random model; its weights are large, so its logits are far apart."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        own = {"gpt2": _gpt2, "llama": _llama, "opt": _opt}
        made = own[kind]() if kind in own else family(kind, len(tokenizer()), 24, CONTEXT)
        for weight in made.base_model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.35)
        made.get_output_embeddings().weight.data.mul_(4.0)  # also GPT-2's embeddings, which it shares
    return made.eval()


def _gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_embd=24, n_head=2, vocab_size=len(tokenizer()), n_positions=CONTEXT, bos_token_id=0,
            eos_token_id=0,
        )
    )  # fmt: skip


def _llama() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=2, hidden_size=24, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=len(tokenizer()), max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def _opt() -> PreTrainedModel:
    return OPTForCausalLM(
        OPTConfig(
            num_hidden_layers=2, hidden_size=24, ffn_dim=32, num_attention_heads=3, word_embed_proj_dim=16,
            vocab_size=len(tokenizer()), max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0,
            pad_token_id=1,
        )
    )  # fmt: skip
