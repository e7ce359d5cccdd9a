"""Puts together and signs what may leave: rows, cards, statement, measurements, ledger extract, provenance.

Guarantee: the folder, and its existence, is a function of the owner's word, of rows and documents that ledgered
mechanisms, public files and invented canaries explain, and of the keys and the ledger; the taint check holds the graph
to that. No document made from private rows is read: neither an attack on natural records nor any other audit of them
can stop a release. The answer key of an invented world can only stop it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import palimpsest
from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.graph.taint import RELEASE, Flow, Node, narrow_reads, nodes
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params, ReleaseSettings
from palimpsest.params.sources import describe_public_rows
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge
from palimpsest.privacy.ledger.summary import LedgerSummary, ledger_summary
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.keyed import digest
from palimpsest.records.record import Record
from palimpsest.records.world.facts import Facts, load_facts
from palimpsest.records.write import counts_of, read_synthetic
from palimpsest.report.card import render_card
from palimpsest.report.release import bundle, gates, word
from palimpsest.report.release.bundle import MeasuredDocuments
from palimpsest.report.release.card import Described
from palimpsest.report.release.extract import extract, renumber_run
from palimpsest.report.release.keys import fingerprint, signing_key
from palimpsest.report.release.prov import Inputs, provenance
from palimpsest.report.statement import statement
from palimpsest.report.twins import read_shipped
from palimpsest.workspace import FACTS, GRAPH, LOCK, METRICS, PUBLIC_ONLY, RECEIPTS, SCORES, SYNTHETIC
from stages import report
from stages.common import start
from stages.vouching import describe_sources

FOLDER = Path(RELEASE)
_SCORED = "public_eval"


def run() -> None:
    """Rows and receipts of release.variants, publishable metrics, the ledger -> release/."""
    params = load()
    if not params.release.variants:
        with bundle.replace_folder(FOLDER):  # empty, for the graph; the earlier release is gone
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
    key = signing_key()
    purposes = {name: params.source_of(name).purpose for name in params.run.evaluate}
    gates.refuse(gates.check_settings(settings.variants, purposes, params.testing.noise_seed))
    evidence, data = collect_facts(params, settings.variants), params.dataset
    rows = {name: read_synthetic(SYNTHETIC / name, data.text, data.label, data.fields) for name in settings.variants}
    world = None if params.world is None else read_world()
    gates.refuse(
        [
            *gates.check_coverage(evidence.asset, evidence.charges, evidence.receipts),
            *gates.check_attacks(params.methods, read_shipped()),
            *gates.check_promise(evidence.promise),
            *gates.check_flow(evidence.flow),
            *gates.check_accuracy(evidence.scores, settings.variants, settings.gates.accuracy),
            *(problem for name, records in rows.items() for problem in gates.check_rows(name, records, world)),
            *(problem for name, own in rows.items() for problem in gates.check_fields(name, own, data.fields)),
            *gates.check_unchanged([Path(path) for path in sources(settings.variants)], read_lock()),
        ]
    )
    contents = prepare_contents(params, settings, evidence, rows, fingerprint(key.public_key()), world)
    bundle.assemble(target, contents, key, partial(inspect_texts, world=world))
    print(f"released: {', '.join(f'{len(records)} rows of {name}' for name, records in rows.items())}")
    print(f"signed by {fingerprint(key.public_key())}", flush=True)


@dataclass(frozen=True)
class Collected:
    """The facts of the workspace and the ledger about the released variants.

    `stages` is the graph in the statement's form, `flow` in the taint check's, `promise` the statement itself.
    `scores` are on the declared public test file; None where there is none. Receipts are by variant.
    """

    asset: Asset
    charges: Sequence[Charge]
    books: LedgerSummary
    receipts: Mapping[str, Receipt]
    stages: Sequence[Mapping[str, Any]]
    flow: Flow
    promise: Mapping[str, Any]
    scores: Mapping[str, Any] | None


def collect_facts(params: Params, variants: Sequence[str]) -> Collected:
    """Collect the facts to check.

    Raises:
        DataError: dvc.yaml has no stage that writes the release.
        LedgerError: a receipt is missing or not whole, the ledger's chain does not hold, or is older than a receipt, or
            another ledger was charged for the asset here.
    """
    receipts, stages = report.read_receipts(variants), report.read_stages(GRAPH)
    whole = Ledger.open(ledger_url(params)).books([receipt.ledger_head for receipt in receipts.values()])
    asset, charges = whole.asset(params.dataset.asset), whole.charges(params.dataset.asset)
    if params.world is None:
        whole.require_alone(asset.name)
    books = ledger_summary(whole, asset.name)
    promise = statement(
        receipts, books, asdict(params.schema_of_data), stages, sources=describe_sources(params), swept=params.swept,
        language=params.dataset.language,
    )  # fmt: skip
    flow = graph(variants, charges, receipts)
    return Collected(asset, charges, books, receipts, stages, flow, promise, report.read_scores(params))


def prepare_contents(
    params: Params,
    settings: ReleaseSettings,
    evidence: Collected,
    rows: Mapping[str, Sequence[Record]],
    signer: str,
    world: Facts | None,
) -> bundle.Contents:
    """Build everything that leaves."""
    counts = {name: counts_of(records, params.dataset.text) for name, records in rows.items()}
    day = datetime.now(UTC).date().isoformat()
    promise, books, receipts, scores = evidence.promise, evidence.books, evidence.receipts, evidence.scores
    version, language = palimpsest.__version__, params.dataset.language
    copied = describe_public_rows(params, settings.variants)
    fielded = [name for name, records in rows.items() if any(record.fields for record in records)]
    data = params.schema_of_data
    described = Described(settings, data, promise, counts, signer, version, day, language, copied, fielded)
    page = render_card(
        promise, books, receipts, evidence.stages, report.provenance() | {"created": day},
        variants=settings.variants, scores=scores, fingerprint=signer, copied=copied,
        samples={name: report.samples_of(params, records) for name, records in rows.items()},
    )  # fmt: skip
    counted = {name: METRICS / name / "generation.json" for name in receipts}
    generation = {name: dict(read_json(path)) if path.is_file() else None for name, path in counted.items()}
    scans = ["personal_data"] if world is None else ["personal_data", "planted_secrets"]
    scanned = dict.fromkeys(scans, sum(len(records) for records in rows.values()))
    leaving = {name: renumber_run(receipt, evidence.charges) for name, receipt in receipts.items()}
    methods = {one["method"] for one in promise["end_to_end"]}
    twins = {method: audit for method, audit in read_shipped().items() if method in methods}
    audit = bundle.audit_document(MeasuredDocuments(leaving, generation, scores, twins, scanned), promise, books)
    ledger = extract(evidence.asset, evidence.charges, books)
    return bundle.Contents(described, rows, page, audit, ledger, partial(build_provenance, params, evidence, signer))


def read_lock() -> dict[str, Any]:
    """Read the stages of dvc.lock."""
    return dict(report.read_yaml(LOCK).get("stages", {})) if LOCK.is_file() else {}


def read_world() -> Facts:
    """Read the answer key of the invented world.

    Raises:
        DataError: it is missing, and with it the check for planted secrets.
    """
    if not FACTS.is_file():
        raise DataError("The answer key of the invented world is missing.", "Make it with `palimpsest run world`.")
    return load_facts(FACTS)


def sources(variants: Sequence[str]) -> list[str]:
    """List the files that the folder is made of: the allow-list."""
    of_variant = (
        [SYNTHETIC / f"{name}.parquet", RECEIPTS / f"{name}.json", METRICS / name / "generation.json"]
        for name in variants
    )
    return [path.as_posix() for paths in (*of_variant, [SCORES]) for path in paths]


def graph(variants: Sequence[str], charges: Sequence[Charge], receipts: Mapping[str, Receipt]) -> Flow:
    """Read the workspace's graph for the taint check, with the releasing and the scoring stage's own choice of files.

    A file of the allow-list that no stage makes was put there by hand: it counts as private.

    Raises:
        DataError: no stage of dvc.yaml writes the release.
    """
    params = report.read_yaml(Path(RESOLVED))
    every = nodes(report.read_yaml(GRAPH)["stages"], params)
    if not any(RELEASE in node.writes for node in every):
        raise DataError(
            f"No stage of dvc.yaml writes {RELEASE!r}, so its way from private data cannot be checked.",
            "Restore the stage `release` in dvc.yaml.",
        )
    private = [path for path in (params["dataset"]["private"], params["dataset"]["test"]) if path is not None]
    made = {path for node in every for path in node.writes}
    unexplained = [path for path in sources(variants) if path not in made and Path(path).exists()]
    return Flow(
        tuple(narrow_node(node, variants) for node in every),
        (*private, *unexplained),
        ledgered_nodes(charges, receipts),
    )


def narrow_node(node: Node, variants: Sequence[str]) -> Node:
    """Narrow a node to the files that its stage chooses in a folder."""
    if RELEASE in node.writes:
        return narrow_reads(node, sources(variants))
    if node.name.partition("@")[0] == _SCORED:
        return narrow_reads(node, [(SYNTHETIC / f"{name}.parquet").as_posix() for name in (*variants, PUBLIC_ONLY)])
    return node


def ledgered_nodes(charges: Sequence[Charge], receipts: Mapping[str, Receipt]) -> frozenset[str]:
    """Name the graph's nodes that spent what the released receipts name, according to the ledger.

    A node that spent something else, for another release or as a reference, is no meter on the way of these rows.
    """
    named = {charge for receipt in receipts.values() for charge in receipt.charges}
    own = [charge for charge in charges if charge.id in named and charge.counted and charge.state == "committed"]
    good = [charge for charge in own if accounting.is_private(charge.event) and not charge.noise_fixed]
    return frozenset(f"{charge.stage}@{charge.variant}" for charge in good)


def build_provenance(params: Params, evidence: Collected, signer: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Build the PROV document of the released rows."""
    paid = {charge for receipt in evidence.receipts.values() for charge in receipt.charges}
    data, marks = params.dataset, {charge.fingerprint for charge in evidence.charges if charge.id in paid}
    # One value, and another for other charges: two that were equal, or one in place of two, would tell that no row
    # came or went in between.
    keyed = [digest(evidence.asset.key, "release", *sorted(paid), *sorted(marks)).hex()]
    private = {data.private: "input/private"} | ({} if data.test is None else {data.test: "input/private-test"})
    tests = {} if data.public_test is None else {data.public_test: "input/public-test"}
    inputs = Inputs(private, {data.public: "input/public"} | tests, {"input/private": keyed})
    (leaving,) = (node for node in evidence.flow.nodes if RELEASE in node.writes)
    return provenance(evidence.flow, leaving, read_lock(), inputs, files, signer)


def inspect_texts(folder: Path, world: Facts | None) -> None:
    """Search every text that is about to leave, including pages and documents, for planted secrets.

    Raises:
        DataError: a file holds one; the message names the file.
    """
    if world is None:
        return
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".parquet"):
        if world.find_canaries(path.read_text(encoding="utf-8")):
            raise DataError(
                f"Nothing was released. {path.name!r} would hold a planted secret.", "Release nothing, and report it."
            )


if __name__ == "__main__":
    start(run)
