"""A model with a chat template on this machine."""

import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import torch
from torch import nn
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from palimpsest.devices import CUDA, exact_device
from palimpsest.errors import ModelError
from palimpsest.models.chat.base import Answer, Ask, Told, seed_of
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import specials
from palimpsest.progress import counter

_COLD = 1e-6  # a temperature at which the likeliest token is always drawn; dividing by 0 would not do


def load_chat(folder: Path, batch: int, seed: int) -> "LocalChat":
    """The model in a Hugging Face folder: in float32, or in bfloat16 on a GPU where there is one.

    Raises:
        ModelError: the folder holds no causal language model, or one without a chat template.
    """
    model, tokenizer = load_lm(folder)
    here = exact_device()
    nn.Module.to(model, here, torch.bfloat16 if here.type == CUDA else torch.float32)
    return LocalChat(model, tokenizer, batch=batch, seed=seed)


@dataclass(frozen=True)
class _Prompt:
    """An ask as tokens for the model.

    Attributes:
        place: index among the asks.
        ids: the prompt's tokens.
        most: tokens that the answer may have, within the ask's limit and the model's context.
    """

    place: int
    ask: Ask
    ids: list[int]
    most: int


class LocalChat:
    """Answers asks in batches of similar length, padded on the left.

    Each ask has its own random numbers, made from the public seed and the ask. So it gets the same answer again
    whatever is asked beside it, except for rounding: the sums of a batch of another shape differ in their last bits,
    and where two tokens are that close, another is drawn. A GPU draws other answers than a CPU.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, batch: int, seed: int) -> None:
        """Take a model in evaluation mode; only the end tokens of its generation settings are used.

        Raises:
            ModelError: the tokenizer has no chat template.
        """
        if not tokenizer.chat_template:
            raise ModelError(
                "The local model has no chat template, so it follows no instructions.",
                "Name a model that was tuned to follow instructions, or let an author of kind `base` write.",
            )
        self._ids, self._ends = specials(tokenizer), _ends(model, tokenizer)
        self._model: Any = copy.copy(model)  # with the same weights
        self._model.generation_config = GenerationConfig()  # no rule of the folder's, such as a penalty, may bend draws
        self._context = getattr(self._model.config.get_text_config(), "max_position_embeddings", None) or sys.maxsize
        self._tokenizer, self._batch, self._seed = tokenizer, batch, seed

    def answer(self, asks: Sequence[Ask], told: Told | None = None) -> list[Answer]:
        """As `Chat.answer`; `told` gets each answer's place and the answer as soon as its batch is done.

        A prompt that leaves no room for an answer in the model's context fails.

        Raises:
            ModelError: the chat template does not take the messages.
        """
        prompts = [self._prompt(place, ask) for place, ask in enumerate(asks)]
        usable = sorted((prompt for prompt in prompts if prompt.most > 0), key=lambda prompt: len(prompt.ids))
        answers, show = [Answer("", "failed")] * len(asks), counter(name="ask", total=len(usable), private=True)
        done = 0
        for batch in _batches(usable, self._batch, self._context):
            for prompt, answer in zip(batch, self._answer(batch), strict=True):
                answers[prompt.place] = answer
                if told is not None:
                    told(prompt.place, answer)
            done += len(batch)
            show(done)
        return answers

    def _prompt(self, place: int, ask: Ask) -> _Prompt:
        messages = [{"role": role, "content": self._strip_specials(words)} for role, words in ask.messages]
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except jinja2.TemplateError as error:
            raise ModelError(
                "The local model's chat template does not take the messages.",
                "Set prompts.system of the author to null, since some models take no system message.",
            ) from error
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return _Prompt(place, ask, ids, min(ask.max_tokens, self._context - len(ids)))

    def _strip_specials(self, words: str) -> str:
        """The words without special tokens, which would end a message or begin one."""
        for token in self._tokenizer.all_special_tokens:
            words = words.replace(token, "")
        return words

    @torch.inference_mode()
    def _answer(self, prompts: Sequence[_Prompt]) -> list[Answer]:
        width, device = max(len(prompt.ids) for prompt in prompts), self._model.device
        padding = [width - len(prompt.ids) for prompt in prompts]
        pairs = list(zip(prompts, padding, strict=True))
        rows = torch.tensor([[self._ids.pad] * before + prompt.ids for prompt, before in pairs], device=device)
        seen = torch.tensor([[0] * before + [1] * len(prompt.ids) for prompt, before in pairs], device=device)
        config = GenerationConfig(  # takes the likeliest token, of what `_Draw` makes of the logits
            do_sample=False,
            num_beams=1,
            max_new_tokens=max(prompt.most for prompt in prompts),
            eos_token_id=self._ends,
            pad_token_id=self._ids.pad,
        )
        written = self._model.generate(
            input_ids=rows,
            attention_mask=seen,
            generation_config=config,
            logits_processor=LogitsProcessorList([_Draw([prompt.ask for prompt in prompts], self._seed, device)]),
        )[:, width:].tolist()
        return [self._read(prompt, row) for prompt, row in zip(prompts, written, strict=True)]

    def _read(self, prompt: _Prompt, row: list[int]) -> Answer:
        length = next((place + 1 for place, token in enumerate(row) if token in self._ends), prompt.most)
        tokens = row[: min(length, prompt.most)]
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        return Answer(text, "stop" if tokens[-1] in self._ends else "length", len(prompt.ids), len(tokens))


def _batches(prompts: Sequence[_Prompt], size: int, context: int) -> Iterator[list[_Prompt]]:
    """Batches of prompts by length, shortest first, such that the longest prompt and the longest answer fit together.

    Every row continues for as long as any row does, and a model with learned positions has none beyond its context.
    """
    batch: list[_Prompt] = []
    for prompt in prompts:
        most = max(other.most for other in (*batch, prompt))
        if len(batch) == size or len(prompt.ids) + most > context:
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch


def _ends(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every token that ends an answer: chat models have one for a turn and one for a text."""
    named = model.generation_config.eos_token_id if model.generation_config is not None else None
    several = named if isinstance(named, list) else [named]
    return sorted({token for token in (*several, tokenizer.eos_token_id) if token is not None})


