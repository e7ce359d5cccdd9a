"""Embed the public texts and the labels' public descriptions: who else needs them reads the file."""

from collections.abc import Callable, Sequence

import numpy as np

from palimpsest.files import atomic_path
from palimpsest.models.encoder import Encoder
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.write import read_public
from palimpsest.workspace import EMBEDDINGS, PUBLIC
from stages.common import start
from stages.vouching import vouched


def run() -> None:
    """data/public/train.parquet -> data/public/embeddings.npz: texts (n, d), descriptions (labels, d)."""
    params = load()
    encoder = Encoder(vouched(params, "models.encoder"))
    texts = encoder.encode([row.text for row in read_public(PUBLIC / "train.parquet")])
    descriptions = encoder.encode(list(params.dataset.labels.values()))
    with atomic_path(EMBEDDINGS) as draft, draft.open("wb") as file:
        np.savez(file, texts=texts, descriptions=descriptions)


def public_vectors(params: Params, texts: Sequence[str], encode: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    """Vectors of the public training texts, (texts, d): the kept ones where there are labels and this stage runs."""
    if not params.dataset.labels:
        return encode(texts)
    return np.asarray(np.load(EMBEDDINGS)["texts"])


if __name__ == "__main__":
    start(run)
