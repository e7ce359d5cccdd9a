"""Which rows filters removed: some of them, for the eye of whoever looks into the private zone.

This is a module of its own, that no method imports: a stage that spends is held to the code that it runs, and would be
charged again for what nobody draws from.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from palimpsest.methods.shared.postprocess import Candidate, Filter, FilterChain
from palimpsest.records.record import Record

_SHOWN = 30  # rows of each filter
_KEY = "removed_samples"  # in generation.json


class NotingChain(FilterChain):
    """A chain that removes what another one would, and keeps some of it."""

    def __init__(self, chain: FilterChain) -> None:
        """Start with the filters of a chain that has seen nothing."""
        self._noting = [_Noting(each) for each in chain._filters]  # noqa: SLF001
        super().__init__(self._noting)

    @property
    def noted(self) -> dict[str, list[Record]]:
        """Filter name -> at most 30 of the rows that it removed so far, any of them as likely as another."""
        return {each.name: each.shown for each in self._noting if each.shown}

    def to_json(self) -> dict[str, Any]:
        """What generation.json has of it; `noted_in` reads it.

        It stays in the private zone: a filter may have removed a row because it names one person.
        """
        return {_KEY: {name: [asdict(row) for row in rows] for name, rows in self.noted.items()}}


def noted_in(document: Mapping[str, Any]) -> dict[str, list[Record]]:
    """Filter name -> some of the rows that it removed, of a generation.json; none where it has none."""
    return {name: [Record(**row) for row in rows] for name, rows in document.get(_KEY, {}).items()}


class _Noting:
    """A filter that keeps some of what it removed, by reservoir sampling (Vitter 1985, algorithm R).

    The draws have a seed of their own: which rows are kept follows from the sequence of rows alone.
    """

    def __init__(self, filter: Filter) -> None:
        self.name, self.shown = filter.name, list[Record]()
        self._filter, self._seen, self._draw = filter, 0, random.Random(0)

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        keeps = self._filter.keeps(candidates)
        self._note(one.record for one, keep in zip(candidates, keeps, strict=True) if not keep)
        return keeps

    def _note(self, removed: Iterable[Record]) -> None:
        for row in removed:
            self._seen += 1
            if self._seen <= _SHOWN:
                self.shown.append(row)
            elif (place := self._draw.randrange(self._seen)) < _SHOWN:
                self.shown[place] = row
