"""Put together what may leave: rows, cards, statement, measurements, ledger extract, provenance, and sign it.

Guarantee: the folder, and whether there is one, is a function of the owner's word, of rows and documents that ledgered
mechanisms, public files and invented canaries explain, and of the keys and the ledger; the taint check holds the graph
to that. No document made from private rows is read: neither an attack on natural records nor any other audit of them
can stop a release. What the answer key of an invented world can do is to stop it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import palimpsest
from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load
from palimpsest.params.release import ReleaseSettings
from palimpsest.params.schema import Params
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge
from palimpsest.privacy.ledger.summary import LedgerSummary, ledger_summary
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.keyed import digest
from palimpsest.records.record import Record
from palimpsest.records.world.facts import Facts, load_facts
from palimpsest.records.write import read_synthetic
from palimpsest.report.card import render_card
from palimpsest.report.release import bundle, gates, word
from palimpsest.report.release.bundle import MeasuredDocuments
from palimpsest.report.release.card import Described
from palimpsest.report.release.extract import extract
from palimpsest.report.release.keys import fingerprint, key_path, load_key
from palimpsest.report.release.prov import Inputs, provenance
from palimpsest.report.statement import statement
from palimpsest.report.taint import RELEASE, Flow, Node, narrowed, nodes
from palimpsest.workspace import FACTS, GRAPH, LOCK, METRICS, PUBLISHABLE, RECEIPTS, SCORES, SYNTHETIC, TWINS
from stages import report
from stages.common import start
from stages.vouching import told

FOLDER = Path(RELEASE)
_SCORED = "public_eval"


def run() -> None:
    """Rows and receipts of release.variants, publishable metrics, the ledger -> release/."""
    params = load()
    if not params.release.variants:
        with bundle.swapped(FOLDER):  # empty, for the graph; what was released before is gone
            pass
        print("nothing is released: release.variants names no variant", flush=True)
        return
    publish(params, params.release)


def publish(params: Params, settings: ReleaseSettings, target: Path = FOLDER) -> None:
    """Take the owner's word, check everything that must hold, then write, sign and put the folder in its place.

    Raises:
        PalimpsestError: a check failed, or there is no key; no part of a folder is left.
    """
    word.require(os.environ)
    key = load_key(key_path())
    purposes = {name: params.source_of(name).purpose for name in params.run.evaluate}
    gates.refuse(gates.settings(settings.variants, purposes, params.testing.noise_seed))
    found, rows = collected(params, settings.variants), read_rows(params, settings.variants)
    world = None if params.world is None else read_world()
    gates.refuse(
        [
            *gates.coverage(found.asset, found.charges, found.receipts),
            *gates.attacks(found.twins),
            *gates.promise(found.promise),
            *gates.ways(found.flow),
            *gates.useful(found.scores, settings.variants, settings.gates.accuracy),
            *(problem for name, records in rows.items() for problem in gates.rows(name, records, world)),
            *gates.present([TWINS / f"{method}.json" for method in params.run.twins]),
            *gates.unchanged(made_of(settings.variants), read_lock()),
        ]
    )
    contents = prepared(params, settings, found, rows, fingerprint(key.public_key()), world)
    bundle.assemble(target, contents, key, partial(inspected, world=world))
    print(f"released: {', '.join(f'{len(records)} rows of {name}' for name, records in rows.items())}")
    print(f"signed by {fingerprint(key.public_key())}", flush=True)


@dataclass(frozen=True)
class Found:
    """What the workspace and the ledger say of the released variants.

    Attributes:
        asset: the data set.
        charges: all of its charges.
        books: its ledger summary.
        receipts: variant -> its receipt.
        stages: the graph, for the statement.
        flow: the graph, for the taint check.
        promise: the privacy statement of the released variants.
        scores: on the declared public test file; None where there is none.
        twins: method -> its end-to-end audit on invented canaries.
    """

    asset: Asset
    charges: Sequence[Charge]
    books: LedgerSummary
    receipts: Mapping[str, Receipt]
    stages: Sequence[Mapping[str, Any]]
    flow: Flow
    promise: Mapping[str, Any]
    scores: Mapping[str, Any] | None
    twins: Mapping[str, Mapping[str, Any]]


def collected(params: Params, variants: Sequence[str]) -> Found:
    """What there is to check.

    Raises:
        DataError: dvc.yaml has no stage that writes the release.
        LedgerError: a receipt is missing or not whole, the ledger's chain does not hold, or is older than a receipt.
    """
    receipts, stages = read_receipts(variants), report.read_stages(GRAPH)
    whole = Ledger.open(ledger_url(params)).books([receipt.ledger_head for receipt in receipts.values()])
    asset, charges = whole.asset(params.dataset.asset), whole.charges(params.dataset.asset)
    books = ledger_summary(whole, asset.name)
    promise = statement(receipts, books, asdict(params.schema_of_data), stages, sources=told(params))
    flow = graph(variants, charges, receipts)
    return Found(asset, charges, books, receipts, stages, flow, promise, report.read_scores(params), read_twins())


def prepared(
    params: Params,
    settings: ReleaseSettings,
    found: Found,
    rows: Mapping[str, Sequence[Record]],
    signer: str,
    world: Facts | None,
) -> bundle.Contents:
    """All that leaves."""
    counts = {name: len(records) for name, records in rows.items()}
    day = datetime.now(UTC).date().isoformat()
    described = Described(settings, params.schema_of_data, found.promise, counts, signer, palimpsest.__version__, day)
    twins = {name: audit for name, audit in found.twins.items() if audit.get("zone") == PUBLISHABLE}
    page = render_card(
        found.promise, found.books, found.receipts, found.stages, report.provenance() | {"created": day},
        variants=settings.variants, scores=found.scores, twins=twins, fingerprint=signer,
    )  # fmt: skip
    generation = {name: read_generation(name) for name in found.receipts}
    measured = MeasuredDocuments(found.receipts, generation, found.scores, twins, scanned(sum(counts.values()), world))
    audit = bundle.audit_document(measured, found.promise, found.books)
    ledger = extract(found.asset, found.charges, found.books)
    return bundle.Contents(described, rows, page, audit, ledger, partial(origins, params, found, signer))


def read_receipts(variants: Sequence[str]) -> dict[str, Receipt]:
    """variant -> its receipt."""
    return {name: read_receipt(RECEIPTS / f"{name}.json") for name in variants}


def read_rows(params: Params, variants: Sequence[str]) -> dict[str, list[Record]]:
    """variant -> its synthetic rows, the declared columns alone."""
    data = params.dataset
    return {name: read_synthetic(SYNTHETIC / name, data.text, data.label) for name in variants}


def made_of(variants: Sequence[str]) -> list[Path]:
    """The files that the release is made of, as they are now."""
    found = [Path(path) for path in sources(variants)]
    return [file for path in found for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]


def read_lock() -> dict[str, Any]:
    """The stages of dvc.lock."""
    return dict(read_yaml(LOCK).get("stages", {})) if LOCK.is_file() else {}


def read_world() -> Facts:
    """The answer key of the invented world.

    Raises:
        DataError: it is missing, and with it the check for planted secrets.
    """
    if not FACTS.is_file():
        raise DataError("The answer key of the invented world is missing.", "Make it with `palimpsest run world`.")
    return load_facts(FACTS)


def read_twins() -> dict[str, dict[str, Any]]:
    """method -> its end-to-end audit on invented canaries."""
    return {path.stem: dict(read_json(path)) for path in sorted(TWINS.glob("*.json"))}


def read_generation(variant: str) -> dict[str, Any] | None:
    """What was drawn and removed, where the variant counted it."""
    path = METRICS / variant / "generation.json"
    return dict(read_json(path)) if path.is_file() else None


def scanned(rows: int, world: Facts | None) -> dict[str, int]:
    """scan -> rows that it looked at."""
    return {"personal_data": rows} | ({} if world is None else {"planted_secrets": rows})


def sources(variants: Sequence[str]) -> list[str]:
    """The files that the folder is made of: the allow-list."""
    of_variant = (
        [SYNTHETIC / f"{name}.parquet", RECEIPTS / f"{name}.json", METRICS / name / "generation.json"]
        for name in variants
    )
    return [path.as_posix() for paths in (*of_variant, [SCORES], sorted(TWINS.glob("*.json"))) for path in paths]


def graph(variants: Sequence[str], charges: Sequence[Charge], receipts: Mapping[str, Receipt]) -> Flow:
    """The workspace's graph for the taint check, with the releasing and the scoring stage's own choice of files.

    A file of the allow-list that no stage makes was put there by hand: it counts as private.

    Raises:
        DataError: no stage of dvc.yaml writes the release.
    """
    params = read_yaml(Path(RESOLVED))
    found = nodes(read_yaml(GRAPH)["stages"], params)
    if not any(RELEASE in node.writes for node in found):
        raise DataError(
            f"No stage of dvc.yaml writes {RELEASE!r}, so its way from private data cannot be checked.",
            "Restore the stage `release` in dvc.yaml.",
        )
    private = [path for path in (params["dataset"]["private"], params["dataset"]["test"]) if path is not None]
    made = {path for node in found for path in node.writes}
    unexplained = [path for path in sources(variants) if path not in made and Path(path).exists()]
    chosen_nodes = tuple(chosen(node, variants) for node in found)
    return Flow(chosen_nodes, (*private, *unexplained), ledgered(charges, receipts))


def chosen(node: Node, variants: Sequence[str]) -> Node:
    """The node with the files that its stage chooses among those of a folder."""
    if RELEASE in node.writes:
        return narrowed(node, sources(variants))
    if node.name.partition("@")[0] == _SCORED:
        return narrowed(node, [(SYNTHETIC / f"{name}.parquet").as_posix() for name in (*variants, "public_only")])
    return node


def ledgered(charges: Sequence[Charge], receipts: Mapping[str, Receipt]) -> frozenset[str]:
    """Names of the graph's nodes that spent what the released receipts name, as the ledger has it.

    A node that spent something else, for another release or as a reference, is no meter on the way of these rows.
    """
    named = {charge for receipt in receipts.values() for charge in receipt.charges}
    own = [charge for charge in charges if charge.id in named and charge.counted and charge.state == "committed"]
    good = [charge for charge in own if accounting.is_private(charge.event) and not charge.noise_fixed]
    return frozenset(f"{charge.stage}@{charge.variant}" for charge in good)


def origins(params: Params, found: Found, signer: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The PROV document of the released rows."""
    paid = {charge for receipt in found.receipts.values() for charge in receipt.charges}
    data, marks = params.dataset, {charge.fingerprint for charge in found.charges if charge.id in paid}
    # Another value for each release: two that were equal would tell that no row came or went in between.
    keyed = sorted(digest(found.asset.key, "release", mark, found.books.head).hex() for mark in marks)
    private = {data.private: "input/private"} | ({} if data.test is None else {data.test: "input/private-test"})
    tests = {} if data.public_test is None else {data.public_test: "input/public-test"}
    inputs = Inputs(private, {data.public: "input/public"} | tests, {"input/private": keyed})
    (leaving,) = (node for node in found.flow.nodes if RELEASE in node.writes)
    return provenance(found.flow, leaving, read_lock(), inputs, files, signer)


def inspected(folder: Path, world: Facts | None) -> None:
    """Look through every text that is about to leave, the pages and documents too, for planted secrets.

    Raises:
        DataError: a file holds one; the message names the file.
    """
    for path in sorted(folder.rglob("*")) if world is not None else ():
        text = path.is_file() and path.suffix != ".parquet" and path.read_text(encoding="utf-8")
        if text and world is not None and world.find_canaries(text):
            raise DataError(
                f"Nothing was released. {path.name!r} would hold a planted secret.", "Release nothing, and report it."
            )


def read_yaml(path: Path) -> Any:
    """One YAML document."""
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    start(run)
