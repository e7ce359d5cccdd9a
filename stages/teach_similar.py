"""Teaches a copy of the public language model, on public pairs, to continue with a text like the one it read. Free."""

import shutil

from palimpsest.files import atomic_path
from palimpsest.models.encoder import neighbours
from palimpsest.models.lm import learn_prompts
from palimpsest.params.load import load
from palimpsest.records.write import read_public
from palimpsest.workspace import BASE_LM, PUBLIC, TAUGHT
from stages.common import start
from stages.encode_public import public_vectors
from stages.pretrain import guessed_labels
from stages.public import open_checkpoints
from stages.tools import OF_PUBLIC, encoders


def run(name: str) -> None:
    """models/base, data/public -> models/taught/<name>."""
    params = load()
    settings, rows = params.taught[name], read_public(PUBLIC / "train.parquet")
    texts = [row.text for row in rows]
    labels = guessed_labels(params, rows) if params.dataset.labels else [""] * len(rows)
    vectors = public_vectors(params, texts, lambda texts: encoders(params, others=OF_PUBLIC).others(texts))
    pairs = neighbours(vectors, labels, settings.neighbours)
    with open_checkpoints(f"teach_similar@{name}") as kept, atomic_path(TAUGHT / name) as draft:
        shutil.copytree(BASE_LM, draft)
        learn_prompts(draft, texts, labels, settings, params.seed, pairs, kept)


if __name__ == "__main__":
    start(run)
