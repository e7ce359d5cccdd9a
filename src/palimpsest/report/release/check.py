"""Checks a release on any machine, without its workspace, its ledger or a network."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jsonschema import Draft202012Validator

from palimpsest.errors import DataError, PalimpsestError
from palimpsest.files import read_json
from palimpsest.privacy.ledger.reader import judge_charge
from palimpsest.privacy.ledger.records import Asset, Cap, Charge, milestone_problem
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.ledger.total import total_of
from palimpsest.privacy.receipt import Receipt, are_close, is_close
from palimpsest.privacy.shown import delta_up, up
from palimpsest.records.fields import describe_field, parse_domain
from palimpsest.records.vouched import sha256
from palimpsest.records.write import Counts, differences, read_values
from palimpsest.report.formats import JSON_ROW, Unit, at_most
from palimpsest.report.release import bundle
from palimpsest.report.release.card import (
    PROMISE,
    WHOLE,
    count_of,
    field_lines,
    privacy,
    read_counts,
    read_epsilons,
    records_of,
    state_promise,
)
from palimpsest.report.release.extract import asset_of, caps_of, charges_of
from palimpsest.report.release.keys import Signed, fingerprint, load_public, unseal
from palimpsest.report.release.word import SENTENCE
from palimpsest.report.statement import (
    OUTPUT,
    PRIVATE,
    SETTING,
    STATEMENT_VERSION,
    assumptions,
    end_to_end_verdicts,
    layers,
    list_uncovered,
    read_total,
    release_of,
    schema,
)

_MOST_KEY = 10_000  # bytes of a public key's file; a key has about 113
_MOST_ENVELOPE = 10_000_000
_STOOD_FOR_PROVED = range(8)  # versions whose statements took where a filter stands for its bound, whatever the filter


@dataclass(frozen=True)
class Check:
    """One check; it holds if there is no problem."""

    name: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """The outcome of checking a release."""

    fingerprint: str | None  # of the key that the envelope was checked against; None where there was no key to read
    pinned: bool  # whether the checking person gave that key, and it was not found in the folder itself
    # in their order; later ones are left out where earlier ones show that the files are not the signed ones
    checks: tuple[Check, ...]
    caps: tuple[Cap, ...] = ()  # every cap that the data set has had, for a reader to see
    charges: tuple[Charge, ...] = ()  # every charge to the data set, including those that do not count

    @property
    def holds(self) -> bool:
        """True if everything holds."""
        return not any(check.problems for check in self.checks)

    @property
    def problems(self) -> list[str]:
        """The problems found."""
        return [problem for check in self.checks for problem in check.problems]


def verify_release(path: Path, key: str | None = None) -> Checked:
    """Check the signature, every file, the statement and every epsilon of a release.

    Guarantee: where all holds and the key is pinned, the folder has exactly the files that the key's holder signed,
    byte for byte; its statement has the published form; its epsilons follow from the events in it; and its rows are as
    many as it says, the same in both forms, with every value of a field in the public cells that it declares. Where a
    line is a record itself, a row that is no JSON object has none. It rests on the signer that these events are the
    ones that happened.

    Args:
        path: the folder of the release.
        key: the releaser's public key as a PEM file, or its fingerprint; None takes the key in the folder, which shows
            that the folder is whole but not whose it is.

    Raises:
        DataError: there is no such folder, or the given key cannot be used.
    """
    if not path.is_dir():
        raise DataError(f"There is no folder {str(path)!r}.", "Name the folder of a release.")
    pin = None if key is None else _read_pin(key)
    try:
        public = _read_public_key(path, pin)
        signed = unseal(_read(path / bundle.ENVELOPE, _MOST_ENVELOPE), public)
    except DataError as error:
        return Checked(None, pin is not None, (Check("the signature", (error.problem,)),))
    whole = Check("every file is the signed one", tuple(_check_files(path, signed)))
    checks = (Check("the signature", ()), whole, *(() if whole.problems else _contents(path, signed)))
    checked = Checked(fingerprint(public), pin is not None, checks)
    if not checked.holds:
        return checked
    books = read_json(path / bundle.LEDGER)
    return replace(checked, caps=tuple(caps_of(books)), charges=tuple(charges_of(books)))


def _read_pin(key: str) -> Ed25519PublicKey | str:
    if not Path(key).is_file():
        if not re.fullmatch(r"(SHA256:)?[0-9a-f]{64}", key, re.IGNORECASE):
            raise DataError(f"--key is {key!r}, which is no file and no fingerprint.", "Give one of them.")
        return key if key.upper().startswith("SHA256:") else f"SHA256:{key}"
    return load_public(_read(Path(key), _MOST_KEY))


def _read_public_key(path: Path, pin: Ed25519PublicKey | str | None) -> Ed25519PublicKey:
    if isinstance(pin, Ed25519PublicKey):
        return pin
    own = load_public(_read(path / bundle.KEY, _MOST_KEY))
    if pin is not None and pin.lower() != fingerprint(own).lower():
        raise DataError("Another key than the given one signed this folder.", "Ask the releaser which key is theirs.")
    return own


def _read(path: Path, most: int) -> bytes:
    """Read a file of at most so many bytes; never behind a link, and no device."""
    try:
        seen = path.lstat()
        special = not stat.S_ISREG(seen.st_mode) and path.name in (bundle.KEY, bundle.ENVELOPE)
        if special or seen.st_size > most:
            raise OSError
        return path.read_bytes()
    except OSError:
        raise DataError(
            f"{path.name!r} is missing or cannot be read.", "Ask the releaser for the release again."
        ) from None


def _check_files(path: Path, signed: Signed) -> Iterator[str]:
    """List the differences between folder and list; links and other special files are never followed or opened."""
    listed, found = {*signed.files, bundle.ENVELOPE}, dict(_walk(path, ""))
    folders = {"/".join(parts[:end]) for parts in (name.split("/") for name in listed) for end in range(1, len(parts))}
    for name, kind in sorted(found.items()):
        if kind == "folder" and name not in folders:
            yield f"there is a further folder {name!r}"
        elif kind == "other":
            yield f"{name!r} is no plain file"
        elif kind == "file" and name not in listed:
            yield f"there is a further file {name!r}"
        elif kind == "file" and name != bundle.ENVELOPE and sha256(path / name) != signed.files[name]:
            yield f"{name!r} was changed"
    yield from (f"{name!r} is missing" for name in sorted(listed) if found.get(name) is None)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield name, "folder"
                yield from _walk(Path(entry.path), f"{name}/")
            else:
                yield name, "file" if entry.is_file(follow_symlinks=False) else "other"


def _contents(path: Path, signed: Signed) -> Iterator[Check]:
    form = "the statement has its form"
    version = _check(form, lambda: _version(path))
    if version.problems:
        yield version
        return
    yield _check(form, lambda: _check_form(path))
    yield _check("every epsilon follows from the ledger's extract", lambda: _check_epsilons(path))
    yield _check("statement, cards and envelope say the same", lambda: _check_summaries(path, signed))
    yield _check("the rows are those that are described", lambda: _check_rows(path, signed))


def _check(name: str, problems: Callable[[], Iterable[str]]) -> Check:
    """Run one check. A signer can sign nonsense: a document that cannot be read is a problem, not a crash."""
    try:
        return Check(name, tuple(problems()))
    except PalimpsestError as error:
        return Check(name, (error.problem,))
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        return Check(name, (f"a document cannot be read ({type(error).__name__})",))


def _version(path: Path) -> Iterator[str]:
    """Name the version of a statement that another palimpsest wrote.

    Its words mean other things, so nothing else of it is judged.
    """
    found = read_json(path / bundle.STATEMENT)["statement_version"]
    yield from _unproved_total(path)
    if found != STATEMENT_VERSION:
        yield (
            f"{bundle.STATEMENT} is of version {found!r}, and this palimpsest checks version {STATEMENT_VERSION}: use "
            "the palimpsest that made the release, which the envelope names, or ask the releaser to release again"
        )


def total_check(path: Path) -> Check:
    """Whether a release proved what it called its total; a document that cannot be read is a problem."""
    return _check("its total is proved", lambda: _unproved_total(path))


def _unproved_total(path: Path) -> Iterator[str]:
    """Yield a problem where a release from before milestones calls its total proved, which it was not."""
    statement, books = read_json(path / bundle.STATEMENT), read_json(path / bundle.LEDGER)
    if statement["statement_version"] in _STOOD_FOR_PROVED and books["asset"].get("filter") == "gdp":
        highest = max(cap.epsilon for cap in caps_of(books))
        yield (
            f"{bundle.STATEMENT} says that all releases together are proved to cost epsilon "
            f"{up(statement['ledger']['spent_epsilon'])}: that is where the filter stood, which is no bound. It "
            f"kept to its highest cap, epsilon {up(highest)} at delta {delta_up(statement['delta'])}"
        )


def _check_form(path: Path) -> Iterator[str]:
    document = read_json(path / bundle.STATEMENT)
    for error in Draft202012Validator(schema()).iter_errors(document):
        yield f"{bundle.STATEMENT}: {'.'.join(map(str, error.absolute_path)) or 'the document'} breaks the schema"
    if document["status"] != PRIVATE:
        yield f"the statement's status is {document['status']!r}"


def _check_epsilons(path: Path) -> Iterator[str]:
    """Compute each release's epsilons and curve, and the total, from the events of the extract, and compare."""
    statement, books, audit = (read_json(path / name) for name in (bundle.STATEMENT, bundle.LEDGER, bundle.AUDIT))
    asset, charges, curves = asset_of(books), charges_of(books), read_json(path / bundle.TRADEOFF)
    names = [release["variant"] for release in statement["releases"]]
    if not names or not (sorted(names) == sorted(audit["variants"]) == sorted(curves)):
        yield "statement, audit and curves are of different variants"
        return
    receipts: list[Receipt] = []
    for release in statement["releases"]:
        receipt = Receipt.from_json(audit["variants"][release["variant"]]["receipt"], published=True)
        problems = receipt.problems(asset, charges)
        problems += [] if receipt.private else ["its noise was fixed by a seed, or it is or builds on a reference run"]
        yield from (f"{release['variant']}: {problem}" for problem in problems)
        yield from _check_release(release, receipt, curves[release["variant"]])
        receipts.append(receipt)
    read = [judge_charge(asset, charge) for charge in charges]
    balance, terms = preview(asset, [charge for charge, _ in read], {}), statement["ledger"]
    total = balance.spent
    if problem := milestone_problem(asset.milestones, asset.filter):
        yield f"the extract has {problem}"
    yield from (f"charge {charge.id} {what}" for charge, what in read if what is not None)
    left = max(0.0, asset.epsilon - total)
    said = [told[name] for told in (books, terms) for name in ("spent_epsilon", "left_epsilon")]
    if not are_close((total, left, total, left, asset.epsilon), (*said, terms["cap_epsilon"])):
        yield f"the total is {total:.6f} by the extract's events, not what is stated"
    if (terms["head"], terms["asset"], terms["delta"]) != (books["head"], asset.name, asset.delta):
        yield "the statement is of another ledger, asset or delta"
    yield from _check_unit(statement, asset, receipts)
    if statement["end_to_end"] != end_to_end_verdicts(receipts, audit["end_to_end"]):
        yield "the statement tells other things of the end-to-end audits than the audits and receipts"
    caps = caps_of(books)
    if not _are_alike(terms["total"], total_of(asset, balance, caps)._asdict()):
        yield "what is said of all releases together does not follow from the extract"
    if not caps or caps[-1].epsilon != asset.epsilon or [*caps] != sorted(caps, key=lambda cap: cap.time):
        yield "the extract's caps do not lead to the stated one"
    standing = [charge for charge in charges if charge.purpose == "release"]
    refunded = sum(charge.state == "refunded" for charge in standing)
    if (terms["charges"], terms["refunded"]) != (len(standing) - refunded, refunded):
        yield "the statement counts other charges than the extract has"


