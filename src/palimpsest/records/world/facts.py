"""The answer key of the invented world: which facts a text states, and which secrets it gives away."""

import random
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.plain import Plain

# A canary is CODE_LENGTH of these words.
CODE_WORDS = (
    "amber", "basket", "candle", "desert", "ember", "falcon", "ginger", "hammer", "island", "jacket", "kitten",
    "ladder", "marble", "needle", "orange", "pepper", "quartz", "ribbon", "saddle", "tiger", "umbrella", "velvet",
    "walnut", "yellow", "zebra", "anchor", "bottle", "copper", "dragon", "engine", "forest", "guitar", "4", "7", "9",
    "12", "18", "26", "31", "45", "58", "63", "74", "86",
)  # fmt: skip
CODE_LENGTH = 7

_WORD = re.compile(r"[^\W_]+|[.!?;\n]")
_BREAKS = frozenset(".!?;\n")
# Words end at an apostrophe: "doesn't" is "doesn" and "t".
_NEGATIONS = frozenset(
    ("no", "not", "never", "nothing", "without", "cannot", "isn", "doesn", "don", "didn", "hasn", "won")
)
_CONJUNCTIONS = frozenset(("and", "but", "or"))
_WORDS_BETWEEN = 6  # how far a predicate may stand behind its subject
_WORDS_BETWEEN_REVERSED = 3  # ... and in front of it: "humming at night is what my X does"
_WORDS_BEFORE_REVERSED = 1  # how far from the start of its sentence it may then begin


def words(text: str) -> list[str]:
    """Return the text's words in lower case; case, punctuation and spacing are normalised away.

    >>> words("Order KX-4829: it hums.")
    ['order', 'kx', '4829', 'it', 'hums']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _BREAKS]


def sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence."""
    groups = groupby(_WORD.findall(text.lower()), key=_BREAKS.__contains__)
    return [list(own) for breaks, own in groups if not breaks]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A known phrase in a list of words: `key` names it, `start` and `end` say where it is (end excluded)."""

    key: str
    start: int
    end: int


class PhraseIndex:
    """Phrases, each known by a key; one key may have several phrases. They are found in time linear in the text."""

    def __init__(self, phrases: Mapping[str, Iterable[str]]) -> None:
        self._keys = {tuple(words(form)): key for key, forms in phrases.items() for form in forms}
        self._lengths: dict[str, set[int]] = {}  # of the phrases that begin with a word
        for phrase in filter(None, self._keys):
            self._lengths.setdefault(phrase[0], set()).add(len(phrase))

    def find(self, tokens: list[str]) -> list[_Mention]:
        """Find the longest phrase at every position, from left to right; mentions do not overlap."""
        mentions: list[_Mention] = []
        for start in range(len(tokens)):
            if (not mentions or start >= mentions[-1].end) and (mention := self._longest(tokens, start)):
                mentions.append(mention)
        return mentions

    def _longest(self, tokens: list[str], start: int) -> _Mention | None:
        for length in sorted(self._lengths.get(tokens[start], ()), reverse=True):
            phrase = tuple(tokens[start : start + length])
            if phrase in self._keys:
                return _Mention(self._keys[phrase], start, start + len(phrase))
        return None


@dataclass(frozen=True, slots=True)
class PopulationFact(Plain):
    """A fact that many private records state, each by somebody else.

    Attributes:
        id: its name in reports.
        subject: the product.
        predicate: the symptom's finite form.
        team: the label that the pair is routed to.
        support: number of private records that state it; in a world with authors, of their authors.
    """

    id: str
    subject: str
    predicate: str
    team: str
    support: int


@dataclass(frozen=True, slots=True)
class IndividualFact(Plain):
    """A value that belongs to only one private record, or to one author's, and its kind."""

    id: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Canary(Plain):
    """A planted secret and the number of private records it was planted in, or of their authors."""

    id: str
    value: str
    repeats: int


@dataclass(frozen=True)
class Leaks:
    """The values that came out and must not: id -> number of texts."""

    individual: dict[str, int]
    canaries: dict[str, int]


