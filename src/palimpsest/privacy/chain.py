"""The ledger's entries as a chain of hashes: each carries the hash of the one before.

Nothing is read out of a ledger before its chain was recomputed and held against what was noted elsewhere.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from palimpsest.errors import LedgerError
from palimpsest.privacy.database import assets, entries
from palimpsest.privacy.witness import Head

EMPTY = Head(0, "")
_RESTORE = "Restore the ledger from a backup; nothing may be charged or released on this one."
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)  # what reading a body can raise that has not its form


@dataclass(frozen=True)
class Chain:
    """A whole ledger at one moment, recomputed.

    Attributes:
        entries: its rows, oldest first.
        keys: asset -> its key, in hexadecimal digits.
    """

    entries: Sequence[Any]
    keys: Mapping[str, str]

    @property
    def hashes(self) -> dict[str, int]:
        """The hash of each entry -> its number."""
        return {row.hash: row.seq for row in self.entries}

    def of(self, asset: str, *kinds: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """An asset's entries of these kinds with their bodies, oldest first."""
        return ((row, body_of(row)) for row in self.entries if row.asset == asset and row.kind in kinds)

    def terms(self, asset: str) -> dict[str, Any] | None:
        """What was registered of an asset, as amended; None where it was not."""
        found: dict[str, Any] = {}
        for _, body in self.of(asset, "register", "amend"):
            found |= body
        return found or None


def read(connection: Connection) -> Chain:
    """All entries and keys, recomputed.

    Raises:
        LedgerError: naming the first entry that does not fit, or an asset whose key is not the one it began with.
    """
    rows = connection.execute(sa.select(entries).order_by(entries.c.seq)).all()
    previous = EMPTY.hash
    for expected, row in enumerate(rows, start=1):
        if row.seq != expected or row.previous != previous:
            raise _misfit(row)
        check(row)
        previous = row.hash
    keys = {row.name: row.key for row in connection.execute(sa.select(assets))}
    found = Chain(rows, keys)
    _check_keys(found)
    return found


def check(row: Any) -> None:
    """One entry has the hash of its own content.

    Raises:
        LedgerError: it was changed.
    """
    try:
        whole = row.hash == _hash(row.previous, row.seq, row.asset, row.kind, row.charge, row.time, row.body)
    except TypeError:  # a database may hold bytes where there was text
        whole = False
    if not whole:
        raise _misfit(row)


def body_of(row: Any) -> dict[str, Any]:
    """What an entry says."""
    with interpreted(f"Entry {row.seq}"):
        return dict(json.loads(row.body))


@contextmanager
def interpreted(what: str) -> Iterator[None]:
    """What has its hash and not its form becomes an error of two parts."""
    try:
        yield
    except _MALFORMED as error:
        raise LedgerError(
            f"{what} of the ledger does not have its form ({type(error).__name__}): it was changed by hand.",
            _RESTORE,
        ) from None


def newest(connection: Connection) -> Head:
    """The newest entry.

    Raises:
        LedgerError: it was changed.
    """
    row = connection.execute(sa.select(entries).order_by(entries.c.seq.desc()).limit(1)).first()
    if row is None:
        return EMPTY
    check(row)
    return Head(row.seq, row.hash)


def append(connection: Connection, asset: str, kind: str, charge: str | None, body: Mapping[str, Any]) -> Any:
    """Write one entry behind the newest; returns it."""
    head, time, text = newest(connection), datetime.now(UTC).isoformat(timespec="seconds"), canonical(body)
    values = {"seq": head.seq + 1, "asset": asset, "kind": kind, "charge": charge, "time": time, "body": text}
    digest = _hash(head.hash, head.seq + 1, asset, kind, charge, time, text)
    connection.execute(entries.insert().values(**values, previous=head.hash, hash=digest))
    return connection.execute(sa.select(entries).where(entries.c.seq == head.seq + 1)).one()


def lacking(chain: Chain, hashes: Collection[str], heads: Collection[Head]) -> int:
    """How many of the entries that were noted elsewhere are not in the chain, those with a number at their number."""
    known = chain.hashes
    return len({each for each in hashes if each not in known} | {h.hash for h in heads if known.get(h.hash) != h.seq})


def canonical(body: Mapping[str, Any]) -> str:
    """One text for one content."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(text: str) -> str:
    """What the chain holds of a text that lies beside it: an asset's key, a stored answer."""
    return hashlib.sha256(text.encode()).hexdigest()


def _check_keys(chain: Chain) -> None:
    registered = {row.asset for row in chain.entries if row.kind == "register"}
    if strange := registered ^ chain.keys.keys():
        raise LedgerError(
            f"The ledger's keys and its entries name other data sets: {next(iter(strange))!r} is in one of the two.",
            _RESTORE,
        )
    for name in registered:
        committed, key = (chain.terms(name) or {}).get("key_hash"), chain.keys[name]
        if committed is not None and not (isinstance(key, str) and digest_of(key) == committed):
            raise LedgerError(f"The ledger's key of asset {name!r} is not the one of its registration.", _RESTORE)


def _misfit(row: Any) -> LedgerError:
    return LedgerError(
        f"Entry {row.seq} of the ledger does not fit the one before it: the ledger was changed by hand.", _RESTORE
    )


def _hash(previous: str, *parts: object) -> str:
    return hashlib.sha256(canonical({"previous": previous, "parts": [*parts]}).encode()).hexdigest()
