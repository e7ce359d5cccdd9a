"""The ledger's entries as a chain of hashes: each carries the hash of the one before.

Nothing is read out of a ledger before its chain is recomputed and checked against what was noted elsewhere.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger.database import assets, entries
from palimpsest.privacy.ledger.records import canonical_json, digest_of
from palimpsest.privacy.ledger.witness import Head

_EMPTY = Head(0, "")
_RESTORE = "Restore the ledger from a backup; nothing may be charged or released on this one."
_SAID_ONCE = ("key_hash", "lost")  # no later entry says otherwise
# What reading a malformed body can raise.
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True)
class Entry:
    """One entry: the columns of its row, in their order."""

    seq: int
    asset: str
    kind: str
    charge: str | None
    time: str
    body: str
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        """The number and hash that are noted outside the ledger."""
        return Head(self.seq, self.hash)

    @property
    def says(self) -> dict[str, Any]:
        """The parsed body; LedgerError where it is malformed."""
        with report_malformed(f"Entry {self.seq}"):
            return dict(json.loads(self.body))


@dataclass(frozen=True)
class Chain:
    """A whole ledger at one moment, recomputed.

    Attributes:
        entries: oldest first.
        keys: asset -> its key, in hexadecimal digits.
    """

    entries: Sequence[Entry]
    keys: Mapping[str, str]

    @property
    def head(self) -> Head:
        """The newest entry."""
        return self.entries[-1].head if self.entries else _EMPTY

    def of(self, asset: str, *kinds: str) -> Iterator[Entry]:
        """An asset's entries of these kinds, oldest first."""
        return (entry for entry in self.entries if entry.asset == asset and entry.kind in kinds)

    def terms(self, asset: str) -> dict[str, Any]:
        """Return the registered terms of an asset, as amended; empty where it is not registered.

        Guarantee: the key is the one that its hash was first written of, whoever amended it later, so that no other key
        leads away from the heads that were noted; and a mark that a ledger is lost stays.
        """
        terms: dict[str, Any] = {}
        for entry in self.of(asset, "register", "amend"):
            terms |= entry.says | {name: terms[name] for name in _SAID_ONCE if name in terms}
        return terms

    def count_missing(self, hashes: Collection[str], heads: Collection[Head]) -> int:
        """Count the entries noted elsewhere that the chain lacks; one noted with a number must stand at that number."""
        known = {entry.hash: entry.seq for entry in self.entries}
        misplaced = {head.hash for head in heads if known.get(head.hash) != head.seq}
        return len({each for each in hashes if each not in known} | misplaced)


def read(connection: Connection) -> Chain:
    """Read all entries and keys and recompute them; see `rebuild_chain`."""
    rows = connection.execute(sa.select(entries).order_by(entries.c.seq))
    return rebuild_chain(rows, {row.name: row.key for row in connection.execute(sa.select(assets))})


def rebuild_chain(rows: Iterable[Sequence[Any]], keys: Mapping[str, str]) -> Chain:
    """Recompute the chain of these rows, oldest first.

    Raises:
        LedgerError: naming the first entry that does not fit, or an asset whose key is not the one it began with.
    """
    chained: list[Entry] = []
    previous = _EMPTY.hash
    for expected, row in enumerate(rows, start=1):
        entry = _verify_row(row)
        if entry.seq != expected or entry.previous != previous:
            raise _misfit(entry)
        chained.append(entry)
        previous = entry.hash
    chain = Chain(chained, keys)
    _check_keys(chain)
    return chain


def read_kind(connection: Connection, kind: str) -> list[Entry]:
    """Read all entries of one kind, oldest first, without the rest of the chain; LedgerError where one was changed."""
    rows = sa.select(entries).where(entries.c.kind == kind).order_by(entries.c.seq)
    return [_verify_row(row) for row in connection.execute(rows)]


def read_charge(connection: Connection, asset: str, charge: str, struck: Collection[int]) -> list[Entry]:
    """Return the entries of one charge, oldest first. Of the many that count its steps, only the furthest is included.

    That is the one with the longest body, and among these the last in order. Palimpsest writes one number there and
    nothing else, so a longer body counts further or was not written by palimpsest; the reader tells.

    Raises:
        LedgerError: one of them was changed.
    """
    own = sa.select(entries).where(entries.c.asset == asset, entries.c.charge == charge)
    steps = own.where(entries.c.kind == "advance", entries.c.seq.not_in(struck))
    furthest = steps.order_by(sa.func.length(entries.c.body).desc(), entries.c.body.desc()).limit(1)
    rows = [*connection.execute(own.where(entries.c.kind != "advance")), *connection.execute(furthest)]
    return sorted(map(_verify_row, rows), key=lambda entry: entry.seq)


def read_newest(connection: Connection) -> Entry | None:
    """Return the newest entry, or None; LedgerError where it was changed."""
    row = connection.execute(sa.select(entries).order_by(entries.c.seq.desc()).limit(1)).first()
    return None if row is None else _verify_row(row)


def holds(connection: Connection, entry: Entry) -> bool:
    """Return whether exactly this entry is in the chain."""
    found = connection.scalar(sa.select(entries.c.hash).where(entries.c.seq == entry.seq))
    return bool(found == entry.hash)


@contextmanager
def report_malformed(what: str) -> Iterator[None]:
    """Raise an error of two parts for a body that has the right hash but is malformed."""
    try:
        yield
    except _MALFORMED as error:
        raise LedgerError(
            f"{what} of the ledger does not have its form ({type(error).__name__}): it was changed by hand.", _RESTORE
        ) from None


def append(connection: Connection, asset: str, kind: str, charge: str | None, body: Mapping[str, Any]) -> Entry:
    """Write one entry behind the newest; returns it."""
    entry = read_newest(connection)
    last = _EMPTY if entry is None else entry.head
    time, text = datetime.now(UTC).isoformat(timespec="seconds"), canonical_json(body)
    parts = last.seq + 1, asset, kind, charge, time, text
    entry = Entry(*parts, previous=last.hash, hash=_hash_entry(last.hash, *parts))
    connection.execute(entries.insert().values(**asdict(entry)))
    return entry


def _hash_entry(previous: str, *parts: object) -> str:
    """Return the hash of an entry's content and of the entry before it."""
    return digest_of(canonical_json({"previous": previous, "parts": [*parts]}))


def _verify_row(row: Sequence[Any]) -> Entry:
    """Return the entry of a row; LedgerError unless it has the hash of its own content."""
    *parts, previous, own = row
    try:
        whole = own == _hash_entry(previous, *parts)
    except TypeError:  # a database may hold bytes where there was text
        whole = False
    if not whole:
        raise _misfit(Entry(*row))
    return Entry(*row)


def _check_keys(chain: Chain) -> None:
    registered = {entry.asset for entry in chain.entries if entry.kind == "register"}
    if strange := registered ^ chain.keys.keys():
        raise LedgerError(
            f"The ledger's keys and its entries name other data sets: {next(iter(strange))!r} is in one of the two.",
            _RESTORE,
        )
    for name in registered:
        committed, key = chain.terms(name).get("key_hash"), chain.keys[name]
        if not (isinstance(key, str) and digest_of(key) == committed):
            raise LedgerError(f"The ledger's key of asset {name!r} is not the one of its registration.", _RESTORE)


def _misfit(entry: Entry) -> LedgerError:
    return LedgerError(
        f"Entry {entry.seq} of the ledger does not fit the one before it: the ledger was changed by hand.", _RESTORE
    )
