"""Embeds the public texts and the labels' public descriptions; other stages read the file."""

from collections.abc import Callable, Sequence

import numpy as np

from palimpsest.files import atomic_path
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.progress import track
from palimpsest.workspace import EMBEDDINGS
from stages.common import start
from stages.public import public_texts
from stages.tools import OF_PUBLIC, encoders

_AT_ONCE = 1024  # texts handed to the memory: a stopped encode loses at most these


def run() -> None:
    """data/public/train.parquet -> data/public/embeddings.npz: texts (n, d); descriptions (labels, d), and of which."""
    params, texts = load(), public_texts()
    every, encode = [*texts, *params.dataset.labels.values()], encoders(params, others=OF_PUBLIC).others
    starts = range(0, len(every), _AT_ONCE)
    parts = [
        encode(every[start : start + _AT_ONCE])
        for start in track(starts, name="encode", total=len(starts), private=True)
    ]
    vectors, descriptions = np.split(np.concatenate(parts), [len(texts)])
    with atomic_path(EMBEDDINGS) as draft, draft.open("wb") as file:
        names = np.array(list(params.dataset.labels), dtype=str)
        np.savez(file, texts=vectors, descriptions=descriptions, labels=names)


def public_vectors(params: Params, texts: Sequence[str], encode: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    """Embed the public training texts, (texts, d): the stored vectors where there are labels and this stage runs."""
    if not params.dataset.labels:
        return encode(texts)
    return np.asarray(np.load(EMBEDDINGS)["texts"])


if __name__ == "__main__":
    start(run)
