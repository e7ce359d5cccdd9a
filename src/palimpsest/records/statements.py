"""Finding and rewriting statements: sentences with a value of each public attribute, such as a product and its trouble.

The attributes and the forms of their values are public. What a text states is a function of that text only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import regex

from palimpsest.records.segment import ENDS, is_unspaced

Values: TypeAlias = tuple[str, ...]  # one of each attribute, in their order

_SENTENCE = re.compile(rf"[^{ENDS};；\n]+")

_AFTER = r"(?![\w\p{M}])"  # a vowel sign behind a form belongs to a longer word


@dataclass(frozen=True)
class Attribute:
    """The values that a sentence may state on one matter.

    Attributes:
        name: its name in params.yaml.
        forms: value -> the words for it; empty for an open attribute.
        pattern: a regular expression for the values of an open attribute, whatever they are; None for a listed one.
    """

    name: str
    forms: Mapping[str, Sequence[str]]
    pattern: str | None = None

    @cached_property
    def _listed(self) -> list[tuple[str, int, str]]:
        """(value, index among its forms, form) of every listed form, the longest first."""
        told = ((value, place, form) for value, own in self.forms.items() for place, form in enumerate(own))
        return sorted({form.lower(): (value, place, form) for value, place, form in told}.values(), key=_longest)

    @cached_property
    def _search(self) -> "re.Pattern[str] | regex.Pattern[str]":
        """A pattern with a group for each listed form: letters that match in any case may still differ when lowered."""
        if self.pattern is not None:
            return re.compile(self.pattern)
        return regex.compile("|".join(_bounded(form) for *_, form in self._listed), regex.IGNORECASE)

    def find(self, text: str, start: int, end: int) -> "Found | None":
        """Find the first value between two places of a text; of two that begin at one place, the longer."""
        match = self._search.search(text, start, end)
        if match is None or not match[0]:
            return None
        if self.pattern is not None or match.lastindex is None:
            return Found(match[0], 0, *match.span())
        value, form, _ = self._listed[match.lastindex - 1]
        return Found(value, form, *match.span())

    def words(self, value: str, like: "Found") -> str:
        """Return the words for a value, in the form that `like` has in its text if both have equally many forms."""
        own, other = self.forms.get(value, (value,)), self.forms.get(like.value, (like.value,))
        return own[like.form if len(own) == len(other) else 0]


def _bounded(form: str) -> str:
    """Return a group for the form as a whole word; in a script without blanks it may stand anywhere."""
    before, after = ("" if is_unspaced(sign) else bound for sign, bound in ((form[0], r"(?<!\w)"), (form[-1], _AFTER)))
    return f"{before}({regex.escape(form, special_only=True)}){after}"


def _longest(listed: tuple[str, int, str]) -> int:
    return -len(listed[2])


@dataclass(frozen=True)
class Found:
    """A value found in a text, with its form and its place (end excluded)."""

    value: str
    form: int
    start: int
    end: int


@dataclass(frozen=True)
class Statement:
    """The statement of one sentence: a value of each attribute, in the attributes' order."""

    found: tuple[Found, ...]

    @property
    def values(self) -> Values:
        """The value of each attribute, in their order."""
        return tuple(one.value for one in self.found)


def statements(text: str, attributes: Sequence[Attribute]) -> list[Statement]:
    """Find what a text states, sentence by sentence; a sentence that lacks an attribute states nothing.

    The first value of an attribute in the sentence counts. Where two attributes' values overlap nothing is stated.

    >>> place = Attribute("place", {"hall": ["hall"], "roof": ["roof", "top"]})
    >>> [one.values for one in statements("The Top leaks! My hall leaks.", [place, Attribute("what", {}, "leaks?")])]
    [('roof', 'leaks'), ('hall', 'leaks')]
    """
    told = []
    for sentence in _SENTENCE.finditer(text):
        found = [attribute.find(text, *sentence.span()) for attribute in attributes]
        whole = tuple(one for one in found if one is not None)
        apart = sorted((one.start, one.end) for one in whole)
        if len(whole) == len(found) and all(end <= start for (_, end), (start, _) in pairwise(apart)):
            told.append(Statement(whole))
    return told


def restate_text(text: str, attributes: Sequence[Attribute], changes: Sequence[tuple[Statement, Values]]) -> str:
    """Change the statements of a text to other values, each in the form of the value it replaces.

    >>> place = Attribute("place", {"hall": ["hall"], "roof": ["roof", "top"]})
    >>> told = statements("Hall floods.", [place])
    >>> restate_text("Hall floods.", [place], [(told[0], ("roof",))])
    'Roof floods.'
    """
    edits = [
        (one, attribute.words(value, one))
        for told, values in changes
        for attribute, one, value in zip(attributes, told.found, values, strict=True)
        if value != one.value
    ]
    for one, words in sorted(edits, key=lambda edit: -edit[0].start):
        capital = text[one.start].isupper() and not text[one.start : one.end].isupper()
        text = text[: one.start] + (words[:1].upper() + words[1:] if capital else words) + text[one.end :]
    return text
