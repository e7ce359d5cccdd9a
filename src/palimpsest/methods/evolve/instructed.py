"""The author that talks to a model which follows instructions: on this machine, or behind an endpoint.

Source: RANDOM_API and VARIATION_API of Aug-PE (Xie et al. 2024). Unlike there, an answer that cannot be used is asked
for again, and counted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from scipy.special import ndtr

from palimpsest.methods.evolve.author import occurrences
from palimpsest.methods.evolve.prompting import Request, Requester, judge_answer, most_tokens
from palimpsest.models.chat.base import Chat
from palimpsest.models.chat.settings import Endpoint, Length, LocalChatSettings, Price, Prompts, slots
from palimpsest.records.record import Record
from palimpsest.records.segment import count_parts

_TOKENS_A_WORD = 4 / 3  # of English; only the plan rests on it


@dataclass
class _Counts:
    """The outcome of the requests so far: their number, reason -> unusable answers, tokens read and written."""

    asked: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    read: int = 0
    written: int = 0


class InstructedAuthor:
    """Writes texts by asking a model for them, one request for each.

    Guarantee: all that reaches the model is the settings, the labels with their descriptions, and the synthetic texts
    that `vary` was given; so whatever it answers is post-processing of what the caller was given, and free.

    Attributes:
        counts: the outcome of the requests so far.
    """

    def __init__(
        self, settings: LocalChatSettings | Endpoint, chat: Chat, labels: Mapping[str, str], seed: int
    ) -> None:
        """Take public inputs. `labels` is label -> description; {} for a task without labels, whose one label is "".

        Raises:
            ParamsError: keywords or examples are given for an unknown label, or a label has none; or a prompt names
            labels in a task without labels.
        """
        self.counts = _Counts()
        self._prompter = Requester(settings, labels, seed)
        self._chat, self._tries = chat, settings.tries

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        """RANDOM_API: new texts, those of a label all different; up to `tries` requests a wanted text are spent.

        Raises:
            BackendError: the model cannot be reached, or its budget of tokens or money would be passed.
        """
        texts: dict[str, list[str]] = {label: [] for label in counts}
        asked = dict.fromkeys(counts, 0)
        while requests := [
            self._prompter.request_new(label, asked[label] + index)
            for label, wanted in counts.items()
            for index in range(min(wanted - len(texts[label]), wanted * self._tries - asked[label]))
        ]:
            for request, text in zip(requests, self._request_texts(requests), strict=True):
                asked[request.label] += 1
                if text in texts[request.label]:
                    self.counts.unusable["repeat"] += 1
                elif text:
                    texts[request.label].append(text)
        return [Record(text, label or None) for label, own in texts.items() for text in own]

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        """VARIATION_API: up to `times` variations of each record; unusable ones are requested up to `tries` times.

        Raises:
            BackendError: as for `random`.
        """
        twins = occurrences(records)
        texts: dict[tuple[int, int], str] = {}
        for attempt in range(self._tries):
            missing = [place for place in product(range(len(records)), range(times)) if place not in texts]
            requests = [
                self._prompter.variation(records[row], (turn, twins[row], time, attempt)) for row, time in missing
            ]
            written = zip(missing, self._request_texts(requests), strict=True)
            texts |= {place: text for place, text in written if text}
        return [
            [Record(texts[row, time], record.label) for time in range(times) if (row, time) in texts]
            for row, record in enumerate(records)
        ]

    def _request_texts(self, requests: Sequence[Request]) -> list[str]:
        """The text of each answer; "" for one that cannot be used."""
        answers = self._chat.answer([request.ask for request in requests]) if requests else []
        verdicts = [judge_answer(answer, request) for answer, request in zip(answers, requests, strict=True)]
        self.counts.asked += len(requests)
        self.counts.unusable.update(reason for _, reason in verdicts if reason is not None)
        self.counts.read += sum(answer.read for answer in answers)
        self.counts.written += sum(answer.written for answer in answers)
        return [text for text, _ in verdicts]


@dataclass(frozen=True)
class Expected:
    """A run's approximate load on the model: requests, tokens of all prompts, and tokens of all answers."""

    requests: int
    read: int
    written: int

    def cost(self, price: Price) -> float:
        """Return the cost in the currency of the price."""
        return (self.read * price.read + self.written * price.written) / 1e6


def expected_calls(
    settings: LocalChatSettings | Endpoint, labels: Mapping[str, str], new: int, varied: int
) -> Expected:
    """Estimate the load of new texts and variations if every first answer is usable; at most `tries` times as much.

    A token is 3/4 of a word, as in English; every text is as long as new ones are asked to be; labels are equally
    frequent.
    """
    prompts = settings.prompts
    words = mean_words(settings.length, settings.length.typical)
    template = prompts.blanks if prompts.vary == "blanks" else prompts.paraphrase
    prompt_words = float((new + varied) * count_parts(prompts.system or ""))
    prompt_words += new * _prompt_words(prompts, prompts.random, labels, words)
    prompt_words += varied * _prompt_words(prompts, template, labels, words)
    shown = _mean_length(text for texts in prompts.examples.values() for text in texts)
    prompt_words += varied * prompts.shots * (_prompt_words(prompts, template, labels, shown) + shown)
    answer = min(_TOKENS_A_WORD * words, most_tokens(settings.length, words))
    return Expected(new + varied, math.ceil(_TOKENS_A_WORD * prompt_words), math.ceil((new + varied) * answer))


def mean_words(length: Length, around: int) -> float:
    """Mean of max(least, N(around, spread^2)): the average length that is requested."""
    if length.spread == 0:
        return float(max(length.least, around))
    above = (around - length.least) / length.spread
    density = math.exp(-above * above / 2.0) / math.sqrt(2.0 * math.pi)
    return float(length.least + length.spread * (above * ndtr(above) + density))


def _prompt_words(prompts: Prompts, template: str, labels: Mapping[str, str], text: float) -> float:
    mean = {
        "text": text,
        "words": 1.0,
        "blank": 1.0,
        "label": _mean_length(labels),
        "description": _mean_length(labels.values()),
        "keyword": _mean_length(word for words in prompts.keywords.values() for word in words),
        "style": _mean_length(prompts.styles),
    }
    filled = template.format_map(dict.fromkeys(mean, "x"))  # a slot and the punctuation at it are one word
    return count_parts(filled) + sum(mean[slot] - 1.0 for slot in slots(template))


def _mean_length(phrases: Iterable[str]) -> float:
    lengths = [count_parts(phrase) for phrase in phrases]
    return sum(lengths) / len(lengths) if lengths else 0.0
