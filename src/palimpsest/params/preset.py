"""Presets: entries of a key, its value and where it is from; and the presets that packages bring."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest import extensions

OURS = "ours"  # the paper leaves it open
ALWAYS = "always"
HERE = "<e>"  # in a key or a value: the epsilon of the rows, as names have it


@dataclass(frozen=True)
class Facts:
    """The public facts of a data set and its models, which are all that a preset is given.

    Attributes:
        task: classify, span, text or json.
        labels: the number of labels.
        units: the declared number of records, or of persons where these are the unit.
        epsilon: of each row.
        delta: the data set's, where one was asked for.
        named: whether a language model is named; otherwise the embedded one is used.
        words: the word for a text, where prompts are in words.
        test: whether a test file is there.
        endpoint: whether the author of private evolution answers behind an endpoint.
    """

    task: str
    labels: int
    units: int
    epsilon: float
    delta: float | None = None
    named: bool = False
    words: str | None = None
    test: bool = False
    endpoint: bool = False


CONDITIONS: Mapping[str, Callable[[Facts], bool]] = {
    ALWAYS: lambda _: True,
    "labels": lambda facts: facts.labels > 0,
    "a label": lambda facts: facts.task in ("classify", "span"),
    "task span": lambda facts: facts.task == "span",
    "task text": lambda facts: facts.task == "text",
    "task json": lambda facts: facts.task == "json",
    "no test file": lambda facts: not facts.test,
    "words: reviews": lambda facts: facts.words == "reviews",
    "the embedded model": lambda facts: not facts.named,
    "a named model": lambda facts: facts.named,
}


@dataclass(frozen=True)
class Worked:
    """A value that follows from the public facts.

    Attributes:
        words: its description, for the page.
        of: works it out from the facts.
    """

    words: str
    of: Callable[[Facts], Any]


@dataclass(frozen=True)
class Entry:
    """One decision of a preset.

    Attributes:
        key: as params.yaml has it, with `<e>` in the names of rows and models.
        value: what is written there.
        source: section, table or algorithm of the paper, or `ours`.
        says: what is printed there; of one of ours the reason.
        where: when it holds, a key of `CONDITIONS`; if two hold for one key, the later counts.
    """

    key: str
    value: Any
    source: str
    says: str
    where: str = ALWAYS


@dataclass(frozen=True)
class Preset:
    """The settings of one paper, over all of its methods.

    Attributes:
        name: as `init --preset` takes it.
        title: of the paper, with its authors where they are known.
        tasks: what its methods can all do.
        epsilon: of each row, unless another is given.
        worded: whether a named model is prompted in words; else the paper has a form of its own.
        models: key of params.yaml -> what the paper has there, for the owner to name.
        entries: what is written.
        beyond: what it cannot do at the cost that the paper states, with the number.
        lacks: parts of the paper that no setting has.
        by_endpoint: what is written for its author in place of the entries under `authors`, and over others, where the
            author answers behind an endpoint; its address is the owner's to add.
    """

    name: str
    title: str
    tasks: tuple[str, ...]
    epsilon: float
    worded: bool
    models: Mapping[str, str]
    entries: tuple[Entry, ...]
    beyond: tuple[str, ...]
    lacks: tuple[str, ...]
    by_endpoint: tuple[Entry, ...] = ()

    def settings(self, facts: Facts) -> dict[str, Any]:
        """The sections of params.yaml that it writes, but for the data set, the budget and the models."""
        body: dict[str, Any] = {}
        for entry in self._entries(facts):
            if CONDITIONS[entry.where](facts):
                *path, last = _fill_facts(entry.key, facts).split(".")
                section = body
                for name in path:
                    section = section.setdefault(name, {})
                section[last] = _fill_facts(entry.value, facts)
        return body

    def _entries(self, facts: Facts) -> tuple[Entry, ...]:
        if not facts.endpoint:
            return self.entries
        return tuple(entry for entry in self.entries if not entry.key.startswith("authors.")) + self.by_endpoint


def reader() -> Worked:
    """Return what reads private texts in prompts: a named model as it is, or the embedded one behind public pairs."""
    words = "base; of the embedded model taught/similar"
    return Worked(words, lambda facts: "base" if facts.named else "taught/similar")


def epsilon_suffix(epsilon: float) -> str:
    """Return an epsilon in the form that ends the names of rows.

    >>> epsilon_suffix(3.0), epsilon_suffix(0.5)
    ('3', '0_5')
    """
    return re.sub(r"[^a-z0-9]", "_", f"{epsilon:g}")


def _fill_facts(value: Any, facts: Facts) -> Any:
    """Return a value with what follows from the facts filled in, and the epsilon in names."""
    if isinstance(value, Worked):
        return value.of(facts)
    if isinstance(value, list):
        return [_fill_facts(one, facts) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.replace(HERE, epsilon_suffix(facts.epsilon)) if isinstance(value, str) else value


@functools.cache
def presets() -> Mapping[str, Preset]:
    """Return the presets that installed packages bring, by name."""
    return {found.name: found for found in extensions.load_group(extensions.PRESETS).values()}
