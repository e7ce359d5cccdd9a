"""A whole ledger as a file of JSON lines, and a comparison of two ledgers."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.files import atomic_path, workspace_of
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.chain import Chain
from palimpsest.privacy.ledger.records import STATES, Asset, Charge, canonical_json
from palimpsest.privacy.ledger.rules import balance

_FORMAT = "palimpsest-ledger-1"


@dataclass(frozen=True)
class Exported:
    """A whole ledger at one moment.

    Attributes:
        answers: charge id -> the stored answer of a query that was paid for.
    """

    chain: Chain
    answers: Mapping[str, str]


def write(ledger: Exported, path: Path) -> None:
    """Write a ledger to a new file that only the owner may read.

    Raises:
        LedgerError: the file is there already, would lie in a workspace, or cannot be written.
    """
    if path.exists() or workspace_of(path) is not None:
        raise LedgerError(
            f"{str(path)!r} is there already, or lies in a workspace.",
            "Name another file, outside every workspace: it holds the keys of the data sets.",
        )
    try:
        with atomic_path(path) as draft, draft.open("w", encoding="utf-8") as file:
            hashed = hashlib.sha256()
            for line in _lines(ledger):
                file.write(line)
                hashed.update(line.encode())
            file.write(_line({"sha256": hashed.hexdigest()}))
    except OSError as error:
        raise LedgerError(f"{str(path)!r} cannot be written ({type(error).__name__}).", "Name another place.") from None


def read(path: Path) -> Exported:
    """Read a ledger from a file and recompute its hash and its chain.

    Raises:
        LedgerError: there is no file, it was changed or cut short, or its chain does not hold.
    """
    try:
        *lines, last = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if json.loads(last) != {"sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}:
            raise ValueError
        return _parse_lines([json.loads(line) for line in lines])
    except OSError as error:
        raise LedgerError(f"{str(path)!r} cannot be read ({type(error).__name__}).", "Correct the path.") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LedgerError(
            f"{str(path)!r} is not a whole export of a ledger: its lines do not have the hash that it ends with.",
            "Copy it again, or make it anew with `palimpsest ledger export`.",
        ) from None


def _lines(ledger: Exported) -> Iterator[str]:
    yield _line({"format": _FORMAT, "entries": len(ledger.chain.entries), "head": ledger.chain.head.hash})
    for name, key in ledger.chain.keys.items():
        yield _line({"asset": name, "key": key})
    for entry in ledger.chain.entries:
        yield _line({"entry": astuple(entry)})
    for charge, body in ledger.answers.items():
        yield _line({"answer": charge, "body": body})


def _line(body: Mapping[str, Any]) -> str:
    return canonical_json(body) + "\n"


def _parse_lines(lines: list[dict[str, Any]]) -> Exported:
    first, *rest = lines
    keys = {line["asset"]: line["key"] for line in rest if "asset" in line}
    read = chain.rebuild_chain((line["entry"] for line in rest if "entry" in line), keys)
    if first != {"format": _FORMAT, "entries": len(read.entries), "head": read.head.hash}:
        raise ValueError
    return Exported(read, {line["answer"]: line["body"] for line in rest if "answer" in line})


_ORDER = ("refunded", *(state for state in STATES if state != "refunded"))  # from what costs nothing to what is done


@dataclass(frozen=True)
class Sum:
    """One data set in two ledgers.

    Attributes:
        spent: the epsilon of each ledger by itself; 0 where it does not know the data set.
        both: the epsilon of all charges of the two, with shared charges counted once.
        cap: the lower of their caps.
        fits: whether the sum is within that cap, and its deltas within theirs.
    """

    asset: str
    spent: tuple[float, float]
    both: float
    cap: float
    fits: bool


@dataclass(frozen=True)
class Comparison:
    """Two ledgers.

    Attributes:
        shared: how many entries they have in common from the start.
        own: how many further ones each has.
        sums: one for each data set in either ledger.
    """

    shared: int
    own: tuple[int, int]
    sums: tuple[Sum, ...]

    @property
    def diverged(self) -> bool:
        """Whether each has entries that the other lacks: then neither of them says what was spent."""
        return min(self.own) > 0


def compare_ledgers(one: Books, other: Books) -> Comparison:
    """Compare two ledgers.

    Guarantee: a charge that counts in either counts in the sum, once, so that the sum says what was spent on the data
    set if both ledgers were used, by the filter that each was held to.

    Raises:
        LedgerError: they have a data set on terms under which epsilons do not add.
    """
    pairs = zip(one.chain.entries, other.chain.entries, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].hash == pair[1].hash, pairs))
    names = {name: None for books in (one, other) for name in books.chain.keys}
    sums = tuple(_sum(name, one, other) for name in names)
    return Comparison(shared, (one.entries - shared, other.entries - shared), sums)


def _sum(name: str, one: Books, other: Books) -> Sum:
    knowing = [books for books in (one, other) if name in books.chain.keys]
    asset = _terms([books.asset(name) for books in knowing])
    charges = [books.charges(name) if books in knowing else [] for books in (one, other)]
    both = balance(asset, merge_charges(*charges))
    first, second = (balance(asset, own).spent for own in charges)
    return Sum(name, (first, second), both.spent, asset.epsilon, both.fits)


def _terms(assets: list[Asset]) -> Asset:
    """Return the terms that count: the lower cap, where all else is equal."""
    first, *others = assets
    for other in others:
        if (
            replace(first, epsilon=other.epsilon, teams=other.teams, key=other.key, after_loss=other.after_loss)
            != other
        ):
            raise LedgerError(
                f"Asset {first.name!r} is registered in the two ledgers on other terms, under which epsilons do not "
                "add.",
                "Look at both with `palimpsest ledger`: they are of other data, or one of them was registered wrongly.",
            )
    return replace(first, epsilon=min(each.epsilon for each in assets))


def merge_charges(one: Iterable[Charge], other: Iterable[Charge]) -> list[Charge]:
    """Return all charges of two ledgers, each in the furthest state that it reached in either of them.

    Guarantee: what only the other has is of a scheme of its own: the two may have put a unit into different parts of
    the data set, though their runs have one key and one number.
    """
    first, second = ({charge.id: charge for charge in charges} for charges in (one, other))
    apart = [replace(charge, run=-charge.run) for key, charge in second.items() if key not in first]
    return [_pick_later(charge, second.get(key, charge)) for key, charge in first.items()] + apart


def _pick_later(one: Charge, other: Charge) -> Charge:
    return max(one, other, key=lambda charge: _ORDER.index(charge.state))
