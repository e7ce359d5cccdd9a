"""Writes the folder of a release beside its place, signs it, and puts it there whole.

Guarantee: nothing gets in but what `Contents` names. Rows are written anew from their columns, so neither a further
column nor a file's metadata comes along, and measurements pass `allowed`.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.files import write_json
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.record import Record
from palimpsest.records.vouched import sha256
from palimpsest.records.write import write_synthetic
from palimpsest.report.release import allowed
from palimpsest.report.release.card import Described, readme
from palimpsest.report.release.croissant import croissant
from palimpsest.report.release.envelope import Signed, seal
from palimpsest.report.release.keys import SigningKey, public_pem
from palimpsest.report.release.word import SENTENCE
from palimpsest.workspace import PUBLIC_ONLY, PUBLISHABLE

_AUDIT_VERSION = 1
ROWS = "data"
CARD, README, STATEMENT, AUDIT, LEDGER = "card.html", "README.md", "statement.json", "audit.json", "ledger.json"
TRADEOFF, CROISSANT, PROVENANCE = "tradeoff.json", "croissant.json", "prov.json"
KEY, ENVELOPE = "key.pub", "envelope.json"
DOCUMENTS = (CARD, README, STATEMENT, AUDIT, LEDGER, TRADEOFF, CROISSANT, PROVENANCE, KEY)  # signed, beside the rows
PREDICATE = ("asset", "status", "releases", "ledger_head", "palimpsest", "day", "word")  # all its fields

Documents = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class MeasuredDocuments:
    """Documents with parts that may leave; `allowed` decides which.

    Attributes:
        receipts: variant -> its receipt.
        generation: variant -> counts of drawn and removed rows; None where nothing was counted.
        scores: on the declared public test file; None where there is none.
        twins: method -> its end-to-end audit on invented canaries.
        scanned: scan -> how many rows were searched; it found none of them, or there were no release.
    """

    receipts: Mapping[str, Receipt]
    generation: Mapping[str, Mapping[str, Any] | None]
    scores: Mapping[str, Any] | None
    twins: Documents
    scanned: Mapping[str, int]


@dataclass(frozen=True)
class Contents:
    """Everything that leaves.

    Attributes:
        described: the description of the release.
        rows: variant -> its synthetic rows.
        page: the card as HTML.
        provenance: makes the PROV document; takes name -> SHA-256 of the files with rows.
    """

    described: Described
    rows: Mapping[str, Sequence[Record]]
    page: str
    audit: Mapping[str, Any]
    ledger: Mapping[str, Any]
    provenance: Callable[[Mapping[str, str]], Mapping[str, Any]]


def audit_document(measured: MeasuredDocuments, statement: Mapping[str, Any], books: LedgerSummary) -> dict[str, Any]:
    """Build audit.json from the fields of each document that may leave, without those of the private zone.

    Raises:
        DataError: a field has another form than it may have.
    """
    names = (*measured.receipts, PUBLIC_ONLY)
    scores = allowed.copy_publishable(measured.scores, allowed.SCORES, "public.json")
    audits = {name: allowed.copy_publishable(audit, allowed.TWINS, name) for name, audit in measured.twins.items()}
    return {
        "audit_version": _AUDIT_VERSION,
        "zone": PUBLISHABLE,
        "status": statement["status"],
        "ledger": allowed.copy_fields(books.to_json(), allowed.BOOKS, "ledger"),
        "variants": {name: _variant(name, measured) for name in measured.receipts},
        "utility": scores
        and {part: {name: own[name] for name in names if name in own} for part, own in scores.items()},
        "end_to_end": {name: audit for name, audit in audits.items() if audit is not None},
        "scans": {name: {"rows": rows, "found": 0} for name, rows in measured.scanned.items()},
    }


def _variant(name: str, measured: MeasuredDocuments) -> dict[str, Any]:
    drawn, receipt = measured.generation.get(name), measured.receipts[name].to_json(published=True)
    return {
        "receipt": allowed.copy_fields(receipt, allowed.RECEIPT, f"receipt of {name}"),
        "generation": allowed.copy_publishable(drawn, allowed.GENERATION, f"generation.json of {name}"),
    }


def assemble(
    target: Path, contents: Contents, key: SigningKey, inspect: Callable[[Path], None] | None = None
) -> dict[str, str]:
    """Write and sign the folder and put it in its place; return name -> SHA-256 of its files.

    Guarantee: a reader finds the old folder, none, or the whole new one, whenever the process ends.

    A folder that exists is replaced. `inspect` looks at the new one before it is signed, and raises if it contains
    anything that may not leave.
    """
    data = contents.described.data
    with replace_folder(target) as draft:
        (draft / ROWS).mkdir()
        for name, records in contents.rows.items():
            write_synthetic(records, draft / ROWS / name, data.text, data.label)
        _write_documents(draft, contents)
        (draft / KEY).write_bytes(public_pem(key.public_key()))
        files = digests(draft)
        if inspect is not None:
            inspect(draft)
        (draft / ENVELOPE).write_bytes(seal(Signed(files, _predicate(contents.described)), key))
    return files


def _write_documents(draft: Path, contents: Contents) -> None:
    """Write the documents that describe the rows, which are there already."""
    described, rows = contents.described, digests(draft)
    for name, text in {CARD: contents.page, README: readme(described)}.items():
        (draft / name).write_text(text, encoding="utf-8", newline="\n")
    documents = {
        STATEMENT: described.statement,
        AUDIT: contents.audit,
        LEDGER: contents.ledger,
        TRADEOFF: {release["variant"]: release["curve"] for release in described.statement["releases"]},
        CROISSANT: croissant(described, rows, {name: (draft / name).stat().st_size for name in rows}),
        PROVENANCE: contents.provenance(rows),
    }
    for name, document in documents.items():
        write_json(draft / name, document)


def _predicate(described: Described) -> dict[str, Any]:
    statement = described.statement
    return {
        "asset": described.data.asset,
        "status": statement["status"],
        "releases": [{name: one[name] for name in ("variant", "epsilon", "delta")} for one in statement["releases"]],
        "ledger_head": statement["ledger"]["head"],
        "palimpsest": described.version,
        "day": described.day,
        "word": SENTENCE,
    }


def digests(folder: Path) -> dict[str, str]:
    """Return name -> SHA-256 of every file below a folder, sorted."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `target` when the block ends without an error.

    The old folder is moved aside whole before it is deleted: a killed process leaves no half of it under its name.
    """
    target = target.absolute()
    draft, old = (target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.{end}") for end in ("part", "old"))
    draft.mkdir(parents=True)
    try:
        yield draft
        _swap(draft, target, old)
    finally:
        for path in (draft, old):
            shutil.rmtree(path, ignore_errors=True)


def _swap(draft: Path, target: Path, old: Path) -> None:
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(draft, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
