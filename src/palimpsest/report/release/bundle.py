"""Writes the folder of a release beside its place, signs it, and puts it there whole.

Guarantee: nothing gets in but what `Contents` names. Rows are written anew from their columns, so neither a further
column nor a file's metadata comes along. Of measurements only what may leave is copied: the fields named by a form that
is written here, and nothing else. `copy_fields` copies no field that its shape does not name. `copy_publishable` copies
nothing of a document that does not itself say that it may be published, nor of a part that says it may not. Fields
without a name here stay.
"""

import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from palimpsest.errors import DataError
from palimpsest.files import write_json
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.record import Record
from palimpsest.records.vouched import sha256
from palimpsest.records.write import write_synthetic
from palimpsest.report.release.card import Described, croissant, readme
from palimpsest.report.release.keys import Signed, SigningKey, public_pem, seal
from palimpsest.report.release.word import SENTENCE
from palimpsest.workspace import PUBLIC_ONLY, PUBLISHABLE, Zone

_AUDIT_VERSION = 1
ROWS = "data"
CARD, README, STATEMENT, AUDIT, LEDGER = "card.html", "README.md", "statement.json", "audit.json", "ledger.json"
TRADEOFF, CROISSANT, PROVENANCE = "tradeoff.json", "croissant.json", "prov.json"
KEY, ENVELOPE = "key.pub", "envelope.json"
DOCUMENTS = (CARD, README, STATEMENT, AUDIT, LEDGER, TRADEOFF, CROISSANT, PROVENANCE, KEY)  # signed, beside the rows
PREDICATE = ("asset", "status", "releases", "ledger_head", "palimpsest", "day", "word")  # all its fields

Documents = Mapping[str, Mapping[str, Any]]
_SHOWN = (PUBLISHABLE, Zone.DP, Zone.PUBLIC)
_LONGEST = 120  # characters of a word: names and short phrases, never a row


@dataclass(frozen=True)
class MeasuredDocuments:
    """Documents with parts that may leave; `copy_fields` and `copy_publishable` decide which."""

    receipts: Mapping[str, Receipt]  # variant -> its receipt
    # variant -> counts of drawn and removed rows; None where nothing was counted
    generation: Mapping[str, Mapping[str, Any] | None]
    scores: Mapping[str, Any] | None  # on the declared public test file; None where there is none
    twins: Documents  # method -> its end-to-end audit on invented canaries
    scanned: Mapping[str, int]  # scan -> how many rows were searched; it found none of them, or there were no release


@dataclass(frozen=True)
class Contents:
    """Everything that leaves."""

    described: Described  # the description of the release
    rows: Mapping[str, Sequence[Record]]  # variant -> its synthetic rows
    page: str  # the card as HTML
    audit: Mapping[str, Any]
    ledger: Mapping[str, Any]
    # makes the PROV document; takes name -> SHA-256 of the files with rows
    provenance: Callable[[Mapping[str, str]], Mapping[str, Any]]


def audit_document(measured: MeasuredDocuments, statement: Mapping[str, Any], books: LedgerSummary) -> dict[str, Any]:
    """Build audit.json from the fields of each document that may leave, without those of the private zone.

    Raises:
        DataError: a field has another form than it may have.
    """
    names = (*measured.receipts, PUBLIC_ONLY)
    scores = copy_publishable(measured.scores, SCORES_SHAPE, "public.json")
    audits = {name: copy_publishable(audit, TWINS_SHAPE, name) for name, audit in measured.twins.items()}
    return {
        "audit_version": _AUDIT_VERSION,
        "zone": PUBLISHABLE,
        "status": statement["status"],
        "ledger": copy_fields(books.to_json(), BOOKS_SHAPE, "ledger"),
        "variants": {name: _variant(name, measured) for name in measured.receipts},
        "utility": scores
        and {part: {name: own[name] for name in names if name in own} for part, own in scores.items()},
        "end_to_end": {name: audit for name, audit in audits.items() if audit is not None},
        "scans": {name: {"rows": rows, "found": 0} for name, rows in measured.scanned.items()},
    }