def _check_unit(statement: Mapping[str, Any], asset: Asset, receipts: Sequence[Receipt]) -> Iterator[str]:
    """Check that the statement uses the ledger's unit of privacy, in the words that follow from it and the receipts."""
    unit = Unit.from_statement(statement)
    declared = asset.n_public if unit.persons else None
    terms = unit.name, unit.column, unit.n_persons, statement["adjacency"]
    if terms != (asset.unit, asset.unit_column, declared, [asset.adjacency]):
        yield "the statement is about another unit than the ledger's"
        return
    if statement["unit"] != unit.to_json():
        yield "the statement describes another unit than it names"
    if (statement["setting"], statement["final_output"]) != (SETTING, OUTPUT):
        yield "the statement tells of another setting than the one that its guarantee is proved in"
    for release, receipt in zip(statement["releases"], receipts, strict=True):
        said = release_of(receipt, unit, asset.n_public, None)
        other = [part for part in said if part != "accounting" and not _are_alike(release[part], said[part])]
        yield from (f"{receipt.variant}: {part} is not what follows from its receipt" for part in other)
    if statement["layers"] != layers(receipts, read_total(statement), unit):
        yield "the statement's layers are not those of its receipts and its unit"
    swept = statement.get("swept", [])
    if not {*swept} <= {receipt.variant for receipt in receipts}:
        yield "the statement names a sweep of what is not released"
    if statement["not_covered"] != list_uncovered(unit, swept):
        yield "the statement leaves out, or adds, what is not covered"
    *assumed, vouched = statement["assumptions"]
    if assumed != assumptions(receipts, unit, asset.n_public, verified=True) or vouched["id"] != "public-sources":
        yield "the statement's assumptions are not those of its receipts and its unit"


