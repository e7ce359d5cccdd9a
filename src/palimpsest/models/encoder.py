"""Texts to unit vectors."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from palimpsest.devices import device
from palimpsest.errors import ModelError
from palimpsest.models.sources import guard_loading, require_own_modules
from palimpsest.models.vectors import batch_by_length
from palimpsest.progress import track
from palimpsest.records.vouched import fingerprint_of

transformers_logging.disable_progress_bar()  # its bar of weights being read says nothing to a user


_SAME = 0.95  # cosine from which two texts say the same
_SPARE = 8  # tokens of a window for special tokens, and for a word that a bound cuts in two
_BLOCK = 1024  # rows of the similarity matrix that are in memory at once


class Encoder:
    """A sentence encoder: the same callable wherever two embeddings are compared.

    Attributes:
        dimension: length d of an embedding.
    """

    def __init__(self, folder: Path, batch: int = 64, half: bool = False) -> None:
        """Load the model in `folder`; `batch` texts are encoded at once.

        Guarantee: no code of the folder runs, no pickle is opened and nothing outside the folder is read. Vectors are
        computed in float32, also where the weights were saved in half precision. With `half` products are in bfloat16,
        only for measurements: no guarantee holds for such vectors.

        Raises:
            ModelError: the folder holds no sentence encoder, or one with modules of its own.
        """
        here = device()
        with guard_loading(folder, "sentence encoder", "Name a folder that sentence-transformers has saved."):
            require_own_modules(Path(folder))
            self._model = SentenceTransformer(
                str(folder),
                device=str(here),
                model_kwargs={"use_safetensors": True},
                trust_remote_code=False,
                local_files_only=True,
            )
        self._model.float().eval()  # whatever the weights were saved in: votes and means read no coarser vectors
        self._folder, self._batch, self._half, self._kind = Path(folder).resolve(), batch, half, here.type
        self.dimension = int(self._model.get_embedding_dimension() or 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and its fingerprint: a receiving process loads the same folder, once."""
        return _load_sent, (self._folder, self._batch, self._half, self._fingerprint)

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint_of(self._folder)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings in the order of `texts`: float32, shape (n, d), L2 norm 1."""
        embeddings = np.zeros((len(texts), self.dimension), dtype=np.float32)
        batches = batch_by_length(list(map(len, texts)), self._batch)
        for batch in track(batches, name="encode", total=len(batches), private=True):
            embeddings[batch] = self.encode_batch([texts[index] for index in batch])
        return embeddings

    @torch.no_grad()
    def encode_batch(self, texts: list[str]) -> np.ndarray:
        """Encode a few texts at once, without a progress bar.

        Guarantee: each vector has length 1, however long its text is; of a text encoded by itself it is a function of
        that text alone, to the bit. A text that the model would cut gets the mean of its windows' vectors, brought back
        to length 1. A tokenizer that cannot say where its tokens stand cuts it all the same.
        """
        windows = [self._split_windows(text) for text in texts]
        with torch.autocast(self._kind, torch.bfloat16, enabled=self._half):
            vectors = self._model.encode(
                [window for each in windows for window in each], batch_size=max(len(texts), self._batch),
                normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False,
            )  # fmt: skip
        return vectors if len(vectors) == len(texts) else _average(vectors, list(map(len, windows)))

    def _split_windows(self, text: str) -> list[str]:
        """Split a text into parts of equally many tokens that the model reads whole."""
        tokenizer = self._model.tokenizer
        most = (self._model.max_seq_length or tokenizer.model_max_length) - _SPARE
        if len(text.encode()) <= most or not tokenizer.is_fast:  # a token has a byte or more
            return [text]
        told = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False)
        places = [start for start, _ in told["offset_mapping"]]
        count = -(-len(places) // most)
        if count < 2:
            return [text]
        bounds = [places[len(places) * number // count] for number in range(1, count)]
        return [text[start:end] for start, end in pairwise([0, *bounds, len(text)])]


def _average(vectors: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return the mean of each text's vectors, brought back to length 1; shape (texts, d)."""
    sums = np.add.reduceat(vectors, np.cumsum([0, *counts[:-1]]))
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.finfo(np.float32).tiny)


@lru_cache(maxsize=1)
def _load_sent(folder: Path, batch: int, half: bool, fingerprint: str) -> Encoder:
    """Load the encoder of a folder whose files have this fingerprint here, too."""
    if fingerprint_of(folder) != fingerprint:
        raise ModelError(
            "A worker finds another sentence encoder under the same path.",
            "Put the models where all machines of the cluster read the same files.",
        )
    return Encoder(folder, batch, half)


def assign_nearest(texts: np.ndarray, descriptions: np.ndarray) -> np.ndarray:
    """Index of the description nearest to each text by cosine: int64 (n,), from unit vectors (n, d) and (k, d)."""
    return (texts @ descriptions.T).argmax(axis=1)


def neighbours(embeddings: np.ndarray, labels: Sequence[str], count: int) -> np.ndarray:
    """The `count` nearest texts of the same label for each text, except near copies; int64 (n, count), -1 for none.

    Args:
        embeddings: shape (n, d), L2 norm 1.
    """
    kinds = np.unique(np.asarray(labels), return_inverse=True)[1]
    nearest_ones = np.full((len(embeddings), count), -1, dtype=np.int64)
    for start in range(0, len(embeddings), _BLOCK):
        rows = slice(start, start + _BLOCK)
        similarity = embeddings[rows] @ embeddings.T
        similarity[(kinds[rows, None] != kinds[None, :]) | (similarity > _SAME)] = -np.inf
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
        usable = np.isfinite(np.take_along_axis(similarity, best, axis=1))
        nearest_ones[rows, : best.shape[1]] = np.where(usable, best, -1)
    return nearest_ones
