"""Requests of an instruction-following author, and texts from its answers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from palimpsest.errors import ParamsError
from palimpsest.methods.evolve.author import UNLABELLED
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.settings import (
    ANY_LABEL,
    Endpoint,
    Length,
    LocalChatSettings,
    Prompts,
    select_for_label,
    slots,
)
from palimpsest.records.record import Record
from palimpsest.records.segment import STOPS, count_parts, split_parts, wording, words

_NUMBERS = 31  # bits of a request's number: any server takes it as a seed
REASONS = ("failed", "refused", "empty", "garbage", "cut off", "echo", "copy", "blank")
_RUN = 8  # words in a row that only one who repeats the instruction shares with it
_ORDER, _SHARE = 3, 0.5  # a text is an echo if this share of its n-grams of this order stands in the instruction
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "‘": "’", "'": "'", "`": "`"}
_YES = r"(?:sure|certainly|of course|absolutely|okay|ok|alright|no problem)\b"
_HERE = r"here(?:['’]s| is| are)\b"
_KIND = r"(?:text|version|example|sample|sentence|paragraph|paraphrase|rewrite|variation|answer|response|review)s?"
_MADE = r"(?:rewritten|rephrased|paraphrased|reworded|revised|new|completed|complete|filled[- ]in|final)"
_FACET = r"(?:label|category|class|topic|type|kind|sentiment|tone|genre)"
_FENCE = re.compile(r"\A```(?:[\w+-]*[ \t]*\n)?(.*?)(?:```.*)?\Z", re.DOTALL)
_BOLD = re.compile(r"\A(\*\*|__|\*)([^*_]+)\1\Z")
_SENTENCE_END = re.compile(rf"(?:[.!?…]+[\"'”’»)\]]*(?=\s|\Z))|[{STOPS}]+")
_TASK = r"(?:assist|comply|fulfil|fulfill|provide|write|create|generate|produce|rewrite|rephrase|paraphrase|continue)"
_CANNOT = r"(?:can(?:no|['’])t|cannot|could(?: not|n['’]t)|won['’]t|(?:am|['’]m) (?:not able|unable) to)"
_AI = r"(?:ai|artificial intelligence)(?: (?:language )?(?:model|assistant)\b|[,.])"
_SORRY = r"\A(?:i(?: a|['’])m )?(?:very |so )?sorry\b"


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

    def request_new(self, label: str, index: int) -> Request:
        """The request for a new text of a label, with a keyword and a style of its own."""
        draw, prompts = self._draw("new", label, index), self._settings.prompts
        number = draw.getrandbits(_NUMBERS)
        words = asked_words(self._settings.length, self._settings.length.typical, draw)
        keywords = select_for_label(prompts.keywords, label) or ("",)
        told = self._fill_slots(label, words, draw.choice(prompts.styles))
        prompt = prompts.random.format_map({**told, "keyword": draw.choice(keywords)})
        ask = self._ask(prompt, words, number)
        return Request(ask, label, words, self._instruction(prompts.random.format_map({**told, "keyword": ""})))

    def variation(self, record: Record, place: tuple[int, ...]) -> Request:
        """The request for a variation of a text; `place` tells apart those of equal texts."""
        label, prompts = record.label or UNLABELLED, self._settings.prompts
        draw = self._draw("variation", label, record.text, place)
        number = draw.getrandbits(_NUMBERS)
        words = asked_words(self._settings.length, count_parts(record.text), draw)
        told = {**self._fill_slots(label, words, draw.choice(prompts.styles)), "blank": prompts.blank}
        masks = prompts.vary == "blanks"
        template = prompts.blanks if masks else prompts.paraphrase
        shown = with_blanks(record.text, prompts.masked, prompts.blank, draw) if masks else record.text
        worked = draw.sample(select_for_label(prompts.examples, label), prompts.shots)
        turns = tuple(turn for text in worked for turn in self._worked_example(label, text, draw))
        ask = self._ask(template.format_map({**told, "text": shown}), words, number, turns)
        instruction = self._instruction(template.format_map({**told, "text": ""}))
        return Request(ask, label, words, instruction, record.text, prompts.blank if masks else "", tuple(worked))

    def _worked_example(self, label: str, text: str, draw: Random) -> tuple[tuple[str, str], tuple[str, str]]:
        """A worked example: the request for a public text with its own blanks, and the answer, the text itself."""
        prompts = self._settings.prompts
        told = {**self._fill_slots(label, count_parts(text), draw.choice(prompts.styles)), "blank": prompts.blank}
        masked = with_blanks(text, prompts.masked, prompts.blank, draw)
        return ("user", prompts.blanks.format_map({**told, "text": masked})), ("assistant", text)

    def _draw(self, *place: object) -> Random:
        return Random(repr((self._seed, *place)))

    def _fill_slots(self, label: str, words: int, style: str) -> dict[str, str]:
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
    parts = split_parts(text)
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


_WRAPPINGS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\A<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)",
        rf"\A{_YES}[^\n:]{{0,160}}?\b{_HERE}[^\n:]{{0,160}}:",
        rf"\A{_YES}[!.,:]*[ \t]*\n",
        rf"\A{_YES}[!.,] [^\n]{{0,60}}\b(?:help|happy to|glad to|you go)\b[^\n]{{0,40}}\n",
        rf"\A{_HERE}[^\n:]{{0,160}}:[ \t]*\n",
        rf"\A{_HERE}[^\n:]{{0,80}}\b{_KIND}\b[^\n:]{{0,80}}:",
        rf"\A[*_#\s]*(?:text|output|answer|response|paraphrase|{_MADE} {_KIND})\s*[*_]*:[*_]*",
        r"[(\[]\s*(?:word count:?|exactly|about|approximately|approx\.?|~)?\s*\d+ words?\s*[)\]]\Z",
        r"\n[^\w\n]*word count\b[^\n]*\Z",
        r"\n[ \t]*(?:let me know|i hope (?:this|that)|feel free|would you like|note that i)\b[^\n]*\Z",
    )
]  # in place of each match stands nothing

_REFUSALS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bas an? {_AI}",
        rf"\A.{{0,40}}\bi(?: a|['’])m (?:just |only )?an? {_AI}",
        rf"{_SORRY}.{{0,20}}\bi\s?{_CANNOT}(?:\W*\Z| (?:{_TASK}|help (?:you|with)|do (?:that|this))\b)",
        rf"\A(?:i apologi[sz]e|unfortunately|my apologies)\b.{{0,20}}\bi\s?{_CANNOT} (?:{_TASK}|help (?:you|with))\b",
        rf"\Ai\s?{_CANNOT} (?:{_TASK}|help)\b.{{0,40}}\b(?:request|content|such|this|that|prompt|instruction)s?\b",
    )
]


def judge_answer(answer: Answer, request: Request) -> tuple[str, str | None]:
    """The text of an answer, and None; or "" and why it cannot be used, one of `REASONS`."""
    if answer.finish in ("refused", "failed"):
        return "", answer.finish
    text = clean(answer.text, request.label)
    if answer.finish == "length":
        text = clean(whole_sentences(text), request.label)
        if count_parts(text) < request.words / 2:
            return "", "cut off"
    reason = fault(text, request)
    return ("", reason) if reason else (text, None)


def clean(text: str, label: str) -> str:
    """Remove what a model wraps around a text; cleaning it again changes nothing.

    >>> clean('Sure! Here is a review:\\n\\n"Label: praise\\nLovely, again."', "praise")
    'Lovely, again.'
    """
    steps = (_unwrap, _unfence, _unquote, partial(_from_json, label=label), partial(_strip_label, label=label))
    before = None
    while text != before:
        before = text
        for step in steps:
            text = step(text.strip()).strip()
    return text


def whole_sentences(text: str) -> str:
    """The text up to the last end of a sentence; "" if there is none.

    >>> whole_sentences('It rained. "So what?" It was not')
    'It rained. "So what?"'
    """
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends else ""


def fault(text: str, request: Request) -> str | None:
    """Why a cleaned text cannot be used, one of `REASONS`; None where it can."""
    tests: list[tuple[str, Callable[[], bool]]] = [
        ("empty", lambda: not text),
        ("garbage", lambda: not any(letter.isalpha() for letter in text) or _is_json(text)),
        ("refused", lambda: refuses(text)),
        ("echo", lambda: wording(text) == wording(request.label) or echoes(text, request.instruction)),
        ("copy", lambda: wording(text) in {wording(one) for one in (request.source, *request.shown) if one}),
        ("blank", lambda: bool(request.blank) and text.count(request.blank) > request.source.count(request.blank)),
    ]
    return next((reason for reason, holds in tests if holds()), None)


def refuses(text: str) -> bool:
    """Return whether a text is a refusal.

    >>> refuses("I'm sorry, but I can't assist with that."), refuses("I'm sorry, but I can't recommend this film.")
    (True, False)
    """
    return any(pattern.search(text) for pattern in _REFUSALS)


def echoes(text: str, instruction: str) -> bool:
    """Return whether a text repeats its instruction: a long run of its words, or most of the text's short n-grams."""
    said, told = words(text), words(instruction)
    if _ngrams(told, _RUN) & _ngrams(said, _RUN):
        return True
    grams = _ngrams(said, _ORDER)
    return bool(grams) and len(grams & _ngrams(told, _ORDER)) >= _SHARE * len(grams)


