"""Segments texts of any script into words, the one way for filters, near-duplicates, n-grams, attacks and TF-IDF."""

import re

import regex

from palimpsest.records.keyed import normalise

# Signs between any two of which a line may break (Unicode Standard Annex 14: ID and CJ, as Chinese and Japanese), or
# for whose breaks a dictionary is needed (SA: Thai, Lao, Khmer, Myanmar and others). Their scripts write no spaces.
_UNSPACED = r"[[\p{lb=ID}\p{lb=CJ}\p{lb=SA}]&&[\w--[\p{M}\p{N}]]]"
_LETTER = rf"[[\w\p{{N}}]--{_UNSPACED}]"
_JOINED = rf"[[\w\p{{N}}\p{{M}}\u200c\u200d]--{_UNSPACED}]"  # marks, and joiners as Persian has inside words
SIGN = rf"{_UNSPACED}\p{{M}}*"  # of such a script, with its marks; these patterns need version 1 of `regex`
WORD = rf"(?:{SIGN}|{_LETTER}{_JOINED}*)"
STOPS = "。！？｡؟۔।॥։።"  # what ends a sentence in other scripts than Latin, and nothing else
ENDS = f".!?{STOPS}"

_WORD = regex.compile(rf"(?V1){WORD}")
_SIGN = regex.compile(rf"(?V1){SIGN}")
_PART = regex.compile(rf"(?V1)\s+|{SIGN}|(?:(?!{_UNSPACED})\S)+")
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


def is_unspaced(sign: str) -> bool:
    """Tell whether a sign is of a script without spaces, so that the word before it may end anywhere."""
    return _SIGN.match(sign) is not None


def split_parts(text: str) -> list[str]:
    """Split a text into blanks and what stands between them, punctuation included; joined they are the text.

    >>> split_parts("So late, 很晚。")
    ['So', ' ', 'late,', ' ', '很', '晚', '。']
    """
    return _PART.findall(text)


def count_parts(text: str) -> int:
    """Count what a person calls the words of a text: what stands between blanks, or the signs of unspaced scripts.

    >>> count_parts("It's so late."), count_parts("很晚。")
    (3, 3)
    """
    return len(text.split()) if text.isascii() else sum(not part.isspace() for part in split_parts(text))
