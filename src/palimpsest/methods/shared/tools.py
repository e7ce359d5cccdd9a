"""What a fit is built with: public artifacts and models, each handed over by whoever knows where it lies."""

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
    """Whatever makes vectors of texts."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors of texts that are read side by side, (n, dimension)."""


class Encoders(Protocol):
    """One public sentence encoder with two memories, so that what is kept of private texts meets no other text."""

    @property
    def rows(self) -> Encode:
        """For private texts."""

    @property
    def others(self) -> Encode:
        """For public and synthetic texts."""

    @property
    def fresh(self) -> Encode:
        """For public texts, each by itself, with no memory: what the machine makes of a text now."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def fingerprint(self) -> str:
        """Of the encoder's weights and configuration."""


class Files(Protocol):
    """Public artifacts, each under its name in `Reads`: what is small itself, of others the folder.

    To ask for one that the method does not declare to read is an error.
    """

    @property
    def schema(self) -> PublicSchema:
        """What is public about the data set."""

    @property
    def seed(self) -> int:
        """Draws what is made of public texts and noisy answers; never noise, batches or keys."""

    @property
    def kept(self) -> Path | None:
        """The folder where a stopped run leaves what it goes on with; None keeps nothing."""

    @property
    def answers(self) -> Path:
        """The file that keeps what language models answered, by the hash of what they were asked."""

    def key(self) -> bytes:
        """32 secret bytes that spread records, or persons, over batches; the same for every run of the variant."""

    def texts(self) -> Sequence[str]: ...

    def start(self) -> Sequence[Record]:
        """What first populations are chosen from; without a label what is for any of them."""

    def embeddings(self) -> Mapping[str, np.ndarray]:
        """Texts (n, d) and descriptions (labels, d); empty where there are no labels."""

    def heldout(self) -> Sequence[str]: ...

    def base(self) -> Path: ...

    def untouched(self) -> Path:
        """`base` as it was before it learned prompts, if a named model did: by it texts are judged and filtered."""

    def reader(self) -> Path: ...

    def decoder(self) -> Path: ...

    def encoder(self) -> Path: ...

    def author(self) -> Any:
        """The settings of an author."""

    def author_model(self) -> Path:
        """The folder of a local author's model."""

    def source(self) -> Sequence[Record]: ...

    def sources(self) -> Mapping[str, Sequence[Record]]: ...

    def fitted(self) -> Path: ...


class Tools(Files, Protocol):
    """What a method is built with that is no training."""

    def encoders(self, batch: int) -> Encoders:
        """`Reads.ENCODER` with its memories; private texts that are new are read `batch` at once."""

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """The same for a reader of `Reads.BASE`'s own; `told` says all that its vectors depend on beside the model."""