def _are_alike(stated: Any, said: Any) -> bool:
    """Tell whether both are equal up to the rounding of numbers on another machine."""
    if isinstance(said, float):
        return isinstance(stated, (int, float)) and is_close(said, stated)
    if isinstance(said, Mapping):
        return stated.keys() == said.keys() and all(_are_alike(stated[key], said[key]) for key in said)
    if isinstance(said, (list, tuple)):
        return len(stated) == len(said) and all(map(_are_alike, stated, said))
    return bool(stated == said)


def _check_release(release: Mapping[str, Any], receipt: Receipt, curve: Mapping[str, Any]) -> Iterator[str]:
    name, accounting = release["variant"], release["accounting"]
    pairs = [(release[field], getattr(receipt, field)) for field in ("epsilon", "epsilon_target", "delta")]
    pairs += [(accounting[field], getattr(receipt, field)) for field in ("epsilon", "epsilon_rdp")]
    groups = {row.k: row.epsilon for row in receipt.group}
    pairs += [(row["epsilon"], groups[row["k"]]) for row in release["group"]]
    if receipt.variant != name or not all(said is None if one is None else is_close(one, said) for one, said in pairs):
        yield f"{name}: the statement's epsilons are not its receipt's"
    proved = receipt.stated_curve
    for stated_curve in (release["curve"], curve):
        if not (are_close(proved.alpha, stated_curve["alpha"]) and are_close(proved.beta, stated_curve["beta"])):
            yield f"{name}: the stated trade-off curve is not its receipt's"
    if {line["charge"] for line in release["mechanisms"]} != receipt.charges:
        yield f"{name}: the statement lists other mechanisms"


