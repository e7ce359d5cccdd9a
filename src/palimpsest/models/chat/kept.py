"""Answers that are kept, so that a stopped run goes on where it was and pays for nothing twice."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from palimpsest.models.chat.asks import digest
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.book import Book, TokenUse


class Telling(Protocol):
    """A `Chat` that hands answers over as they come."""

    def answer(self, asks: Sequence[Ask], told: Callable[[int, Answer], None] | None = None) -> list[Answer]:
        """As `Chat.answer`; `told` gets each answer's place and the answer as soon as it is there."""


class KeptChat:
    """Asks another model only what it has not answered before; equal asks share one answer.

    Each answer is on disk before the next is waited for. A failed one is not kept: the next run asks again.

    Attributes:
        hits: asks whose answer was there already.
    """

    def __init__(self, inner: Telling, path: Path, model_id: str) -> None:
        """Open or make the file.

        Args:
            inner: who is asked.
            path: a SQLite file; one for each variant, since it also counts what is spent.
            model_id: all that an answer depends on beside the ask: the model, its seed.

        Raises:
            DataError: the file is no such database.
        """
        self._inner, self._book, self._model_id = inner, Book(path), model_id
        self.hits = 0

    @property
    def kept(self) -> TokenUse:
        """Tokens of all kept answers, over all attempts; what failed or was lost is not among them."""
        return self._book.kept()

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """As `Chat.answer`."""
        keys = [digest(self._model_id, ask) for ask in asks]
        found = {key: answer for key in dict.fromkeys(keys) if (answer := self._book.find(key)) is not None}
        self.hits += sum(key in found for key in keys)
        missing = {key: ask for key, ask in zip(keys, asks, strict=True) if key not in found}
        names = list(missing)
        fresh = self._inner.answer(list(missing.values()), lambda place, answer: self._keep(names[place], answer))
        found |= dict(zip(names, fresh, strict=True))
        return [found[key] for key in keys]

    def _keep(self, key: str, answer: Answer) -> None:
        if answer.finish != "failed":
            self._book.keep(key, answer)