class _Draw(LogitsProcessor):
    """Makes the likeliest token a draw, independent for each row: Gumbel noise on the logits of its nucleus."""

    def __init__(self, asks: Sequence[Ask], seed: int, device: torch.device) -> None:
        temperatures = [[max(ask.temperature, _COLD)] for ask in asks]  # (rows, 1)
        self._temperature = torch.tensor(temperatures, device=device)
        self._top_p = torch.tensor([[ask.top_p] for ask in asks], device=device)
        self._generators = [torch.Generator(device).manual_seed(seed_of(seed, ask)) for ask in asks]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Noisy scores: (rows, vocabulary)."""
        logits = scores.float() / self._temperature
        return (logits + self._gumbel(scores.shape[1])).masked_fill(~nucleus(logits, self._top_p), -torch.inf)

    def _gumbel(self, width: int) -> torch.Tensor:
        draws = [
            torch.rand(width, generator=generator, device=generator.device, dtype=torch.float64)
            for generator in self._generators
        ]
        return -(-torch.stack(draws).clamp_min(1e-300).log()).log().float()


def nucleus(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return which tokens are among the likeliest of their row that together reach its share.

    Args:
        logits: (rows, vocabulary).
        top_p: the shares: (rows, 1).

    Returns:
        bool (rows, vocabulary); the likeliest token is always among them.
    """
    shares, order = logits.softmax(dim=1).sort(dim=1, descending=True, stable=True)
    before = shares.double().cumsum(dim=1) - shares
    inside = (before < top_p) | (top_p >= 1)
    return torch.zeros_like(inside).scatter(1, order, inside)
