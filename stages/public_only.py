"""The epsilon 0 row: public texts for each label, chosen without a look at private rows."""

import numpy as np

from palimpsest.methods.baselines.public_only import select_public
from palimpsest.params.load import load
from palimpsest.records.write import read_public, write_synthetic
from palimpsest.workspace import EMBEDDINGS, PUBLIC, SYNTHETIC
from stages.common import start


def run() -> None:
    """data/public/train.parquet -> data/synthetic/public_only.jsonl, .parquet."""
    params = load()
    labels = params.dataset.labels
    rows = read_public(PUBLIC / "train.parquet")
    embeddings = np.load(EMBEDDINGS)
    chosen = select_public(
        embeddings["texts"],
        dict(zip(labels, embeddings["descriptions"], strict=True)),
        [row.text for row in rows],
        [row.label for row in rows],
        even(params.public_only.rows, tuple(labels)),
    )
    write_synthetic(chosen, SYNTHETIC / "public_only", params.dataset.text, params.dataset.label)


def even(rows: int, labels: tuple[str, ...]) -> dict[str, int]:
    """Equal public counts per label; the first labels take what does not divide."""
    each, rest = divmod(rows, len(labels))
    return {label: each + (index < rest) for index, label in enumerate(labels)}


if __name__ == "__main__":
    start(run)
