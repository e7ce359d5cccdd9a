"""Choosing texts by a metered look, on real data: classifiers on what is chosen, over epsilons.

    python -m bench.evolution select --data <folder> --encodings <folder> [--out <json>]

`select` takes public texts by noisy class means, as method `select` does under an even prior: 60,000
sentences of film reviews for SST-2; the openings of 16,000 agency reports and 24,000 encyclopedia articles for AG News.
Rows of the table: `real`, the private rows; `public_only`, public texts by the public descriptions of the labels;
`select`, the mean over draws of its noise; `oracle`, the same rule with exact sums; `labelled`, the texts in domain
that a classifier trained on the private rows is surest of, which no private method may ask. Both classifiers are the
utility audit's, on all test rows; `of oracle` is the accuracy over the better one of the last two rows. Encodings are
kept in a folder and made where they are missing (some 20 minutes on one core).

Feeds docs/results/real_data.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--encodings` fills
itself.
"""

import argparse
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.real_data import TASKS, lines, natural
from palimpsest.audit.utility import LinearSettings, minilm_lr, tfidf_lr
from palimpsest.files import write_json
from palimpsest.methods.public_only import select_public
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.select.fit import Select
from palimpsest.methods.select.fit import plan as planned
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.methods.shared.shares import divide_total
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.means import unit_rows
from palimpsest.privacy.query import Query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.vouched import fingerprint_of

EPSILONS = (1.0, 3.0, 10.0)
SENTENCES = 60_000
WORDS = (3, 50)  # of a sentence
REAL = LinearSettings(seeds=range(3))
EVALUATORS = ("minilm_lr", "tfidf_lr")


@dataclass(frozen=True)
class Noised:
    """Answers queries from rows at hand: a bench has no ledger."""

    rows: Sequence[PrivateRow]

    def ask(self, query: Query) -> Any:
        return query.run(self.rows, NoiseSource())


@dataclass(frozen=True, eq=False)
class Bench:
    """One data set: private rows, test rows, public texts, and the encoder with its memory."""

    schema: PublicSchema
    train: Sequence[Record]
    test: Sequence[Record]
    candidates: Candidates
    encode: KeptVectors

    @property
    def delta(self) -> float:
        return default_delta(self.schema.n_units)

    def counts(self, rows: int) -> dict[str, int]:
        return divide_total(rows, {label: 1.0 / len(self.schema.labels) for label in self.schema.labels})

    def accuracies(self, rows: Sequence[Record]) -> np.ndarray:
        """Of the classifiers in the order of `EVALUATORS`, trained on these rows; shape (2,)."""
        labels = self.schema.label_names
        texts, targets = ([row.text for row in rows], [row.label or "" for row in rows])
        tests, truth = ([row.text for row in self.test], [row.label or "" for row in self.test])
        near = minilm_lr(self.encode(texts), targets, self.encode(tests), truth, labels, REAL)
        far = tfidf_lr(texts, targets, tests, truth, labels, REAL)
        return np.array([near.scored.accuracy.value, far.scored.accuracy.value])


def main() -> None:
    """Measure what is asked for and print it."""
    args = arguments()
    encoder = resolve_encoder("embedded")
    model = Encoder(encoder)
    encode = KeptVectors(model.encode_batch, model.dimension, args.encodings, fingerprint_of(encoder), batch=64)
    found = {name: measured(read(name, args.data, encode), args) for name in args.tasks}
    for name, table in found.items():
        show(name, table)
    if args.out:
        write_json(args.out, found)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("select",))
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped JSON lines")
    parser.add_argument("--encodings", type=Path, required=True, help="folder that keeps vectors of texts")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rows", type=int, default=12_000, help="chosen texts, over all labels")
    parser.add_argument("--domain", type=float, default=0.75)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the figures as JSON too")
    return parser.parse_args()


def read(name: str, data: Path, encode: KeptVectors) -> Bench:
    """The rows and texts of one task, cut to its length, and the vectors of the public ones."""
    task = TASKS[name]
    train, test = (list(records(data, name, part)) for part in ("train", "test"))
    public = list(dict.fromkeys(sentences(data, task) if name == "sst2" else openings(data, task)))
    schema = PublicSchema(name, "classify", "text", task["n"], task["characters"], "label", task["labels"])
    return Bench(schema, train, test, Candidates(public, encode(public)), encode)


def records(data: Path, name: str, part: str) -> Iterator[Record]:
    for row in lines(data / f"{name}_{part}.jsonl.gz"):
        if natural(name, part, row):
            yield Record(row["text"], row["label"].lower())


def sentences(data: Path, task: Mapping[str, Any]) -> Sequence[str]:
    """Sentences of the public reviews, drawn evenly."""
    texts = (row["text"].replace("<br />", " ") for name in task["public"] for row in lines(data / f"{name}.jsonl.gz"))
    cut = (" ".join(piece.split()) for text in texts for piece in re.split(r"(?<=[.!?])\s+", text))
    found = list(dict.fromkeys(piece for piece in cut if WORDS[0] <= len(piece.split()) <= WORDS[1]))
    random.Random(0).shuffle(found)
    return found[:SENTENCES]


