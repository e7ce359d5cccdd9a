"""Reads the public texts, as `preprocess` left them, and keeps the states of long trainings on them."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from palimpsest.records.write import read_public
from palimpsest.workspace import CHECKPOINTS, EMBEDDINGS, PUBLIC


def public_texts() -> list[str]:
    """Read the public texts that may be chosen from and trained on."""
    return [row.text for row in read_public(PUBLIC / "train.parquet")]


def heldout_texts() -> list[str]:
    """Read the public texts that measure a model."""
    return [row.text for row in read_public(PUBLIC / "heldout.parquet")]


def public_embeddings(labels: Iterable[str]) -> dict[str, np.ndarray]:
    """Read texts (n, d) of the public texts, descriptions (labels, d) of these labels in their order.

    Labels are found by name: DVC ignores the order of settings, so a file stays where only the order of labels changed.
    """
    with np.load(EMBEDDINGS) as kept:
        places = {name: place for place, name in enumerate(kept["labels"].tolist())}
        return {"texts": kept["texts"], "descriptions": kept["descriptions"][[places[name] for name in labels]]}


@contextmanager
def half_trained(stage: str) -> Iterator[Path]:
    """Yield the folder of the states of a stage's trainings on public text; remove it once the stage is through."""
    folder = CHECKPOINTS / "public" / stage
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
