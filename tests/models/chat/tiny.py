"""A tiny random model with a chat template, and asks for it."""

from functools import cache
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from palimpsest.models.chat.base import Ask
from palimpsest.models.lm import save_lm
from palimpsest.models.tokens import train_tokenizer

CONTEXT = 512
TEMPLATE = (
    "{% for message in messages %}<|sep|>{{ message.role }}\n{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|sep|>assistant\n{% endif %}"
)


def tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Bytes, three special tokens and a few pairs."""
    made = train_tokenizer(["the lamp hums in the hall", "a kettle leaks"], 280, CONTEXT)
    made.chat_template = template
    return made


@cache
def model() -> PreTrainedModel:
    """A random model whose logits are far apart, and which draws by default."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = LlamaConfig(
            num_hidden_layers=2, hidden_size=24, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=len(tokenizer()), max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0,
            pad_token_id=1,
        )  # fmt: skip
        made = LlamaForCausalLM(config)
        made.get_output_embeddings().weight.data.mul_(30.0)
    made.generation_config = GenerationConfig(do_sample=True, eos_token_id=0, pad_token_id=1)
    return made.eval()


@cache
def positioned() -> PreTrainedModel:
    """A random model that has no position beyond its context."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = GPT2Config(
            n_layer=1, n_embd=24, n_head=2, vocab_size=len(tokenizer()), n_positions=CONTEXT, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()


def save(folder: Path) -> Path:
    """Write the model and its tokenizer as a Hugging Face folder of a few hundred KB."""
    save_lm(model(), tokenizer(), folder)
    return folder


def asks(count: int, max_tokens: int = 8, temperature: float = 1.0) -> list[Ask]:
    """Asks with prompts of unequal length."""
    words = [f"Write {'very ' * (number % 5)}short text {number}." for number in range(count)]
    return [Ask((("system", "Be brief."), ("user", text)), max_tokens, temperature, 0.9) for text in words]