def _check_summaries(path: Path, signed: Signed) -> Iterator[str]:
    """Check that the pages for readers, and the signed summary, give the statement's epsilons."""
    statement, page = read_json(path / bundle.STATEMENT), _Tables()
    text, told = (path / bundle.README).read_text(encoding="utf-8"), signed.predicate["releases"]
    card, unit = read_epsilons(text), statement["unit"]["name"]
    page.feed((path / bundle.CARD).read_text(encoding="utf-8"))
    names = {release["variant"] for release in statement["releases"]}
    if names != card.keys() or names != {one["variant"] for one in told}:
        yield "statement, README.md and envelope are of different variants"
        return
    summary = {one["variant"]: one for one in told}
    for release in statement["releases"]:
        name, epsilon = release["variant"], release["epsilon"]
        signs = all(summary[name][term] == release[term] for term in ("epsilon", "delta"))
        if card[name] != (epsilon, unit) or not signs:
            yield f"{name}: README.md or the envelope gives another epsilon or unit than the statement"
        if page.first.get(name) != at_most(epsilon, 4):
            yield f"{name}: {bundle.CARD} gives another epsilon than the statement, or none"
    if privacy(statement) not in text:
        yield f"{bundle.README} says other things about privacy than the statement"
    if page.headline != f"ε ≤ {at_most(read_total(statement).epsilon)}":
        yield f"{bundle.CARD} opens with another total than the statement's"
    if not all(sentence in "".join(page.text) for sentence in _sentences(statement)):
        yield f"{bundle.CARD} lacks a sentence of the statement"
    yield from _check_documents(path, statement, signed)
    if set(signed.predicate) != set(bundle.PREDICATE) or signed.predicate["word"] != SENTENCE:
        yield "the envelope says other things than it may, or not that the owner gave their word"


def _check_documents(path: Path, statement: Mapping[str, Any], signed: Signed) -> Iterator[str]:
    """Check that the documents for programs, and the signed summary, give the statement's ledger, status and rows."""
    audit, described = read_json(path / bundle.AUDIT), read_json(path / bundle.CROISSANT)
    books, own = audit["ledger"], statement["ledger"]
    told = signed.predicate
    if (told["asset"], told["status"], told["ledger_head"]) != (own["asset"], statement["status"], own["head"]):
        yield "the envelope names another data set, status or ledger than the statement"
    terms = ("asset", "delta", "cap_epsilon", "spent_epsilon", "left_epsilon", "verified")
    if audit["status"] != statement["status"] or any(books[term] != own[term] for term in terms):
        yield f"{bundle.AUDIT} gives another status or other totals than the statement"
    if described[PROMISE] != state_promise(statement):
        yield f"{bundle.CROISSANT} promises other things than the statement"
    rows = {name: digest for name, digest in signed.files.items() if name.startswith(f"{bundle.ROWS}/")}
    if {one["@id"]: one["sha256"] for one in described["distribution"]} != rows:
        yield f"{bundle.CROISSANT} lists other files of rows than the signed ones"
    if further := sorted(signed.files.keys() - rows.keys() - {*bundle.DOCUMENTS}):
        yield f"no release has a file {further[0]!r}"


