"""Writes the epsilon 0 row: public texts, for each label where there are labels, chosen without private rows."""

from collections.abc import Sequence

from palimpsest.methods.public_only import pick_evenly, select_public
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.record import Record
from palimpsest.records.write import read_public, shuffle_rows, write_synthetic
from palimpsest.workspace import PUBLIC, PUBLIC_ONLY, SYNTHETIC
from stages.common import start
from stages.public import public_embeddings


def run() -> None:
    """data/public/train.parquet -> data/synthetic/public_only.jsonl, .parquet."""
    params = load()
    rows = read_public(PUBLIC / "train.parquet")
    chosen = choose_per_label(params, rows) if params.dataset.labels else pick_evenly(rows, params.public_only.rows)
    write_synthetic(shuffle_rows(chosen), SYNTHETIC / PUBLIC_ONLY, params.dataset.text, params.dataset.label)


def choose_per_label(params: Params, rows: Sequence[Record]) -> list[Record]:
    """Choose public rows for each label, equally many."""
    labels = params.dataset.labels
    embeddings = public_embeddings(labels)
    return select_public(
        embeddings["texts"],
        dict(zip(labels, embeddings["descriptions"], strict=True)),
        [row.text for row in rows],
        [row.label for row in rows],
        split_evenly(params.public_only.rows, tuple(labels)),
    )


def split_evenly(rows: int, labels: tuple[str, ...]) -> dict[str, int]:
    """Return equal public counts per label; the first labels take the remainder."""
    each, rest = divmod(rows, len(labels))
    return {label: each + (index < rest) for index, label in enumerate(labels)}


if __name__ == "__main__":
    start(run)
