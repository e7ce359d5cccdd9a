"""Phrases: single words and pairs of neighbours that a text has, and how common they are in public texts.

What counts as a word is public. The phrases of a text are a function of only that text and public texts.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import regex

from palimpsest.records.keyed import normalise
from palimpsest.records.segment import SIGN, split_parts

# What stands between blanks, if it is a word: two letters or more, joined by apostrophes or hyphens, signs that open
# before it and signs that close behind it; or one sign of a script without blanks. No digit and no @, so that no phrase
# is an address or a number of somebody.
_LETTER = r"[^\W\d_]\p{M}*"
_WORD = regex.compile(
    rf"""(?V1)(["'(\[“‘#]*)((?:{_LETTER}){{2,}}(?:['’-](?:{_LETTER})+)*|{SIGN})([.,;:!?"')\]…”’。，、！？।؟،۔]*)"""
)


@dataclass(frozen=True, eq=False)
class PublicWords:
    """Statistics of words in public texts.

    Attributes:
        texts: how many texts there are.
        counts: word -> how many texts have it.
        common: share of the texts above which a word tells nothing and is in no phrase.
    """

    texts: int
    counts: Mapping[str, int]
    common: float

    @classmethod
    def of(cls, texts: Sequence[str], common: float) -> Self:
        """Count the words of these texts."""
        counts = Counter(word for text in texts for word in {word for _, word, _ in _words(text) if word})
        return cls(len(texts), counts, common)

    def phrases(self, text: str) -> set[str]:
        """Return the words of a text, in lower case, and the pairs of neighbours with no sign between them.

        >>> sorted(PublicWords.of(["the roof", "the hall"], 0.9).phrases("Roof leaks, the cellar 2 floods."))
        ['cellar', 'floods', 'leaks', 'roof', 'roof leaks']
        """
        found, before = set[str](), ""  # the word that a pair may begin with
        for opened, word, closed in _words(text):
            if not word or self._tells_nothing(word):
                before = ""
                continue
            found |= {word, f"{before} {word}"} if before and not opened else {word}
            before = "" if closed else word
        return found

    def surprise(self, phrase: str) -> float:
        """Return how rare a phrase's words are in public texts, in nats, added up; a word in no text is the rarest."""
        return sum(math.log((self.texts + 1) / (self.counts.get(word, 0) + 1)) for word in phrase.split())

    def _tells_nothing(self, word: str) -> bool:
        return self.counts.get(word, 0) > self.common * self.texts


def _words(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each part between blanks the signs before its word, the word and the signs after; "" for no word."""
    for part in split_parts(normalise(text)):
        if part.isspace():
            continue
        match = _WORD.fullmatch(part)
        yield ("", "", "") if match is None else (match[1], match[2], match[3])
