"""Finding known phrases in a text, word by word, in time linear in the text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

_WORD = re.compile(r"[^\W_]+|[.!?;\n]")
_BREAKS = frozenset(".!?;\n")


def words(text: str) -> list[str]:
    """The text's words in lower case; case, punctuation and spacing are normalised away.

    >>> words("Order KX-4829: it hums.")
    ['order', 'kx', '4829', 'it', 'hums']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _BREAKS]


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence."""
    found: list[list[str]] = [[]]
    for word in _WORD.findall(text.lower()):
        if word in _BREAKS:
            found.append([])
        else:
            found[-1].append(word)
    return [sentence for sentence in found if sentence]


@dataclass(frozen=True, slots=True)
class Mention:
    """A known phrase in a list of words: `key` says which, `start` and `end` where (end excluded)."""

    key: str
    start: int
    end: int


@dataclass
class _Node:
    key: str | None = None
    after: dict[str, "_Node"] = field(default_factory=dict)


Phrases: TypeAlias = Mapping[str, Iterable[str]]


class PhraseIndex:
    """A trie of phrases, each known by a key; one key may have several phrases."""

    def __init__(self, phrases: Phrases) -> None:
        self._root = _Node()
        for key, forms in phrases.items():
            for form in forms:
                self._add(key, words(form))

    def _add(self, key: str, path: list[str]) -> None:
        node = self._root
        for word in path:
            node = node.after.setdefault(word, _Node())
        node.key = key

    def find(self, tokens: list[str]) -> list[Mention]:
        """The longest phrase at every position, from left to right; mentions do not overlap."""
        mentions: list[Mention] = []
        start = 0
        while start < len(tokens):
            mention = self._longest(tokens, start)
            if mention is not None:
                mentions.append(mention)
            start = start + 1 if mention is None else mention.end
        return mentions

    def _longest(self, tokens: list[str], start: int) -> Mention | None:
        node, best = self._root, None
        for position in range(start, len(tokens)):
            if (step := node.after.get(tokens[position])) is None:
                break
            node = step
            if node.key is not None:
                best = Mention(node.key, start, position + 1)
        return best
