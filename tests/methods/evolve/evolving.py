"""Small settings of private evolution, an author that notes all it is told, and a metered view of invented rows."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.errors import BackendError
from palimpsest.methods.evolve.declaration import EvolveMeans, EvolveSettings
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.settings import Votes
from palimpsest.methods.vote_select.declaration import VoteSelectSettings
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.tickets import FILTERS, SECRET, THINGS, ledger_of_tickets, opened_by, tickets

LABELS = {"refund": "Money back.", "praise": "Kind words."}
_SETTINGS = {
    "rows": 6, "label_counts": "prior", "prior": None, "histogram_share": 0.05, "batch": 1, "rounds": 3, "expand": 3,
    "look_ahead": 0, "class_means": None, "filters": FILTERS,
}  # fmt: skip
STEERING = EvolveMeans(share=0.25, domain=1.0, first=2, pool=2)
ROWS = [
    PrivateRow(f"{SECRET} {number}: my {thing}", label)
    for label, things in (("refund", THINGS[:3]), ("praise", THINGS[3:]))
    for thing in things
    for number in range(10)
]


def schema_of(n_public: int = 60, labels: Mapping[str, str] = LABELS) -> PublicSchema:
    return tickets(n_public, labels)


def votes_of(**changes: Any) -> Votes:
    return Votes(**{"neighbours": 1, "threshold": 0.0, "selection": "rank", **changes})


def evolve_settings(*, votes: Mapping[str, Any] | None = None, **changes: Any) -> EvolveSettings:
    """Of method evolve; keyword arguments replace them, `votes` some of its keys."""
    return EvolveSettings(**{**_SETTINGS, **changes, "votes": votes_of(**(votes or {}))})


def vote_select_settings(keep: float = 0.5, **votes: Any) -> VoteSelectSettings:
    return VoteSelectSettings(keep=keep, votes=votes_of(**votes), batch=1)


def encode(texts: Sequence[str]) -> np.ndarray:
    """A coordinate for each thing that a text names; a text that names nothing is zero."""
    return np.array([[float(thing in text) for thing in THINGS] for text in texts]).reshape(-1, len(THINGS))


@dataclass
class Writer:
    """An author that names things in turn, and notes every string that it is given."""

    share: float = 1.0  # of what is asked for, what is written
    fails: int | None = None  # turn whose variations it cannot write
    calls: list[str | int] = field(default_factory=list)  # "random", or the turn, of each call
    given: list[str | None] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        """Texts that name one thing each."""
        self.calls.append("random")
        self.given.extend(counts)
        self.sizes.append(sum(counts.values()))
        return [
            Record(f"{label} new {number} {THINGS[number % 6]}", label or None)
            for label, count in counts.items()
            for number in range(int(self.share * count))
        ]

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        """Texts that name another thing each."""
        self.calls.append(turn)
        self.given.extend(part for record in records for part in (record.text, record.label))
        self.sizes.append(times * len(records))
        if turn == self.fails:
            raise BackendError("The model cannot be reached.", "Run again.")
        return [
            [
                Record(f"{record.label} turn {turn} of {place}.{number} {THINGS[(place + number) % 6]}", record.label)
                for number in range(int(self.share * times))
            ]
            for place, record in enumerate(records)
        ]


def new_ledger(folder: Path, epsilon: float = 60.0) -> Ledger:
    return ledger_of_tickets(folder, epsilon, 60)


def opened(
    ledger: Ledger, schema: PublicSchema, plan: Plan, purpose: str = "release", rows: Sequence[PrivateRow] = ROWS
) -> AbstractContextManager[PrivateView]:
    return opened_by("private_evolve", rows, ledger, schema, plan, purpose)