def _ngrams(tokens: Sequence[str], order: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1)}


def _unwrap(text: str) -> str:
    for pattern in _WRAPPINGS:
        text = pattern.sub("", text).strip()
    return text


def _unfence(text: str) -> str:
    fence, bold = _FENCE.match(text), _BOLD.match(text)
    if fence:
        return fence.group(1)
    return bold.group(2) if bold else text


def _unquote(text: str) -> str:
    """Remove quotation marks around the whole text, and an opening mark that is never closed."""
    closing = _QUOTES.get(text[:1])
    if closing is None:
        return text
    inner = text[1:-1]
    inside = re.search(r"(?<!\w)'|'(?!\w)", inner) if closing == "'" else closing in inner or text[0] in inner
    if len(text) > 1 and text.endswith(closing) and not inside:
        return inner
    return text[1:] if closing != "'" and closing not in text[1:] else text


def _from_json(text: str, label: str) -> str:
    """Return the text of a JSON object that holds one string besides its label; other texts unchanged."""
    found = _parse_json(text)
    values = found.values() if isinstance(found, dict) else ()
    strings = [value for value in values if isinstance(value, str) and wording(value) != wording(label)]
    return strings[0] if len(strings) == 1 else text


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or list, or the beginning of one."""
    return isinstance(_parse_json(text), dict | list) or re.match(r'[\[{]\s*["{\[]', text) is not None


def _parse_json(text: str) -> object:
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _strip_label(text: str, label: str) -> str:
    """Remove the label in front of a text ("Label: x", "x: ...") or on a last line of its own."""
    if not label:
        return text
    name = rf"[*_\"'\[]*{re.escape(label)}[*_\"'\]]*"
    for pattern in (
        rf"\A[*_#\s]*{_FACET}\s*[*_]*:[*_]*\s*{name}[ \t]*(?:[\n.;,|–—-]+|\Z)",
        rf"\A{name}\s*:[*_]*(?=\s)",
        rf"\n[^\w\n]*{_FACET}\s*[*_]*:[*_]*\s*{name}\W*\Z",
    ):
        text = re.sub(pattern, "", text, flags=re.IGNORECASE)
    return text
