"""The list of mutants: one fault each, as edits of source files, with the tests that must notice it."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.toml")
TIERS = {
    "T0": "exact: outcomes enumerated, or an account computed",
    "T1": "record replay: with and without a record, mechanisms' outputs frozen",
    "T2": "distribution: variance, independence, rates, one charge for each call",
    "T3": "mechanism audit: canaries through the real code, against the whole curve",
    "T4": "end to end: a small model and its broken twins",
    "taint": "the graph and the code: nothing private passes the meter by",
}
RANDOMISED = ("T2", "T3")  # those of T4 take long: `make test-slow` repeats them


@dataclass(frozen=True)
class Edit:
    """One place of one file."""

    file: str  # path below the project's root
    old: str  # what stands there, exactly once
    new: str  # what the mutant has instead


@dataclass(frozen=True)
class Mutant:
    """A fault that breaks a guarantee."""

    id: str  # its name
    item: str  # which fault of the list it is an instance of, a key of `Listing.items`
    sentence: str  # what the mutated code does
    law: str  # what must hold and does not
    edits: tuple[Edit, ...]  # the fault
    tests: Mapping[str, tuple[str, ...]]  # tier -> node ids that are run against it

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes."""
        return tuple(dict.fromkeys(edit.file for edit in self.edits))


@dataclass(frozen=True)
class Listing:
    """All of them."""

    items: Mapping[str, str]  # key -> a fault in words
    mutants: tuple[Mutant, ...]  # at least one for each
    fixed: frozenset[str] = frozenset()  # node ids of randomised tiers that no draw decides

    @property
    def tests(self) -> list[str]:
        """All node ids, each once."""
        return self._tests(TIERS)

    @property
    def randomised(self) -> list[str]:
        """Those that could fail on the correct code by chance."""
        return [node for node in self._tests(RANDOMISED) if node not in self.fixed]

    def _tests(self, tiers: Collection[str]) -> list[str]:
        found = (node for one in self.mutants for tier, nodes in one.tests.items() if tier in tiers for node in nodes)
        return sorted(set(found))


def read(path: Path = LIST) -> Listing:
    """The list as it is written down."""
    body = tomllib.loads(path.read_text(encoding="utf-8"))
    return Listing(body["items"], tuple(_mutant(one) for one in body["mutant"]), frozenset(body["fixed"]))


def _mutant(body: Mapping[str, Any]) -> Mutant:
    edits = tuple(Edit(**edit) for edit in body["edit"])
    tests = {tier: tuple(nodes) for tier, nodes in body["tests"].items()}
    return Mutant(body["id"], body["item"], body["sentence"], body["law"], edits, tests)


def applied(edits: Sequence[Edit], root: Path) -> dict[str, str]:
    """File -> its text with the edits made, one after the other.

    Raises:
        ValueError: what an edit replaces does not stand in its file exactly once.
    """
    texts: dict[str, str] = {}
    for edit in edits:
        text = texts.get(edit.file) or (root / edit.file).read_text(encoding="utf-8")
        if (count := text.count(edit.old)) != 1:
            raise ValueError(f"{edit.file} has this text {count} times, not once: {edit.old!r}")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts
