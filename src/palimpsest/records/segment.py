"""Segments texts of any script into words, the one way for filters, near-duplicates, n-grams, attacks and TF-IDF."""

import re

import regex

from palimpsest.records.keyed import normalise

# Signs between any two of which a line may break (Unicode Standard Annex 14: ID and CJ, as Chinese and Japanese), or
# for whose breaks a dictionary is needed (SA: Thai, Lao, Khmer, Myanmar and others). Their scripts write no spaces.
_UNSPACED = r"[[\p{lb=ID}\p{lb=CJ}\p{lb=SA}]--[\p{M}\p{N}]]"
_LETTER = r"[\w\p{N}]"
_JOINED = r"[[\w\p{N}\p{M}\u200c\u200d]--[" + _UNSPACED + "]]"  # marks, and joiners as Persian has inside words
_WORD = regex.compile(rf"(?V1)[{_UNSPACED}&&{_LETTER}]\p{{M}}*|[{_LETTER}--{_UNSPACED}]{_JOINED}*")
_ASCII_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of the normalised text: runs of letters, marks and digits; punctuation is dropped.

    In a script without spaces each sign is a word, with the marks that it carries: no dictionary decides.

    >>> words("It's  LATE, again!")
    ['it', 's', 'late', 'again']
    >>> words("iPhone很好用 २०२४ में")
    ['iphone', '很', '好', '用', '२०२४', 'में']
    """
    normal = normalise(text)
    return _ASCII_WORD.findall(normal) if normal.isascii() else _WORD.findall(normal)


def find_words(text: str) -> list[tuple[int, int]]:
    """Return where each word of the text as it stands begins and ends."""
    return [match.span() for match in _WORD.finditer(text)]


def wording(text: str) -> str:
    """Return the one spelling of all texts that differ only in case, punctuation or spacing."""
    return " ".join(words(text))