def openings(data: Path, task: Mapping[str, Any]) -> Iterator[str]:
    """The beginning of each public text."""
    for name in task["public"]:
        yield from (row["text"][: task["characters"]] for row in lines(data / f"{name}.jsonl.gz"))


def measured(bench: Bench, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one table, `real` first."""
    settings = SelectSettings(
        rows=args.rows, label_counts="prior", prior=None, histogram_share=0.01, batch=1, domain=args.domain, most=1
    )
    table = [line(bench, name, [rows]) for name, rows in references(bench, settings)]
    for epsilon in EPSILONS:
        plan = planned(settings, bench.schema, Budget(epsilon, bench.delta))
        fit = Select(settings, bench.schema, plan, bench.candidates, bench.encode)
        view = Noised([PrivateRow(row.text, row.label) for row in bench.train])
        drawn = [list(fit.made(fit.ask(view)).rows) for _ in range(args.draws)]
        privacy = {"epsilon": epsilon, "delta": bench.delta, "sigma": plan.numbers["sigma"]}
        table.append(line(bench, f"select {epsilon:g}", drawn) | privacy)
    return table


def references(bench: Bench, settings: SelectSettings) -> Iterator[tuple[str, list[Record]]]:
    """What stands beside `select`."""
    counts = bench.counts(settings.rows)
    yield "real", list(bench.train)
    yield "public_only", public_only(bench, counts)
    members = [row.label for row in bench.train]
    vectors = bench.encode([row.text for row in bench.train])
    names = bench.schema.label_names
    exact = np.stack([unit_rows(vectors[[member == name for member in members]]).sum(axis=0) for name in names])
    yield "oracle", choose(bench.candidates, ClassSums(names, exact), counts, settings.domain)
    yield "labelled", labelled(bench, vectors, counts, settings.domain)


def public_only(bench: Bench, counts: Mapping[str, int]) -> list[Record]:
    """Public texts by the public descriptions."""
    described = dict(zip(bench.schema.labels, bench.encode(list(bench.schema.labels.values())), strict=True))
    return select_public(bench.candidates.embeddings, described, bench.candidates.texts, None, counts)


def labelled(bench: Bench, vectors: np.ndarray, counts: Mapping[str, int], domain: float) -> list[Record]:
    """Texts in domain, by a classifier trained on the private rows: the surest of each label. Never private."""
    found, texts = unit_rows(bench.candidates.embeddings), bench.candidates.texts
    kept = np.argsort(-(found @ vectors.sum(axis=0)), kind="stable")[: bench.candidates.count_kept(domain)]
    model = LogisticRegression(C=10.0, max_iter=500).fit(vectors, [row.label or "" for row in bench.train])
    sure = model.predict_proba(found[kept])
    chosen: list[Record] = []
    for column, label in enumerate(model.classes_):
        own = np.flatnonzero(sure.argmax(axis=1) == column)
        best = kept[own[np.argsort(-sure[own, column], kind="stable")]][: counts[label]]
        chosen += [Record(texts[index], str(label)) for index in best.tolist()]
    return chosen


def line(bench: Bench, name: str, drawn: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """One row of the table: mean and spread of accuracies over draws."""
    values = np.stack([bench.accuracies(rows) for rows in drawn])  # (draws, 2)
    print(f"{bench.schema.asset} {name}: {values.round(4).tolist()}", flush=True)
    return {
        "row": name,
        "rows": len(drawn[0]),
        "accuracy": dict(zip(EVALUATORS, values.mean(axis=0).tolist(), strict=True)),
        "spread": dict(zip(EVALUATORS, values.std(axis=0).tolist(), strict=True)),
    }


def show(name: str, table: Sequence[Mapping[str, Any]]) -> None:
    """A table in Markdown."""
    rows = {row["row"]: row["accuracy"] for row in table}
    heads = " | ".join(f"{name}: accuracy | of real | of oracle" for name in EVALUATORS)
    print(f"\n{name}\n\n| row | rows | delta | sigma | {heads} |\n" + "|---" * (4 + 3 * len(EVALUATORS)) + "|")
    for row in table:
        cells = [row["row"], str(row["rows"]), f"{row.get('delta', math.nan):.2e}", f"{row.get('sigma', math.nan):.2f}"]
        for evaluator in EVALUATORS:
            value, best = row["accuracy"][evaluator], max(rows[name][evaluator] for name in ("oracle", "labelled"))
            cells += [f"{value:.3f}", f"{value / rows['real'][evaluator]:.3f}", f"{value / best:.3f}"]
        print("| " + " | ".join(cells).replace("nan", "") + " |")


if __name__ == "__main__":
    main()
