"""The inputs of a fit: public artifacts and models, passed in by the code that knows where they are stored."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

Encode: TypeAlias = Callable[[Sequence[str]], np.ndarray]


class Reads(StrEnum):
    """A public artifact or model, or one that was charged before, that a method reads. A run is identified by them."""

    TEXTS = "public texts"
    START = "what first populations are chosen from: public texts, or zero-shot ones of an author"
    EMBEDDINGS = "embeddings of the public texts and of the labels' descriptions"
    HELDOUT = "held-out public texts"
    BASE = "the public language model"
    READER = "the public language model that reads prompts: the base, or a taught one"
    DECODER = "a public decoder of embeddings"
    ENCODER = "the public sentence encoder"
    AUTHOR = "who writes candidates"
    SOURCE = "the rows of another variant"
    SOURCES = "the rows of several other variants"
    FITTED = "a fitted language model"


class ReadsTexts(Protocol):
    """A model that makes vectors of texts."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors of texts that are read side by side, (n, dimension)."""


class Encoders(Protocol):
    """One public sentence encoder with two caches, so that entries of private texts and of other texts stay apart."""

    @property
    def rows(self) -> Encode:
        """For private texts."""

    @property
    def others(self) -> Encode:
        """For public and synthetic texts."""

    @property
    def fresh(self) -> Encode:
        """For public texts, each by itself, without a cache: the text is encoded anew on this machine."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the encoder's weights and configuration."""


class Files(Protocol):
    """Public artifacts, each under its name in `Reads`: small ones as values, others as folders.

    Asking for an artifact that the method does not declare in `reads` is an error.
    """

    @property
    def schema(self) -> PublicSchema:
        """The public facts about the data set."""

    @property
    def seed(self) -> int:
        """Seeds draws from public texts and noisy answers; never noise, batches or keys."""

    @property
    def kept(self) -> Path | None:
        """The folder where a stopped run leaves its state to continue from; None keeps nothing."""

    @property
    def answers(self) -> Path:
        """The file with the answers of language models, by the hash of the question."""

    def key(self) -> bytes:
        """32 secret bytes that spread records, or persons, over batches; the same for every run of the variant."""

    def texts(self) -> Sequence[str]:
        """The public texts."""

    def start(self) -> Sequence[Record]:
        """The texts that first populations are chosen from; those without a label may serve any label."""

    def embeddings(self) -> Mapping[str, np.ndarray]:
        """Texts (n, d) and descriptions (labels, d); empty where there are no labels."""

    def heldout(self) -> Sequence[str]:
        """The held-out public texts."""

    def base(self) -> Path:
        """The folder of the public language model."""

    def untouched(self) -> Path:
        """`base` as it was before it learned prompts, if a named model did: it judges and filters texts."""

    def reader(self) -> Path:
        """The folder of the public language model that reads prompts."""

    def decoder(self) -> Path:
        """The folder of the public decoder."""

    def encoder(self) -> Path:
        """The folder of the public sentence encoder."""

    def author(self) -> Any:
        """The settings of an author."""

    def author_model(self) -> Path:
        """The folder of a local author's model."""

    def source(self) -> Sequence[Record]:
        """The rows of another variant."""

    def sources(self) -> Mapping[str, Sequence[Record]]:
        """The rows of several other variants, by their names."""

    def fitted(self) -> Path:
        """The folder of a fitted language model."""


class Tools(Files, Protocol):
    """The inputs of a method that is not a training."""

    def encoders(self, batch: int) -> Encoders:
        """Return `Reads.ENCODER` with its caches; new private texts are read `batch` at once."""

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """Return encoders for a reader of `Reads.BASE`; `told` names what its vectors depend on besides it."""