def _sentences(statement: Mapping[str, Any]) -> Iterator[str]:
    """Return the sentences that the card must repeat word for word."""
    yield read_total(statement).sentence
    yield from (statement["unit"][part] for part in ("description", "note"))
    yield from (item["sentence"] for item in statement["not_covered"])
    for release in statement["releases"]:
        yield from (release[part]["sentence"] for part in ("meaning", "changed_row"))
        yield from release["flags"]


def _check_rows(path: Path, signed: Signed) -> Iterator[str]:
    """Check that both forms of a variant's rows are the same, in the described columns, and as many as stated."""
    statement, croissant = read_json(path / bundle.STATEMENT), read_json(path / bundle.CROISSANT)
    audit, text = read_json(path / bundle.AUDIT), (path / bundle.README).read_text(encoding="utf-8")
    names = [release["variant"] for release in statement["releases"]]
    files = {f"{bundle.ROWS}/{name}{suffix}" for name in names for suffix in (".jsonl", ".parquet")}
    if files != {name for name in signed.files if name.startswith(f"{bundle.ROWS}/")}:
        yield "there are rows of other variants than the statement's"
        return
    described = croissant["recordSet"]
    columns = {one["name"]: [field["source"]["extract"]["column"] for field in one["field"]] for one in described}
    whole = statement["unit"]["row"] == JSON_ROW and _has_whole_lines(croissant)
    rows: dict[str, Counts] = {}
    for name in names:
        rows[name], problems = differences(path / bundle.ROWS / name, columns[name], whole)
        yield from problems
    for one in described:
        declared = [field for field in one["field"] if "cells" in field]
        yield from (problem for field in declared for problem in _check_field(path, one["name"], field, text))
    if read_counts(text) != {count_of(name, counts, whole) for name, counts in rows.items()}:
        yield "README.md gives other numbers of rows than the files have"
    if any(one["description"] != records_of(one["name"], rows[one["name"]], whole) for one in described):
        yield f"{bundle.CROISSANT} gives other numbers of rows than the files have"
    if not all(_has_counts(audit, name, counts.rows) for name, counts in rows.items()):
        yield f"{bundle.AUDIT} gives other numbers of rows than the files have"
    if {scan["rows"] for scan in audit["scans"].values()} != {sum(counts.rows for counts in rows.values())}:
        yield "other numbers of rows were searched than the files have"


def _check_field(path: Path, variant: str, field: Mapping[str, Any], text: str) -> Iterator[str]:
    """Check that a field is described by its public cells, and that each of its values lies within one."""
    name, cells = field["source"]["extract"]["column"], field["cells"]
    lines = field_lines(name, cells, [variant])
    if field["description"] != describe_field(name, cells) or any(line not in text.splitlines() for line in lines):
        yield f"{bundle.README} or {bundle.CROISSANT} describes column {name} of {variant} by other cells"
    domain, values = parse_domain(name, cells), read_values(path / bundle.ROWS / variant, name)
    if not all(value is None or domain.holds(value) for value in values):
        yield f"column {name} of {variant} has a value outside its public cells"


def _has_whole_lines(croissant: Mapping[str, Any]) -> bool:
    """Tell whether a line is said to be a record itself.

    The name of a column does not tell: any may be called `text`.
    """
    lines = [one for one in croissant["distribution"] if one["@id"].endswith(".jsonl")]
    return all(one.get("description") == WHOLE for one in lines)


def _has_counts(audit: Mapping[str, Any], name: str, count: int) -> bool:
    drawn, scored = audit["variants"][name]["generation"] or {}, (audit["utility"] or {}).get("rows", {})
    return {drawn.get("rows", count), scored.get(name, count)} == {count}


class _Tables(HTMLParser):
    """Reads the card's epsilons: the page's text, its opening fact, and the first cell of each table by the first word
    of its caption."""

    def __init__(self) -> None:
        super().__init__()
        self.headline = ""
        self.first: dict[str, str] = {}
        self.text: list[str] = []
        self._caption, self._within = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._caption = ""
        if tag in ("caption", "td", "b"):
            self._within = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = ""

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._within == "caption" and " at δ = " in data:
            self._caption = data.partition(" at δ = ")[0].strip()
        elif self._within == "b":
            self.headline = self.headline or data.strip()
        elif self._within == "td" and self._caption:
            self.first.setdefault(self._caption, data.strip())
