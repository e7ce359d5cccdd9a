"""Turns a language model's answer into a text, or finds it unusable.

Models that follow instructions wrap their texts in courtesies, quotation marks, fences, labels and remarks. These are
removed. The rest is judged by its words and by the request, never by anything private, so both steps are free.
"""

import json
import re
from collections.abc import Callable, Sequence

from palimpsest.methods.evolve.prompting import Request
from palimpsest.models.chat.base import Answer
from palimpsest.records.duplicates import wording, words

REASONS = ("failed", "refused", "empty", "garbage", "cut off", "echo", "copy", "blank")
_RUN = 8  # words in a row that only one who repeats the instruction shares with it
_ORDER, _SHARE = 3, 0.5  # a text is an echo if this share of its n-grams of this order stands in the instruction
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "‘": "’", "'": "'", "`": "`"}

_YES = r"(?:sure|certainly|of course|absolutely|okay|ok|alright|no problem)\b"
_HERE = r"here(?:['’]s| is| are)\b"
_KIND = r"(?:text|version|example|sample|sentence|paragraph|paraphrase|rewrite|variation|answer|response|review)s?"
_MADE = r"(?:rewritten|rephrased|paraphrased|reworded|revised|new|completed|complete|filled[- ]in|final)"
_FACET = r"(?:label|category|class|topic|type|kind|sentiment|tone|genre)"
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
_FENCE = re.compile(r"\A```(?:[\w+-]*[ \t]*\n)?(.*?)(?:```.*)?\Z", re.DOTALL)
_BOLD = re.compile(r"\A(\*\*|__|\*)([^*_]+)\1\Z")
_SENTENCE_END = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*(?=\s|\Z))|[。！？]+")

_TASK = r"(?:assist|comply|fulfil|fulfill|provide|write|create|generate|produce|rewrite|rephrase|paraphrase|continue)"
_CANNOT = r"(?:can(?:no|['’])t|cannot|could(?: not|n['’]t)|won['’]t|(?:am|['’]m) (?:not able|unable) to)"
_AI = r"(?:ai|artificial intelligence)(?: (?:language )?(?:model|assistant)\b|[,.])"
_SORRY = r"\A(?:i(?: a|['’])m )?(?:very |so )?sorry\b"
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


def judged(answer: Answer, request: Request) -> tuple[str, str | None]:
    """The text of an answer, and None; or "" and why it cannot be used, one of `REASONS`."""
    if answer.finish in ("refused", "failed"):
        return "", answer.finish
    text = clean(answer.text, request.label)
    if answer.finish == "length":
        text = clean(whole_sentences(text), request.label)
        if len(text.split()) < request.words / 2:
            return "", "cut off"
    reason = fault(text, request)
    return ("", reason) if reason else (text, None)


def clean(text: str, label: str) -> str:
    """Remove what a model wraps around a text; cleaning it again changes nothing.

    >>> clean('Sure! Here is a review:\\n\\n"Label: praise\\nLovely, again."', "praise")
    'Lovely, again.'
    """
    steps: list[Callable[[str], str]] = [
        _unwrapped,
        _unfenced,
        _unquoted,
        lambda one: _from_json(one, label),
        lambda one: _unlabelled(one, label),
    ]
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


def _unwrapped(text: str) -> str:
    for pattern in _WRAPPINGS:
        text = pattern.sub("", text).strip()
    return text


def _unfenced(text: str) -> str:
    fence, bold = _FENCE.match(text), _BOLD.match(text)
    if fence:
        return fence.group(1)
    return bold.group(2) if bold else text


def _unquoted(text: str) -> str:
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
    found = _parsed(text)
    values = found.values() if isinstance(found, dict) else ()
    strings = [value for value in values if isinstance(value, str) and wording(value) != wording(label)]
    return strings[0] if len(strings) == 1 else text


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or list, or the beginning of one."""
    return isinstance(_parsed(text), dict | list) or re.match(r'[\[{]\s*["{\[]', text) is not None


def _parsed(text: str) -> object:
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unlabelled(text: str, label: str) -> str:
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
