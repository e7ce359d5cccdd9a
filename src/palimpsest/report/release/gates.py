"""Checks that must pass before rows leave. Each yields errors that say what to do; none ever quotes a row.

Guarantee: no check takes a document made from private rows, so its refusal is post-processing of what the ledger paid
for. A refusal that depended on private rows would be an answer that nobody charged.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from pathlib import Path
from typing import Any

from palimpsest.errors import DataError, LedgerError, PalimpsestError, ParamsError
from palimpsest.graph.taint import Flow, taint
from palimpsest.methods.registry import method
from palimpsest.privacy.ledger.records import Asset, Charge
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.fields import Declared, domains_of
from palimpsest.records.personal import is_personal
from palimpsest.records.record import Record
from palimpsest.records.structured import texts_of
from palimpsest.records.world.facts import Facts
from palimpsest.report.statement import PRIVATE
from palimpsest.report.twins import is_current

_VERDICTS = ("refuted", "not refuted", "inconclusive")
_SHOWN = 10

Documents = Mapping[str, Mapping[str, Any]]


def refuse(errors: Iterable[PalimpsestError]) -> None:
    """Raise the first error, and say how many more there are."""
    failed = list(errors)
    if failed:
        more = f" Checks that failed beside it: {len(failed) - 1}." if len(failed) > 1 else ""
        raise type(failed[0])(f"Nothing was released. {failed[0].problem}{more}", failed[0].remedy)


def check_settings(
    variants: Sequence[str], purposes: Mapping[str, str], noise_seed: int | None
) -> Iterator[PalimpsestError]:
    """Check that params.yaml asks for something that may leave. `purposes` is variant -> purpose, of all that run."""
    if not variants:
        yield ParamsError("release.variants is empty.", "Name the variants whose rows are to leave.")
    if noise_seed is not None:
        yield ParamsError(
            "testing.noise_seed fixes the noise: nothing made with it is private.",
            "Set it to null, and run `palimpsest run` again.",
        )
    for name in variants:
        if purposes.get(name) != "release":
            yield ParamsError(
                f"release.variants names {name!r}, which is not among the variants that run with purpose release.",
                f"Name some of {sorted(one for one, purpose in purposes.items() if purpose == 'release')}.",
            )


def check_coverage(
    asset: Asset, charges: Sequence[Charge], receipts: Mapping[str, Receipt]
) -> Iterator[PalimpsestError]:
    """Check that every receipt is of a release, covered by the ledger, with fresh noise, and built on no reference."""
    for name, receipt in receipts.items():
        if receipt.purpose != "release" or receipt.builds_on_reference:
            yield LedgerError(
                f"The receipt of {name} is that of a reference run, or builds on one: it may never leave.",
                f"Take {name} out of release.variants, or fit it with purpose release.",
            )
        elif receipt.noise_fixed:
            yield LedgerError(
                f"The noise of {name} was fixed by a seed.", "Set testing.noise_seed to null and run again."
            )
        elif receipt.unit != asset.unit:
            yield LedgerError(
                f"The receipt of {name} bounds one {receipt.unit}; the unit of privacy of {asset.name!r} is one "
                f"{asset.unit}.",
                f"Take {name} out of release.variants, or make it again with `palimpsest run`.",
            )
        elif problems := receipt.problems(asset, charges):
            yield LedgerError(
                f"The ledger does not cover {name}: {'; '.join(problems)}.",
                "Run `palimpsest verify`; restore the ledger, or make the variant again on this one.",
            )


def check_attacks(methods: Iterable[str], audits: Documents) -> Iterator[PalimpsestError]:
    """Check that the code of each method was attacked on invented records, and that its claim stands.

    `audits` is method -> the end-to-end audit that comes with palimpsest. A method that declares why it cannot be
    attacked this way (`untwinned`) needs none: the statement names it.
    """
    for name in methods:
        audit = audits.get(name)
        if audit is None and method(name).untwinned is not None:
            continue
        if audit is None or audit.get("verdict") not in _VERDICTS or not is_current(audit):
            yield DataError(
                f"The installed code of method {name} was not examined end to end.",
                "In a clone `make twins` examines every method of palimpsest; one of another package says why not, by "
                "`untwinned`.",
            )
        elif audit["verdict"] == "refuted":
            yield DataError(
                f"The end-to-end audit of method {name} refuted the claimed epsilon: a proof or the code is wrong.",
                "Release nothing; find the fault with `make mutants`, and report it.",
            )


def check_promise(statement: Mapping[str, Any]) -> Iterator[PalimpsestError]:
    """Check that the privacy statement promises something."""
    if statement["status"] != PRIVATE:
        reasons = " ".join(statement["reasons"])
        yield DataError(
            f"The privacy statement's status is {statement['status']}: {reasons}",
            "Correct what it names, then run `palimpsest run` again.",
        )


def check_flow(flow: Flow) -> Iterator[PalimpsestError]:
    """Check that no private data reaches the release past the meter."""
    for path in taint(flow):
        yield DataError(
            "dvc.yaml has a way from private data to the release that passes no ledgered mechanism: "
            f"{' -> '.join(path)}.",
            "Take the last step's dependency away, or put a metered stage between.",
        )


def check_accuracy(
    scores: Mapping[str, Any] | None, variants: Sequence[str], least: float | None
) -> Iterator[PalimpsestError]:
    """Check that every variant reaches the accuracy `least`, if one is asked for, on the declared public test file."""
    for name in variants if least is not None else ():
        own = [score["accuracy"] for score in (scores or {}).get("variants", {}).get(name, {}).values()]
        if not own or max(own) < least:
            reached = f"reaches {max(own):.3f}" if own else "has no score"
            yield DataError(
                f"{name} {reached} on the public test file; release.gates.accuracy asks for {least:g}.",
                "Lower the gate, name a dataset.public_test, or release another variant.",
            )


def check_unchanged(files: Sequence[Path], lock: Mapping[str, Any]) -> Iterator[PalimpsestError]:
    """Check that each file is the one that its stage wrote, by dvc.lock. Only the stage's own rows were paid for.

    Args:
        files: the files that the release is made of; another check finds one that does not exist.
        lock: the stages of dvc.lock.
    """
    made = {out["path"]: out.get("md5") for stage in lock.values() for out in stage.get("outs", ())}
    for path in files:
        own = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() if path.is_file() else None
        if own is not None and own != made.get(path.as_posix()):
            yield DataError(
                f"{path.as_posix()!r} is not the file that its stage wrote.", "Make it again with `palimpsest run`."
            )


def check_fields(name: str, records: Sequence[Record], fields: Mapping[str, Declared]) -> Iterator[PalimpsestError]:
    """Check that every value of a field lies within a public cell: no method draws another."""
    domains = dict(zip(fields, domains_of(fields), strict=True))
    values = ((field, value) for record in records for field, value in record.fields if value is not None)
    for field in sorted({field for field, value in values if not domains[field].holds(value)}):
        yield DataError(
            f"Field {field} of {name} has a value outside its public cells.",
            "Make the rows again: something else than palimpsest wrote it.",
        )


def check_rows(name: str, records: Sequence[Record], world: Facts | None) -> Iterator[PalimpsestError]:
    """Check that no synthetic row looks like a way to reach one person, or gives away a planted secret of the demo.

    `world` is the answer key of the invented world; None where the data are not invented.
    """
    if not records:
        yield DataError(f"{name} has no rows.", "Draw more rows, or loosen its filters.")
    texts = [texts_of(record) for record in records]
    hits = {
        "look like a way to reach one person": list(map(is_personal, records)),
        "hold a planted secret": [bool(world and any(map(world.find_canaries, row))) for row in texts],
    }
    for what, hit in hits.items():
        numbers = list(compress(count(1), hit))
        if numbers:
            shown = ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")
            yield DataError(
                f"{len(numbers)} of {len(texts)} rows of {name} {what}: rows {shown}.",
                "Put personal_data into the chain of the variant's filters and draw again, which is free for dp_lm and "
                "charged anew for others; of select take such texts out of the public file. If rows go on holding "
                "secrets, release nothing and report it.",
            )
