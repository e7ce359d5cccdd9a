"""What a plan foretells of `select` from public numbers alone, beside what came: labels x records x epsilon.

    python -m bench.foretold --data DATA

DATA holds the labelled sets `dbpedia`, `agnews`, `trec` and `sst2` as `bench.real_data` has them. Public texts are the
other half of each set, without their labels; rows are chosen by noisy class means as `select` chooses them, at half of
the public texts or 40 a label, whichever is less. Accuracy on real test rows, by logistic regression on the embeddings,
of these rows and of as many public texts chosen by the labels' names (`public_only`, where the names are right); three
draws of noise.

Feeds docs/sizing.md.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from palimpsest.methods.shared.foretell import foretell_means
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.privacy.accounting import gdp_sigma

SETS, POOL, TEST, ROWS, DRAWS = ("dbpedia", "agnews", "trec", "sst2"), 2000, 1000, 40, 3
NAMELESS = ("dbpedia",)  # the file's labels are shifted by one, so that their names describe other texts
# Data set, labels of it, records of a label, epsilon.
SETTINGS = (
    ("dbpedia", 13, 5, 3.0), ("dbpedia", 13, 10, 1.0), ("dbpedia", 13, 10, 3.0), ("dbpedia", 13, 20, 1.0),
    ("dbpedia", 13, 20, 3.0), ("dbpedia", 13, 40, 1.0), ("dbpedia", 13, 40, 3.0), ("dbpedia", 13, 100, 3.0),
    ("agnews", 4, 10, 1.0), ("agnews", 4, 20, 3.0), ("agnews", 4, 100, 1.0), ("agnews", 4, 400, 3.0),
    ("trec", 5, 10, 3.0), ("trec", 5, 40, 1.0), ("trec", 5, 100, 3.0), ("trec", 5, 300, 3.0),
    ("sst2", 2, 20, 1.0), ("sst2", 2, 60, 3.0), ("sst2", 2, 300, 1.0), ("sst2", 2, 1500, 3.0),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Encoded:
    """Embedded texts and the number of each one's label."""

    vectors: np.ndarray
    labels: np.ndarray


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    encoder = Encoder(resolve_encoder("embedded"))
    read = {name: load(args.data, name, encoder) for name in SETS}
    print(
        "| data | labels x records | epsilon | ratio | foretold | select | public_only |\n|---|---|---|---|---|---|---|"
    )
    for name, labels, records, epsilon in SETTINGS:
        print(measure(name, *read[name], labels, records, epsilon), flush=True)


def load(folder: Path, name: str, encoder: Encoder) -> tuple[Encoded, Encoded, Encoded, np.ndarray]:
    """Return private, public and test texts of a set, embedded, and the embeddings of its labels' names."""
    with gzip.open(folder / f"{name}_train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, 3 * POOL + TEST + POOL)]
    counts = {row["label"]: 0 for row in rows}
    for row in rows:
        counts[row["label"]] += 1
    names = sorted(counts, key=lambda label: -counts[label])
    kept = [row for row in np.random.default_rng(0).permutation(np.array(rows, dtype=object))]
    vectors = encoder.encode([row["text"] for row in kept])
    whole = Encoded(vectors, np.array([names.index(row["label"]) for row in kept]))
    parts = (slice(None, -POOL - TEST), slice(-POOL - TEST, -TEST), slice(-TEST, None))
    private, public, test = (Encoded(whole.vectors[part], whole.labels[part]) for part in parts)
    return private, public, test, encoder.encode([str(label) for label in names])


def measure(
    name: str, private: Encoded, public: Encoded, test: Encoded, named: np.ndarray, labels: int, records: int,
    epsilon: float,
) -> str:  # fmt: skip
    """Return the line of one setting."""
    units = labels * records
    sigma = gdp_sigma(epsilon, 1 / (units * np.log(units)))
    told = foretell_means(labels, units, sigma)
    used, asked = (np.isin(one.labels, range(labels)) for one in (private, test))
    exam = Encoded(test.vectors[asked], test.labels[asked])
    scores = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        rows = np.flatnonzero(used)
        drawn = np.concatenate(
            [rng.permutation(rows[private.labels[rows] == label])[:records] for label in range(labels)]
        )
        sums = np.stack([private.vectors[drawn[private.labels[drawn] == label]].sum(axis=0) for label in range(labels)])
        scores.append(learn(public, sums + rng.normal(0, sigma, sums.shape), exam))
    blind = f"{learn(public, named[:labels], exam):.3f}" if name not in NAMELESS else "-"
    return (
        f"| {name} | {labels} x {records} | {epsilon:g} | {told.ratio:.1f} | {told.word} | "
        f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f}) | {blind} |"
    )


def learn(public: Encoded, sums: np.ndarray, exam: Encoded) -> float:
    """Choose public texts by these sums, learn from them, and return the accuracy on the test rows."""
    labels = tuple(map(str, range(len(sums))))
    texts: Sequence[str] = list(map(str, range(len(public.vectors))))
    count = min(ROWS, len(texts) // (2 * len(labels)))
    chosen = choose(Candidates(texts, public.vectors), ClassSums(labels, sums), dict.fromkeys(labels, count), 0.5)
    model = LogisticRegression(C=10.0, max_iter=500)
    model.fit(public.vectors[[int(row.text) for row in chosen]], [int(str(row.label)) for row in chosen])
    return float(np.mean(model.predict(exam.vectors) == exam.labels))


if __name__ == "__main__":
    main()
