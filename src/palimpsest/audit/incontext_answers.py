"""Two ways of answering in context: choosing a label, and writing one. Both are calibrated (Zhao et al. 2021)."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from palimpsest.audit.incontext_model import (
    Past,
    Reading,
    TokenPrompts,
    Tokens,
    answer_text,
    read_items,
    score_answers,
    write_tokens,
)
from palimpsest.audit.utility import label_indices
from palimpsest.errors import ParamsError
from palimpsest.records.duplicates import wording


class Answerer(Protocol):
    """A way of answering items behind a beginning that was read."""

    model: PreTrainedModel
    prompts: TokenPrompts
    balanced: bool  # whether demonstrations are drawn evenly over the labels

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""

    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        """These labels in tokens, as demonstrations show them."""

    def right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        """Which items are answered right, bool (items,)."""


class Chooser:
    """Chooses the label whose words are likeliest behind the item, once calibrated."""

    balanced = True

    def __init__(self, model: PreTrainedModel, prompts: TokenPrompts, labels: Sequence[str]) -> None:
        self.model, self.prompts = model, prompts
        self._labels, self._options = list(labels), prompts.answers(prompts.settings.words(labels))
        if not all(self._options):
            raise ParamsError("A label's word has no token of the model.", "Give it another word in verbalisers.")

    @property
    def longest(self) -> int:
        return max(map(len, self._options))

    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        return [self._options[index] for index in label_indices(labels, self._labels)] if labels else []

    def right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        bias = content_free(self._scores(past, _content_free_items(self.prompts)))
        chosen = (self._scores(past, items) - bias).argmax(dim=1).cpu().numpy()
        return chosen == label_indices(truth, self._labels)

    def _scores(self, past: Past, items: Sequence[Tokens]) -> torch.Tensor:
        readings = _readings(self.model, self.prompts, past, items)
        return torch.cat([score_answers(self.model, reading, self._options) for reading in readings])


class AnswerWriter:
    """Writes the likeliest answer; its first token is calibrated, as the ones behind it follow from it."""

    balanced = False

    def __init__(self, model: PreTrainedModel, prompts: TokenPrompts) -> None:
        self.model, self.prompts = model, prompts

    @property
    def longest(self) -> int:
        return self.prompts.settings.answer_tokens

    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        return self.prompts.answers(labels, self.longest)

    def right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        free = _readings(self.model, self.prompts, past, _content_free_items(self.prompts))
        bias = content_free(torch.cat([reading.log_probs for reading in free]))
        readings = _readings(self.model, self.prompts, past, items)
        written = chain.from_iterable(self._written(reading, bias) for reading in readings)
        return np.array([same_wording(*pair) for pair in zip(written, truth, strict=True)])

    def _written(self, reading: Reading, bias: torch.Tensor) -> list[str]:
        settings, vocabulary = self.prompts.settings, reading.log_probs.shape[1]
        scores, tokens = reading.log_probs.topk(min(settings.first_tokens, vocabulary), dim=1)
        first = tokens.gather(1, (scores - bias[tokens]).argmax(dim=1, keepdim=True)).squeeze(1)
        rows = write_tokens(self.model, reading, first, self.prompts, settings.answer_tokens)
        return [answer_text(row, self.prompts) for row in rows]


def content_free(scores: torch.Tensor) -> torch.Tensor:
    """Log of the answers' mean probabilities, (answers,), from log-scores (content-free inputs, answers)."""
    return functional.log_softmax(scores, dim=-1).logsumexp(dim=0) - math.log(len(scores))


def same_wording(answer: str, truth: str) -> bool:
    """Whether an answer is the true label but for case, punctuation and spaces; a label without a word is never met.

    >>> same_wording(" Josh  Trank.", "josh trank"), same_wording("", "?")
    (True, False)
    """
    return bool(wording(truth)) and wording(answer) == wording(truth)


def _readings(model: PreTrainedModel, prompts: TokenPrompts, past: Past, items: Sequence[Tokens]) -> Iterator[Reading]:
    """The items in batches, each read when it is asked for."""
    for start in range(0, len(items), prompts.settings.batch):
        yield read_items(model, past, items[start : start + prompts.settings.batch], prompts.ids.pad)


def _content_free_items(prompts: TokenPrompts) -> list[list[int]]:
    return prompts.items(prompts.settings.content_free, prompts.settings.item_tokens)
