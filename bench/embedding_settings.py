"""What the settings of embedding evolution do on real data: alpha, the number of rounds, among vectors alone.

    python -m bench.embedding_settings --data <folder> --corpus <xz> --encodings <folder> --out <json>
        [--alphas 0 0.1 0.3 0.6 1] [--rounds 1 2 3 4 6 8] [--epsilons 1 3] [--components 20 1]

TREC; public text is `--public` questions of the corpus, the first populations 300 of them for each label, at random.
Nothing is written down: offspring stand for themselves, so a run takes seconds and no decoder mars what is measured. A
row of the table is one setting, `--draws` times with noise and seeds of their own: the accuracy on real test rows of a
logistic regression on the final vectors (`--rows` of them: the last parents, then offspring), and the Wasserstein
distance of these from the training rows, beside its floor; mean and range over the draws. Votes alone, one vote a
record spread over ten candidates; shares of the labels are even.

Feeds docs/lab/methods.md. `--data`: `python -m bench.real_data --from FILES --data DATA`. `--corpus` is yours:
bench/README.md.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.decoder import sentences
from bench.embedding import QUESTIONS
from bench.evolution import records
from bench.evolution_rounds import NONE, Answering
from palimpsest.files import write_json
from palimpsest.methods.embed.declaration import Eda, EmbedSettings, GaussianHistogram
from palimpsest.methods.embed.fit import Embed
from palimpsest.methods.embed.plan import plan as planned
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates
from palimpsest.models.decoder.decoding import Decoded
from palimpsest.models.encoder import Encoder
from palimpsest.models.settings import DecodeSettings
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.vouched import fingerprint_of
from palimpsest_lab.audits.rounds import draw_mixed, measure_rounds
from tests.methods.encoders import Encoding

ALPHA, ROUNDS, EPSILON, COMPONENTS = 0.1, 3, 3.0, 20  # what stays while another is varied
PER_LABEL = 300


@dataclass
class Naming:
    """In place of a decoder: a vector is written down as a name, by which it is found again."""

    named: dict[str, np.ndarray] = field(default_factory=dict)

    def decode(self, vectors: np.ndarray, _settings: DecodeSettings, _encode: Any, _seed: int) -> Decoded:
        first = len(self.named)
        names = [f"vector {first + place}" for place in range(len(vectors))]
        self.named |= dict(zip(names, vectors, strict=True))
        return Decoded(tuple(names), np.asarray(vectors, dtype=np.float32), np.ones(len(vectors), dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Questions:
    """TREC, and public questions."""

    schema: PublicSchema
    train: Sequence[Record]
    test: Sequence[Record]
    public: Candidates
    encode: KeptVectors

    def by_label(self, rows: Sequence[Record]) -> dict[str, np.ndarray]:
        return {label: self.encode([row.text for row in rows if row.label == label]) for label in self.schema.labels}


def main() -> None:
    """Measure what is asked for and print it."""
    args = arguments()
    data, found = read(args), []
    for settings in varied(args):
        draws = [measured(data, settings, draw, args.rows) for draw in range(args.draws)]
        row = {**settings, **{name: summary([draw[name] for draw in draws]) for name in draws[0]}}
        found.append(row)
        print(row, flush=True)
        write_json(args.out, found)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped JSON lines")
    parser.add_argument("--corpus", type=Path, required=True, help="public documents")
    parser.add_argument("--encodings", type=Path, required=True, help="folder that keeps vectors of texts")
    parser.add_argument("--alphas", nargs="*", type=float, default=[0.0, 0.1, 0.3, 0.6, 1.0])
    parser.add_argument("--rounds", nargs="*", type=int, default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, EPSILON])
    parser.add_argument("--components", nargs="+", type=int, default=[COMPONENTS, 1])
    parser.add_argument("--public", type=int, default=6000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def varied(args: argparse.Namespace) -> list[dict[str, float]]:
    """Alpha at one budget, with each number of Gaussians; rounds at each budget."""
    alphas = itertools.product(args.components, args.alphas)
    rounds = itertools.product(args.epsilons, args.rounds)
    usual = {"epsilon": EPSILON, "rounds": ROUNDS, "components": COMPONENTS, "alpha": ALPHA}
    return [
        *({**usual, "components": components, "alpha": alpha} for components, alpha in alphas),
        *({**usual, "epsilon": epsilon, "rounds": number} for epsilon, number in rounds),
    ]


def read(args: argparse.Namespace) -> Questions:
    """Rows, public questions, and the vectors of both."""
    folder = resolve_encoder("embedded")
    model = Encoder(folder)
    encode = KeptVectors(model.encode_batch, model.dimension, args.encodings, fingerprint_of(folder), batch=64)
    texts = [text for text in sentences(args.corpus)[0] if text.endswith("?")][: args.public]
    train, test = (list(records(args.data, "trec", part)) for part in ("train", "test"))
    schema = PublicSchema("trec", "classify", "text", 5452, 400, "label", QUESTIONS)
    return Questions(schema, train, test, Candidates(texts, encode(texts)), encode)


def measured(data: Questions, varied: Mapping[str, float], draw: int, rows: int) -> dict[str, float]:
    """One run with noise of its own."""
    settings = EmbedSettings(
        rows=rows, rounds=int(varied["rounds"]), start=PER_LABEL, offspring=PER_LABEL, parents=40, readable=None,
        selection=GaussianHistogram(kind="gaussian", neighbours=10), class_means=None, label_counts="prior",
        eda=Eda(smoothing=varied["alpha"], best=10, components=int(varied["components"])), filters=NONE, batch=64,
    )  # fmt: skip
    plan = planned(settings, data.schema, Budget(varied["epsilon"], default_delta(5452)))
    writer, anyone = Naming(), [None] * len(data.public.texts)
    encoders = Encoding(data.encode, data.encode, data.encode.dimension)
    fit = Embed(settings, data.schema, plan, data.public, anyone, None, writer, encoders, unread, None, draw, None)
    evolved = fit.ask(Answering([PrivateRow(row.text, row.label) for row in data.train]))
    known = dict(zip(data.public.texts, data.public.embeddings, strict=True)) | writer.named
    found = {
        label: np.stack([known[row.text] for row in evolved.records if row.label == label])
        for label in data.schema.labels
    }
    train, test = data.by_label(data.train), data.by_label(data.test)
    weights = {label: len(own) for label, own in train.items()}
    (distances,) = measure_rounds(
        [draw_mixed(found, weights, (draw,))], pooled(train), pooled(test), draw, most=500, repeats=3
    )
    (far,) = (one for one in distances if one.name == "wasserstein")
    sigma = float(plan.numbers["sigma"])
    return {"sigma": sigma, "accuracy": accuracy(found, test), "distance": far.value, "floor": far.floor}


def accuracy(found: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]) -> float:
    """On test rows, of a classifier of the vectors."""
    classifier = LogisticRegression(C=10.0, max_iter=1000).fit(pooled(found), named(found))
    return float(classifier.score(pooled(test), named(test)))


def pooled(vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate(list(vectors.values()))


def named(vectors: Mapping[str, np.ndarray]) -> list[str]:
    return [label for label, own in vectors.items() for _ in own]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean and range."""
    return {"mean": float(np.mean(values)), "least": min(values), "most": max(values)}


def unread(_texts: Sequence[str]) -> np.ndarray:
    """No text is read here."""
    raise AssertionError("a text was read")


if __name__ == "__main__":
    main()