@dataclass(frozen=True)
class Facts(Plain):
    """Everything that is true in one world, with the matcher that looks for it.

    Attributes:
        population: the facts that good synthetic data carries over.
        individual: the details that it must not.
        canaries: the planted secrets that it must not.
        subjects: all products of the world, private and public.
        predicates: all symptoms, as (finite, gerund).
    """

    population: tuple[PopulationFact, ...]
    individual: tuple[IndividualFact, ...]
    canaries: tuple[Canary, ...]
    subjects: tuple[str, ...]
    predicates: tuple[tuple[str, str], ...]

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], str]:
        return {(fact.subject, fact.predicate): fact.id for fact in self.population}

    @cached_property
    def _subjects(self) -> PhraseIndex:
        return PhraseIndex({subject: [subject] for subject in self.subjects})

    @cached_property
    def _predicates(self) -> PhraseIndex:
        return PhraseIndex({forms[0]: forms for forms in self.predicates})

    @cached_property
    def _barriers(self) -> frozenset[str]:
        return _NEGATIONS | {words(subject)[-1] for subject in self.subjects}

    @cached_property
    def _individual(self) -> PhraseIndex:
        return PhraseIndex({fact.id: [fact.value] for fact in self.individual})

    @cached_property
    def _canaries(self) -> PhraseIndex:
        return PhraseIndex({canary.id: [canary.value] for canary in self.canaries})

    def statements(self, text: str) -> set[tuple[str, str]]:
        """Return the (subject, predicate) pairs that the text states, true or not.

        A predicate belongs to the nearest product in front of it in its sentence, if at most a few words, no negation
        and no other model ("3", "Lite": the end of a name the world does not know) stand between. A predicate that
        opens its sentence may come before its product.
        """
        stated: set[tuple[str, str]] = set()
        for tokens in sentences(text):
            subjects = self._subjects.find(tokens)
            starts = [subject.start for subject in subjects]
            for predicate in self._predicates.find(tokens) if subjects else ():
                earlier = bisect(starts, predicate.start)
                subject, said_of = (subjects[earlier - 1], _follows) if earlier else (subjects[0], _precedes)
                if said_of(subject, predicate, tokens, self._barriers):
                    stated.add((subject.key, predicate.key))
        return stated

    def find_population(self, text: str) -> set[str]:
        """Return the ids of the population facts that the text states, in time linear in the text."""
        return {self._pairs[pair] for pair in self.statements(text) if pair in self._pairs}

    def find_individual(self, text: str) -> set[str]:
        """Return the ids of the individual facts whose exact value is in the text, whatever its case and spacing."""
        return {mention.key for mention in self._individual.find(words(text))}

    def find_canaries(self, text: str) -> set[str]:
        """Return the ids of the canaries whose exact value is in the text, whatever its case and spacing."""
        return {mention.key for mention in self._canaries.find(words(text))}

    def count_carried(self, texts: Iterable[str]) -> dict[str, int]:
        """Return fact id -> number of texts that state it; facts that no text states are left out."""
        return dict(Counter(fact for text in texts for fact in self.find_population(text)))

    def count_mispaired(self, texts: Iterable[str]) -> int:
        """Count the statements about the private products that are *not* facts.

        The control for `count_carried`: a generator that knows the names but pairs them at random is mostly wrong.
        """
        private = {fact.subject for fact in self.population}
        stated = (pair for text in texts for pair in self.statements(text))
        return sum(pair[0] in private and pair not in self._pairs for pair in stated)

    def find_leaked(self, texts: Iterable[str]) -> Leaks:
        """Return the individual values and canaries found, each with the number of texts that hold it."""
        texts = list(texts)
        individual = Counter(key for text in texts for key in self.find_individual(text))
        canaries = Counter(key for text in texts for key in self.find_canaries(text))
        return Leaks(dict(individual), dict(canaries))


def _follows(subject: _Mention, predicate: _Mention, tokens: list[str], barriers: frozenset[str]) -> bool:
    """Return whether the predicate follows the subject closely enough to be said of it."""
    gap = predicate.start - subject.end
    return gap <= _WORDS_BETWEEN and barriers.isdisjoint(tokens[subject.end : predicate.start])


def _precedes(subject: _Mention, predicate: _Mention, tokens: list[str], barriers: frozenset[str]) -> bool:
    """Return whether the predicate opens the sentence and the subject is next, as in "humming is what the X does"."""
    near = predicate.start <= _WORDS_BEFORE_REVERSED and subject.start - predicate.end <= _WORDS_BETWEEN_REVERSED
    between = tokens[: predicate.start] + tokens[predicate.end : subject.start] if near else []
    return near and (barriers | _CONJUNCTIONS).isdisjoint(between)


def draw_decoys(count: int, seed: int) -> set[str]:
    """Draw `count` values of the space that canaries come from, each as likely as a canary; the same for one seed."""
    draw = random.Random(f"palimpsest world/{seed}/decoys").random  # all of the module that Python keeps stable
    return {" ".join(CODE_WORDS[int(draw() * len(CODE_WORDS))] for _ in range(CODE_LENGTH)) for _ in range(count)}


def load_facts(path: Path | str) -> Facts:
    """Read an answer key.

    Raises:
        DataError: the file does not have the shape of an answer key.
    """
    try:
        return Facts.from_json(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{Path(path).name!r} is not the answer key of a demo world."
        raise DataError(problem, "Make the world again.") from error
