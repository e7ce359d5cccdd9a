"""Private evolution on real data, round by round: classifiers on what each round selected, and its distance.

    python -m bench.evolution_rounds --data <folder> --encodings <folder> --model <folder> [--out <json>]

The author is the public corpus (`corpus`), or a small public language model that varies public texts (`base`). Each run
is the product's generator under an even prior, its queries answered from rows at hand. Beside each round: accuracies of
both classifiers of the utility audit on all test rows, and the distances of the selected texts (Fréchet, energy,
Wasserstein) from the training rows, with their floor (training rows against test rows) at the same number of rows.

Feeds docs/lab/methods.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--encodings` fills itself.
`--model` is as `--lm` in bench/README.md.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.evolution import EPSILONS, EVALUATORS, Bench, Noised, read
from bench.real_data import TASKS
from palimpsest.files import write_json
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.authors import Base, Corpus
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.declaration import EvolveMeans, EvolveSettings
from palimpsest.methods.evolve.fit import CorpusAuthor, Evolve
from palimpsest.methods.evolve.plan import plan as planned
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.settings import TextFilters, Votes
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import Query, is_stepped
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.vouched import fingerprint_of
from palimpsest_lab.audits.rounds import measure_rounds
from tests.methods.encoders import Encoding

SEED = 7
NONE = TextFilters(chain=(), min_words=0, max_words=None, similarity=0.9, quantile=0.95, threshold=0.5)


@dataclass
class Counting:
    """Counts steps where there is no ledger."""

    limit: int
    begun: int = 0
    charge: str = "bench"
    resumed: bool = False
    lasting: bool = False

    def begin(self, steps: int) -> None:
        self.begun += steps


class Answering(Noised):
    """Answers queries in steps, too."""

    def ask(self, query: Query) -> Any:
        if not is_stepped(query):
            return super().ask(query)
        return query.run_steps(self.rows, NoiseSource(), Counting(query.steps))  # type: ignore[attr-defined]


def main() -> None:
    """Measure what is asked for and print it."""
    args = arguments()
    folder = resolve_encoder("embedded")
    model = Encoder(folder)
    encode = KeptVectors(model.encode_batch, model.dimension, args.encodings, fingerprint_of(folder), batch=64)
    found: list[dict[str, Any]] = []
    for name in args.tasks:
        bench = read(name, args.data, encode)
        for author in args.authors:
            for epsilon in args.epsilons:
                found += measured(bench, author, epsilon, args)
                if args.out:
                    write_json(args.out, found)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped JSON lines")
    parser.add_argument("--encodings", type=Path, required=True, help="folder that keeps vectors of texts")
    parser.add_argument("--model", type=Path, required=True, help="folder of the public language model")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--authors", nargs="+", choices=("corpus", "base"), default=["corpus", "base"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--expand", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--selection", choices=("rank", "sample"), default="rank")
    parser.add_argument("--share", type=float, default=0.5, help="of the budget, for class means; 0: votes alone")
    parser.add_argument("--first", type=int, default=8, help="new texts for each place, of which class means keep one")
    parser.add_argument("--out", type=Path, help="the figures as JSON too")
    return parser.parse_args()


def measured(bench: Bench, author: str, epsilon: float, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One run, a line for each round."""
    settings = EvolveSettings(
        rows=args.rows,
        label_counts="prior",
        prior=None,
        histogram_share=0.01,
        batch=64,
        rounds=args.rounds,
        expand=args.expand,
        look_ahead=0,
        votes=Votes(neighbours=args.neighbours, threshold=0.0, selection=args.selection),
        class_means=EvolveMeans(share=args.share, domain=0.75, first=args.first, pool=2) if args.share else None,
        filters=NONE,
    )
    writer = author_of(author, bench, args.model)
    plan = planned(settings, bench.schema, Budget(epsilon, bench.delta))
    encoders = Encoding(bench.encode, bench.encode, bench.encode.dimension)
    fit = Evolve(settings, bench.schema, plan, writer, encoders, SEED, None)
    evolved = fit.ask(Answering([PrivateRow(row.text, row.label) for row in bench.train]))
    what = {"task": bench.schema.asset, "author": author, "epsilon": epsilon, "plan": dict(plan.numbers)}
    public = set(bench.candidates.texts)
    lines = []
    for number, (rows, distances) in enumerate(zip(evolved.rounds, apart(bench, evolved.rounds), strict=True), 1):
        values = dict(zip(EVALUATORS, bench.accuracies(rows).tolist(), strict=True))
        written = sum(row.text not in public for row in rows) / len(rows)
        lines.append({**what, "round": number, "accuracy": values, "written": written, "distances": distances})
        show(lines[-1])
    return lines


def author_of(name: str, bench: Bench, model: Path) -> Author:
    """The author of that name over the bench's public texts."""
    described = dict(zip(bench.schema.labels, bench.encode(list(bench.schema.labels.values())), strict=True))
    texts, embeddings = bench.candidates.texts, bench.candidates.embeddings
    corpus = CorpusAuthor(Corpus(kind="corpus", neighbours=20), texts, embeddings, described, SEED, bench.encode)
    if name == "corpus":
        return corpus
    settings = Base(
        kind="base",
        vary="suffix",
        kept=(0.4, 0.9),
        masked=0.3,
        start="whole",
        temperature=0.9,
        top_p=0.9,
        max_tokens=64,
        batch=128,
    )
    return BaseAuthor(settings, model, SEED, corpus)


def apart(bench: Bench, rounds: Any) -> Iterator[list[dict[str, Any]]]:
    """The distances of each round."""
    vectors = [np.asarray(bench.encode([row.text for row in rows])) for rows in rounds]
    train, test = (np.asarray(bench.encode([row.text for row in rows])) for rows in (bench.train, bench.test))
    for distances in measure_rounds(vectors, train, test, SEED, most=1000):
        yield [distance.to_json() for distance in distances]


def show(line: dict[str, Any]) -> None:
    """One line of a table in Markdown."""
    accuracies = " | ".join(f"{value:.3f}" for value in line["accuracy"].values())
    distances = " | ".join(f"{one['value']:.3f} ({one['floor']:.3f})" for one in line["distances"])
    head = f"{line['task']} | {line['author']} | {line['epsilon']:g} | {line['round']}"
    print(f"| {head} | {accuracies} | {distances} | {line['written']:.0%} |", flush=True)


if __name__ == "__main__":
    main()
