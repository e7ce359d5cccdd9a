"""Does `restate` lose anything on real data, where no answer key says what is true?

    python -m bench.facts_real TRAIN.jsonl TEST.jsonl PUBLIC.jsonl --words WORDS.txt

Public sentences are chosen by class means at epsilon 3; and chosen at 2, then restated up to 3. A sentence states the
first of the words in WORDS that it has: a public list. A classifier of words learns from either and reads TEST, again
and again with new noise. The encoder hashes words, so that a run takes minutes; queries and fits are the package's.

Feeds docs/lab/methods.md. Its files: `palimpsest dataset trec --from FILES --public PUBLIC --sentences 12000`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from palimpsest.methods.choose.fit import classifier
from palimpsest.methods.restate.declaration import RestateSettings
from palimpsest.methods.restate.fit import Restate
from palimpsest.methods.restate.fit import plan as plan_restate
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.select.fit import Select
from palimpsest.methods.select.fit import plan as plan_select
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema, default_delta

WIDTH, ROWS, EPSILON, FIRST = 256, 2000, 3.0, 2.0


class Asked:
    """Answers queries on rows, each with fresh noise. Nothing of it is released."""

    def __init__(self, rows: Sequence[PrivateRow]) -> None:
        self._rows = rows

    def ask(self, query: Any) -> Any:
        """The noisy answer."""
        return query.run(self._rows, NoiseSource())


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "test", "public"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    train, test, texts = read(args.train), read(args.test), [row["text"] for row in read(args.public)]
    labels = {label: label for label in sorted({row["label"] for row in train})}
    schema = PublicSchema("real", "classify", "text", len(train), 400, "label", labels)
    delta = default_delta(len(train))
    view = Asked([PrivateRow(row["text"], row["label"]) for row in train])
    hashed = HashingVectorizer(n_features=WIDTH, alternate_sign=False)
    weights = TfidfTransformer(sublinear_tf=True).fit(hashed.transform(texts))

    def encode(some: Sequence[str]) -> np.ndarray:
        return np.asarray(weights.transform(hashed.transform(some)).toarray())

    candidates = Candidates(texts, encode(texts))
    values: dict[str, list[str]] = {word: [] for word in args.words.read_text(encoding="utf-8").split()}
    told = RestateSettings.model_validate({"attributes": {"word": {"values": values}}})

    def chosen(epsilon: float) -> tuple[Select, list[Record]]:
        settings = SelectSettings(rows=ROWS)
        fit = Select(settings, schema, plan_select(settings, schema, Budget(epsilon, delta)), candidates, encode)
        return fit, list(fit.made(fit.ask(view)).rows)

    def restated() -> list[Record]:
        fit, rows = chosen(FIRST)
        plan = plan_restate(told, schema, Budget(EPSILON, delta), fit.plan.event)
        changed = Restate(told, schema, plan, rows)
        return list(changed.made(changed.ask(view)).rows)

    def right(rows: Sequence[Record]) -> float:
        given = classifier(rows, 1)([row["text"] for row in test])
        return sum(label == row["label"] for label, row in zip(given, test, strict=True)) / len(test)

    most = Counter(row["label"] for row in test).most_common(1)[0][1] / len(test)
    print(f"test rows {len(test)}, the commonest label {most:.3f}")
    print("real rows", f"{right([Record(row['text'], row['label']) for row in train]):.3f}")
    for name, make in (("select at 3", lambda: chosen(EPSILON)[1]), ("select at 2, restate up to 3", restated)):
        found = sorted(right(make()) for _ in range(args.repeats))
        print(f"{name}: median {np.median(found):.3f}, from {found[0]:.3f} to {found[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
