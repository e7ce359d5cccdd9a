"""Public texts cut into sentences, the material that a decoder learns from."""

import re
from collections.abc import Iterable

_TAG = re.compile(r"<br ?/?>")
_SPACE = re.compile(r"\s+")
_BOUNDARY = re.compile(r'(?<=[.!?])\s+(?=[A-Z"])')
_FEWEST, _MOST = 4, 28  # words: shorter ones say little, longer ones are more than one embedding holds
_LONGEST = 200  # characters, unless it is quoted: lists and tables are longer


def split_sentences(text: str) -> list[str]:
    """The usable sentences of a text, in order: 4 to 28 words, a capital or a quotation mark in front."""
    plain = _SPACE.sub(" ", _TAG.sub(" ", text)).strip()
    return [sentence for sentence in _BOUNDARY.split(plain) if _usable(sentence)]


def sentences_of(texts: Iterable[str]) -> list[str]:
    """The distinct usable sentences of public texts, in order of appearance; case does not tell two apart.

    >>> sentences_of(["A man walks in.<br /> He sits down there. A MAN walks in.", "No."])
    ['A man walks in.', 'He sits down there.']
    """
    distinct: dict[str, str] = {}
    for text in texts:
        for sentence in split_sentences(text):
            distinct.setdefault(sentence.lower(), sentence)
    return list(distinct.values())


def _usable(sentence: str) -> bool:
    words = len(sentence.split())
    begins = sentence.startswith('"') or (sentence[:1].isupper() and len(sentence) < _LONGEST)
    return begins and _FEWEST <= words <= _MOST
