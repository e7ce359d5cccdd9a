"""Requests of an instruction-following author: prompts, lengths and masks, all drawn from its public seed.

Source: Aug-PE (Xie et al. 2024): a keyword and a style drawn for each text, paraphrase or fill-in-the-blanks, and
adaptive length. The words of the prompts are settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from palimpsest.errors import ParamsError
from palimpsest.methods.evolve.author import UNLABELLED
from palimpsest.models.chat.base import Ask
from palimpsest.models.chat.settings import ANY_LABEL, Endpoint, Length, LocalChatSettings, Prompts, of_label, slots
from palimpsest.records.record import Record

_NUMBERS = 31  # bits of a request's number: any server takes it as a seed


@dataclass(frozen=True)
class Request:
    """A request for one text, and the criteria for its answer.

    Attributes:
        ask: the question to the model.
        label: the text's label; "" where the task has none.
        words: the requested number of words.
        instruction: the prompt without the keyword and the source: an answer should not repeat it.
        source: the text to vary; "" for a new one.
        blank: sign of a masked word; "" where none is masked.
        shown: texts of the worked examples before it.
    """

    ask: Ask
    label: str
    words: int
    instruction: str
    source: str = ""
    blank: str = ""
    shown: tuple[str, ...] = ()


class Requester:
    """Draws requests. Each is a function of the settings, the seed and its own place, so it can be drawn again."""

    def __init__(self, settings: LocalChatSettings | Endpoint, labels: Mapping[str, str], seed: int) -> None:
        """Take public inputs. `labels` is label -> description; {} for a task without labels.

        Raises:
            ParamsError: keywords or examples are given for an unknown label, or a label has none; or a prompt names
            labels in a task without labels.
        """
        _require_named("keywords", settings.prompts.keywords, labels)
        _require_named("examples", settings.prompts.examples, labels)
        _require_labels(settings.prompts, labels)
        self._settings, self._labels, self._seed = settings, labels, seed

    def new(self, label: str, index: int) -> Request:
        """The request for a new text of a label, with a keyword and a style of its own."""
        draw, prompts = self._draw("new", label, index), self._settings.prompts
        number = draw.getrandbits(_NUMBERS)
        words = asked_words(self._settings.length, self._settings.length.typical, draw)
        keywords = of_label(prompts.keywords, label) or ("",)
        told = self._about(label, words, draw.choice(prompts.styles))
        prompt = prompts.random.format_map({**told, "keyword": draw.choice(keywords)})
        ask = self._ask(prompt, words, number)
        return Request(ask, label, words, self._instruction(prompts.random.format_map({**told, "keyword": ""})))

    def variation(self, record: Record, place: tuple[int, ...]) -> Request:
        """The request for a variation of a text; `place` tells apart those of equal texts."""
        label, prompts = record.label or UNLABELLED, self._settings.prompts
        draw = self._draw("variation", label, record.text, place)
        number = draw.getrandbits(_NUMBERS)
        words = asked_words(self._settings.length, len(record.text.split()), draw)
        told = {**self._about(label, words, draw.choice(prompts.styles)), "blank": prompts.blank}
        masks = prompts.vary == "blanks"
        template = prompts.blanks if masks else prompts.paraphrase
        shown = with_blanks(record.text, prompts.masked, prompts.blank, draw) if masks else record.text
        worked = draw.sample(of_label(prompts.examples, label), prompts.shots)
        turns = tuple(turn for text in worked for turn in self._worked(label, text, draw))
        ask = self._ask(template.format_map({**told, "text": shown}), words, number, turns)
        instruction = self._instruction(template.format_map({**told, "text": ""}))
        return Request(ask, label, words, instruction, record.text, prompts.blank if masks else "", tuple(worked))

    def _worked(self, label: str, text: str, draw: Random) -> tuple[tuple[str, str], tuple[str, str]]:
        """A worked example: the request for a public text with its own blanks, and the answer, the text itself."""
        prompts = self._settings.prompts
        told = {**self._about(label, len(text.split()), draw.choice(prompts.styles)), "blank": prompts.blank}
        masked = with_blanks(text, prompts.masked, prompts.blank, draw)
        return ("user", prompts.blanks.format_map({**told, "text": masked})), ("assistant", text)

    def _draw(self, *place: object) -> Random:
        return Random(repr((self._seed, *place)))

    def _about(self, label: str, words: int, style: str) -> dict[str, str]:
        return {"label": label, "description": self._labels.get(label, ""), "words": str(words), "style": style}

    def _instruction(self, prompt: str) -> str:
        return f"{self._settings.prompts.system or ''}\n{prompt}"

    def _ask(self, prompt: str, words: int, number: int, before: tuple[tuple[str, str], ...] = ()) -> Ask:
        settings = self._settings
        system = () if settings.prompts.system is None else (("system", settings.prompts.system),)
        limit = most_tokens(settings.length, words)
        return Ask((*system, *before, ("user", prompt)), limit, settings.temperature, settings.top_p, number)


def asked_words(length: Length, around: int, draw: Random) -> int:
    """Draw the number of words to ask for: w = max(least, around + a normal draw truncated to a whole number)."""
    return max(length.least, around + int(draw.gauss(0.0, length.spread)))


def most_tokens(length: Length, words: float) -> int:
    """Tokens that an answer of so many words may have, at least 1."""
    return max(1, min(int(length.tokens_a_word * words), length.cap))


def with_blanks(text: str, masked: float, blank: str, draw: Random) -> str:
    """The text with each word masked with probability `masked`, one at least; neighbouring blanks stay apart.

    >>> with_blanks("What a lovely,  lovely day", 0.5, "_", Random(3))
    '_ a _  lovely day'
    """
    parts = re.split(r"(\s+)", text)
    words = [index for index, part in enumerate(parts) if part and not part.isspace()]
    chosen = {index for index in words if draw.random() < masked} or set(words and [draw.choice(words)])
    return "".join(blank if index in chosen else part for index, part in enumerate(parts))


def _require_named(what: str, given: Mapping[str, tuple[str, ...]], labels: Mapping[str, str]) -> None:
    names = set(labels) or {UNLABELLED}
    if unknown := sorted(set(given) - names - {ANY_LABEL}):
        raise ParamsError(f"There are {what} for {unknown}, which are no labels.", "Name them as the labels are.")
    if given and ANY_LABEL not in given and (missing := sorted(names - set(given))):
        raise ParamsError(f"The labels {missing} have no {what}.", f"Give them some, or some under {ANY_LABEL!r}.")


def _require_labels(prompts: Prompts, labels: Mapping[str, str]) -> None:
    named = {slot for template in (prompts.random, getattr(prompts, prompts.vary)) for slot in slots(template)}
    if not labels and (empty := sorted(named & {"label", "description"})):
        raise ParamsError(
            f"The prompts random and {prompts.vary} name {empty}, which a task without labels has not.",
            "Say in the prompts themselves what kind of text is wanted.",
        )
