"""What a plan foretells from public numbers alone, beside what came: labels x records x epsilon.

    python -m bench.foretold --data DATA [--as-they-are]

DATA holds the labelled sets `dbpedia`, `agnews`, `trec` and `sst2` as `bench.real_data` has them. Public texts are the
other half of each set, without their labels. Rows are chosen by noisy class means as `select` chooses them; and by
noisy votes, as `evolve` counts them, among twice as many texts that are near a label's description. Half of the public
texts are rows, or 40 a label if that is less. Accuracy on real test rows, by logistic regression on the embeddings, of
these rows and of as many that the labels' descriptions choose (`public_only`); five draws of records and noise.

Feeds docs/sizing.md.
"""

import argparse
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from palimpsest.methods.public_only import select_public
from palimpsest.methods.shared.base import foretell_means, foretell_votes
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.privacy.accounting import gdp_sigma
from palimpsest.privacy.means import unit_rows
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta

SETS, POOL, TEST, ROWS, DRAWS = ("dbpedia", "agnews", "trec", "sst2"), 2000, 1000, 40, 5
# In the order of the published classes. The file's names are shifted by one: "Film" stands beside written works.
DBPEDIA = (
    "Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation", "Building",
    "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork",
)  # fmt: skip
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
    parser.add_argument("--as-they-are", action="store_true", help="use noisy means as they are, not as estimates")
    args = parser.parse_args()
    encoder = Encoder(resolve_encoder("embedded"))
    read = {name: load(args.data, name, encoder) for name in SETS}
    print("| data | labels x records | epsilon | public_only | means | accuracy | votes | accuracy |")
    print("|---|---|---|---|---|---|---|---|")
    for name, labels, records, epsilon in SETTINGS:
        print(measure(name, *read[name], labels, records, epsilon, args.as_they_are), flush=True)


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
    return private, public, test, encoder.encode([describe(name, str(label)) for label in names])


def describe(data: str, label: str) -> str:
    """Return what a label of a data set means, in words."""
    if data == "dbpedia" and label != DBPEDIA[0]:  # the first one has the texts of both
        label = DBPEDIA[DBPEDIA.index(label) + 1]
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", label).lower()


def measure(
    name: str, private: Encoded, public: Encoded, test: Encoded, named: np.ndarray, labels: int, records: int,
    epsilon: float, as_they_are: bool,
) -> str:  # fmt: skip
    """Return the line of one setting."""
    schema = PublicSchema(
        "a", "classify", "text", labels * records, 1, label="label", labels=dict.fromkeys(map(str, range(labels)), "")
    )
    sigma = gdp_sigma(epsilon, default_delta(schema.n_units))
    asked = np.isin(test.labels, range(labels))
    look = Look(private, public, unit_rows(named[:labels]), sigma, records, as_they_are)
    exam = Encoded(test.vectors[asked], test.labels[asked])
    means, votes = foretell_means(schema, sigma), foretell_votes(records / (2 * look.rows), sigma)
    blind = examine(look.choose_blindly(), public, exam)
    cells = [name, f"{labels} x {records}", f"{epsilon:g}", f"{blind:.3f}"]
    for told, way in ((means, look.choose_by_means), (votes, look.choose_by_votes)):
        scores = [examine(way(np.random.default_rng(seed)), public, exam) for seed in range(DRAWS)]
        cells += [f"{told.ratio:.3g}, {told.word}", f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"]
    return f"| {' | '.join(cells)} |"


@dataclass(frozen=True, eq=False)
class Look:
    """Ways to choose public texts by private records."""

    private: Encoded
    public: Encoded
    named: np.ndarray  # embeddings of the labels' descriptions, (labels, d)
    sigma: float  # noise of the sums' coordinates, or of the counts
    records: int  # private records of a label that are drawn
    as_they_are: bool  # whether noisy means are used as they are

    @property
    def rows(self) -> int:
        """The texts that are chosen for a label."""
        return min(ROWS, len(self.public.vectors) // (2 * len(self.named)))

    def choose_by_means(self, rng: np.random.Generator) -> list[Record]:
        """Choose as `select` does."""
        sums = np.stack([own.sum(axis=0) for own in self._draw(rng)])
        noisy = sums + rng.normal(0, self.sigma, sums.shape)
        classes = ClassSums(self._names, noisy)
        if not self.as_they_are:
            classes = replace(classes, sigma=self.sigma, units=float(self.records), named=self.named)
        return choose(Candidates(self._texts, self.public.vectors), classes, self._counts, 0.5)

    def choose_by_votes(self, rng: np.random.Generator) -> list[Record]:
        """Choose half of the texts near a label's description by noisy votes, as `evolve` counts them."""
        chosen = []
        for label, own in enumerate(self._draw(rng)):
            candidates = np.argsort(-(self.public.vectors @ self.named[label]))[: 2 * self.rows]
            nearest = (own @ self.public.vectors[candidates].T).argmax(axis=1)
            votes = np.bincount(nearest, minlength=len(candidates)) + rng.normal(0, self.sigma, len(candidates))
            chosen += [Record(str(candidates[place]), str(label)) for place in np.argsort(-votes)[: self.rows]]
        return chosen

    def choose_blindly(self) -> list[Record]:
        """Choose as `public_only` does, by the labels' descriptions."""
        described = dict(zip(self._names, self.named, strict=True))
        return select_public(self.public.vectors, described, self._texts, None, self._counts)

    def _draw(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the private vectors of each label."""
        parts = [np.flatnonzero(self.private.labels == label) for label in range(len(self.named))]
        return [self.private.vectors[rng.permutation(part)[: self.records]] for part in parts]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.named))))

    @property
    def _texts(self) -> list[str]:
        return list(map(str, range(len(self.public.vectors))))

    @property
    def _counts(self) -> dict[str, int]:
        return dict.fromkeys(self._names, self.rows)


def examine(chosen: Sequence[Record], public: Encoded, exam: Encoded) -> float:
    """Learn from chosen texts, and return the accuracy on the test rows."""
    model = LogisticRegression(C=10.0, max_iter=500)
    model.fit(public.vectors[[int(row.text) for row in chosen]], [int(str(row.label)) for row in chosen])
    return float(np.mean(model.predict(exam.vectors) == exam.labels))


if __name__ == "__main__":
    main()
