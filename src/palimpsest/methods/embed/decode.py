"""Who writes an embedding down, as the generator knows it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from palimpsest.models.decoder.settings import DecodeSettings
from palimpsest.privacy.means import Encode


class Written(Protocol):
    """Texts that stand for embeddings."""

    @property
    def texts(self) -> Sequence[str]:
        """One for each vector; blank where nothing could be written."""

    @property
    def embeddings(self) -> np.ndarray:
        """Those of the texts themselves, shape (n, d)."""


class Decode(Protocol):
    """A public decoder: embeddings in, texts out, without a private row.

    A function of its arguments, so a stopped run writes the same again.
    """

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Encode, seed: int) -> Written:
        """A text for each vector, whose own embedding is near it."""
