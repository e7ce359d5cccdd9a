"""A judge at an OpenAI-compatible endpoint, by the log-probabilities of its answer's first token.

The prompts hold private test rows, and private demonstrations where those of the real rows are judged. They leave
this machine for the endpoint's operator only on the owner's word: `JudgeEndpoint` cannot be made without it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from palimpsest.audit.utility import label_indices
from palimpsest.errors import BackendError
from palimpsest.models.chat.base import TEXT_ROLE, Answer, Ask, Chat
from palimpsest.models.chat.kept import open_endpoint
from palimpsest.models.chat.settings import JudgeEndpoint
from palimpsest.records.record import Record
from palimpsest_lab.audits.incontext import Judge
from palimpsest_lab.audits.incontext_settings import CONTENT_FREE, LABEL, TEXT, InContext

_TOKENS_A_WORD = 2  # an upper estimate: the endpoint's tokenizer is not known
_MARKS = " \t\n▁Ġ"  # before a word, as tokens may spell a space


@dataclass(frozen=True)
class TextPrompts:
    """The templates in words: a number of tokens in the settings is that many words here."""

    settings: InContext

    def prompt(self, shown: Sequence[tuple[str, str]], text: str) -> str:
        """Build the prompt: instruction, each text with its answer, and the text to answer, up to its answer."""
        item, (before, after) = self.settings.item, self.settings.answer.split(LABEL)
        demonstrations = "".join(
            item.replace(TEXT, _first_words(one, self.settings.demonstration_tokens)) + before + answer + after
            for one, answer in shown
        )
        asked = item.replace(TEXT, _first_words(text, self.settings.item_tokens)) + before
        return (self.settings.instruction + demonstrations + asked).rstrip(" ")

    def needs(self, shots: int, words: Sequence[str]) -> int:
        """Return the positions of the longest prompt and answer that the settings allow, estimated from above."""
        around = _count(self.settings.item) + _count(self.settings.answer) + max(map(_count, words))
        demonstration, item = (
            around + most for most in (self.settings.demonstration_tokens, self.settings.item_tokens)
        )
        return _TOKENS_A_WORD * (_count(self.settings.instruction) + shots * demonstration + item)


class EndpointJudge(Judge):
    """Chooses the label that the answer's first token begins, calibrated if that is asked for.

    An item whose likeliest first tokens begin no label counts as a wrong answer. A label that none of them begins has
    the log-probability of the least likely of them: it has no more.
    """

    balanced = True

    def __init__(
        self, settings: JudgeEndpoint, prompts: InContext, labels: Sequence[str], kept: Path, key: bytes
    ) -> None:
        """Set up the judge; send nothing yet.

        Args:
            labels: all public labels: at least two.
            kept: the SQLite file of its answers, which reveal private rows.
            key: secret. Answers are found by hashes of prompts: without the key nobody can try a guessed row on them.

        Raises:
            ParamsError: the verbalisers and the labels differ.
            BackendError, ModelError, DataError: as `open_endpoint`.
        """
        self._settings, self._prompts, self._labels, self._kept = settings, TextPrompts(prompts), list(labels), kept
        self._words, self._key = prompts.words(labels), key

    @property
    def context(self) -> int:
        return self._settings.context

    def needs(self, shots: int) -> int:
        return self._prompts.needs(shots, self._words)

    def count_cut(self, texts: Sequence[str]) -> int:
        return sum(_count(text) > self._prompts.settings.item_tokens for text in texts)

    def judge_items(self, shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        settings = self._prompts.settings
        free = CONTENT_FREE if settings.calibrate else ()
        named = dict(zip(self._labels, self._words, strict=True))
        before = [(row.text, named[row.label or ""]) for row in shown]
        prompts = [self._prompts.prompt(before, text) for text in (*free, *(row.text for row in asked))]
        scores = np.array([label_scores(_pairs(one), self._words) for one in self._answers(prompts)])
        bias = logsumexp(_log_shares(scores[: len(free)]), axis=0) if free else 0.0
        chosen = (scores[len(free) :] - bias).argmax(axis=1)
        truth = label_indices([row.label or "" for row in asked], self._labels)
        return (chosen == truth) & np.isfinite(scores[len(free) :, 0])

    def _answers(self, prompts: Sequence[str]) -> list[Answer]:
        role = "user" if self._settings.chat else TEXT_ROLE
        asks = [Ask(((role, prompt),), 1, 0.0, 1.0, listed=self._settings.listed) for prompt in prompts]
        answers = self._chat.answer(asks)
        if any(answer.finish == "failed" for answer in answers):
            raise BackendError(
                f"The judge {self._settings.model!r} left some of its prompts unanswered.",
                "Look whether it lists log-probabilities and the prompts fit its context; then run again: what is "
                "answered already is not asked for again.",
            )
        return answers

    @cached_property
    def _chat(self) -> Chat:
        about = f"{self._key.hex()} {self._settings.url} {self._settings.model}"
        return open_endpoint(self._settings, self._kept, about)


def label_scores(listed: Sequence[tuple[str, float]], words: Sequence[str]) -> list[float]:
    """Return each word's log-probability, from those of likely first tokens; minus infinity for all if none begins one.

    A token counts for the word that it equals, or else for the only word that it begins, whatever the case.

    >>> label_scores([(" Pos", -0.5), ("The", -1.5), ("neutral", -3.0)], ["positive", "negative"])
    [-0.5, -3.0]
    >>> label_scores([("The", -1.5)], ["positive", "negative"])
    [-inf, -inf]
    """
    owners = [_owner(token.strip(_MARKS).casefold(), [word.casefold() for word in words]) for token, _ in listed]
    if all(owner is None for owner in owners):
        return [float("-inf")] * len(words)
    least = min(value for _, value in listed)
    own = [[value for (_, value), owner in zip(listed, owners, strict=True) if owner == at] for at in range(len(words))]
    return [float(logsumexp(values)) if values else least for values in own]


def _owner(token: str, words: Sequence[str]) -> int | None:
    """Return the place of the word that a token is, or of the only word that it begins."""
    begun = [at for at, word in enumerate(words) if token and word.startswith(token)]
    same = [at for at in begun if words[at] == token]
    return (same or begun)[0] if same or len(begun) == 1 else None


def _log_shares(scores: np.ndarray) -> np.ndarray:
    """Return the log of the labels' shares for inputs without content, (inputs, labels); equal where none is begun."""
    even = np.where(np.isfinite(scores), scores, 0.0)
    return np.asarray(even - logsumexp(even, axis=1, keepdims=True))


def _pairs(answer: Answer) -> list[tuple[str, float]]:
    """Return the pairs of an answer; none where the model refused."""
    return [(token, value) for token, value in json.loads(answer.text or "[]")]


def _first_words(text: str, most: int) -> str:
    """Return the first words of a text, with single spaces between."""
    return " ".join(text.split()[:most])


def _count(text: str) -> int:
    return len(text.split())
