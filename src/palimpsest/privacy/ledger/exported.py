"""A whole ledger as a file of JSON lines: to keep, to move to another database, or to compare with another one.

The first line says what it is and which entry is the newest, then come the assets with their keys, the entries and the
stored answers, each as it lies in the database, and last the hash of all lines before. It is as private as the ledger.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.files import atomic_path, workspace_of
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.chain import Chain
from palimpsest.privacy.ledger.records import canonical

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
        return _parsed([json.loads(line) for line in lines])
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
    return canonical(body) + "\n"


def _parsed(lines: list[dict[str, Any]]) -> Exported:
    first, *rest = lines
    keys = {line["asset"]: line["key"] for line in rest if "asset" in line}
    read = chain.linked((line["entry"] for line in rest if "entry" in line), keys)
    if first != {"format": _FORMAT, "entries": len(read.entries), "head": read.head.hash}:
        raise ValueError
    return Exported(read, {line["answer"]: line["body"] for line in rest if "answer" in line})