def _variant(name: str, measured: MeasuredDocuments) -> dict[str, Any]:
    drawn, receipt = measured.generation.get(name), measured.receipts[name].to_json(published=True)
    return {
        "receipt": copy_fields(receipt, RECEIPT_SHAPE, f"receipt of {name}"),
        "generation": copy_publishable(drawn, GENERATION_SHAPE, f"generation.json of {name}"),
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


class _Leaf:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def allows(self, value: Any) -> bool:
        """Tell whether the value has the form: a number or a truth value, or one short line; None is either."""
        if value is None:
            return True
        if self.kind == "number":
            return isinstance(value, (bool, int)) or (isinstance(value, float) and not math.isnan(value))
        return _is_word(value)


_NUMBER, _WORD = _Leaf("number"), _Leaf("word")
Shape: TypeAlias = "_Leaf | dict[str, Shape] | list[Shape] | tuple[Shape, ...]"
"""A leaf; a mapping by name, whose name `*` stands for all others; a list of one shape; any one of several shapes."""

_EVENT: dict[str, Any] = {}
_EVENT |= {"*": (_NUMBER, _WORD, _EVENT, [_EVENT])}
_QUERY: Shape = {
    "name": _WORD, "model": _WORD, "purpose": _WORD, "charge": _WORD, "state": _WORD, "own_delta": _NUMBER,
    "event": _EVENT, "partition": [_WORD], "versions": {"*": _NUMBER},
}  # fmt: skip
RECEIPT_SHAPE: Shape = {
    "variant": _WORD, "model": _WORD, "stage": _WORD, "method": _WORD, "purpose": _WORD, "asset": _WORD, "unit": _WORD,
    "adjacency": _WORD, "accountant": _WORD, "epsilon_target": _NUMBER, "delta": _NUMBER, "epsilon": _NUMBER,
    "epsilon_rdp": _NUMBER, "noise_fixed": _NUMBER, "run": _NUMBER, "queries": [_QUERY],
    "group": [{"k": _NUMBER, "epsilon": _NUMBER}], "curve": {"alpha": [_NUMBER], "beta": [_NUMBER]},
    "plan": {"*": (_NUMBER, _WORD)}, "assumptions": [_WORD],
}  # fmt: skip
GENERATION_SHAPE: Shape = {"drawn": _NUMBER, "rows": _NUMBER, "removed": {"*": _NUMBER}}
SCORES_SHAPE: Shape = {
    "rows": {"*": _NUMBER}, "test_rows": {"*": _NUMBER},
    "variants": {"*": {"*": {"accuracy": _NUMBER, "low": _NUMBER, "high": _NUMBER}}},
}  # fmt: skip
_TRIAL: dict[str, Shape] = {
    "claim": _NUMBER, "delta": _NUMBER, "canaries": _NUMBER, "guesses": _NUMBER, "correct": _NUMBER,
    "epsilon_lower": _NUMBER, "lower": _NUMBER, "eps_max": _NUMBER,
}  # fmt: skip
TWINS_SHAPE: Shape = {
    "method": _WORD, "palimpsest": _WORD, "versions": {"*": _NUMBER}, "test": _WORD, "alpha": _NUMBER, "verdict": _WORD,
    **_TRIAL,
    "twins": [{"fault": _WORD, "caught": _NUMBER, **_TRIAL}],
}  # fmt: skip
BOOKS_SHAPE: Shape = {
    "asset": _WORD, "unit": _WORD, "delta": _NUMBER, "cap_epsilon": _NUMBER, "spent_epsilon": _NUMBER,
    "left_epsilon": _NUMBER, "shown_head": _WORD, "verified": _NUMBER,
}  # fmt: skip


def copy_publishable(document: Mapping[str, Any] | None, shape: Shape, name: str) -> Any:
    """Copy the named fields of a measurement that says that it may be published; None for any other.

    Raises:
        DataError: a field that may leave has another form than its shape.
    """
    if document is None or document.get("zone") not in _SHOWN:
        return None
    return copy_fields(document, shape, name)


def copy_fields(value: Any, shape: Shape, name: str) -> Any:
    """Copy only the fields of `shape`, leaving out the missing ones.

    Raises:
        DataError: a field has another form; the message names it and not what it holds.
    """
    if isinstance(shape, tuple):
        fitting = [one for one in shape if _fits(value, one)]
        return copy_fields(value, fitting[0] if fitting else shape[0], name)
    if not _fits(value, shape):
        raise DataError(f"{name} has not the form that may be published.", "Run the stage that writes it again.")
    if value is None or isinstance(shape, _Leaf):
        return value
    if isinstance(shape, list):
        return [copy_fields(item, shape[0], name) for item in value]
    fields = {key: shape.get(key, shape.get("*")) for key in value}
    return {
        key: copy_fields(value[key], field, f"{name}.{key}")
        for key, field in fields.items()
        if field and not _is_kept(value[key])
    }


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, _Leaf):
        return shape.allows(value)
    if value is None or isinstance(shape, tuple):
        return True
    if isinstance(shape, list):
        return isinstance(value, (list, tuple))
    return isinstance(value, Mapping) and all(map(_is_word, value))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _is_kept(value: Any) -> bool:
    """Tell whether a part of a document says of itself that it stays."""
    return isinstance(value, Mapping) and "zone" in value and value["zone"] not in _SHOWN
