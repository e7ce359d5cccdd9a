"""The public artifacts that methods are built with: their places, and their encoder with its memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from palimpsest.devices import has_bfloat16
from palimpsest.methods.shared.method import Encode, Encoders, Method, Reads, ReadsTexts
from palimpsest.models.encoder import Encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.load import ledger_url
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.query import plain_digest
from palimpsest.records import keyed
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.vouched import EMBEDDED, fingerprint_of
from palimpsest.records.write import read_public, read_synthetic
from palimpsest.workspace import BASE_LM, CHECKPOINTS, DECODERS, MODELS, PRIVATE, PUBLIC, SYNTHETIC, ZERO_SHOT
from stages.public import heldout_texts, public_embeddings, public_texts
from stages.spenders import Spender
from stages.vouching import resolve_vouched

OF_PUBLIC_ASKS = CHECKPOINTS / "public_answers"
# All are outside DVC's outputs, so that a stopped stage leaves them. The last bits of a text's vector depend on the
# texts that are read together with it. So texts of references and of audits never meet those of what may leave, and
# they never reach a public file.
OF_ROWS = PRIVATE / "vectors"
OF_MEASURED = PRIVATE / "other_vectors"  # the texts of audits, and of runs without noise
OF_PAID = CHECKPOINTS / "vectors"  # the texts that the ledger paid for, and the public texts beside them
OF_PUBLIC = CHECKPOINTS / "public_vectors"  # the texts of public stages
_AT_ONCE = 64  # public and synthetic texts
_HALF = " bf16"  # behind the fingerprint: such vectors belong to another encoder
# As the memories of vectors (`stages.tools`): the last bits of a local model's answer depend on what is asked beside
# it.
OF_PAID_ASKS, OF_OTHER_ASKS = CHECKPOINTS / "answers", PRIVATE / "answers"


def refuse_vouched(_params: Params, key: str) -> Path:
    """Stand in for `resolve_vouched` in programs that read no public source of params.yaml."""
    raise ValueError(f"this program does not read {key}")


class Reader(Protocol):
    """The reader of artifacts: its name, its origin or author, its method and the method's settings."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str | None: ...

    @property
    def origins(self) -> tuple[str, ...]: ...

    @property
    def method(self) -> Method: ...

    @property
    def settings(self) -> Any: ...


@dataclass(frozen=True)
class Artifacts:
    """Everything that a method may read, loaded on request; see `Files`.

    Guarantee: it hands out nothing that its method does not declare, so that the graph has an edge to all of it.
    """

    params: Params
    spender: Reader  # the spender whose method is built
    # returns the path of a public source that params.yaml names, once it is checked (`stages.vouching`)
    vouched: Callable[[Params, str], Path] = refuse_vouched
    kept: Path | None = None  # where a stopped run leaves its state for going on; None keeps nothing

    @property
    def schema(self) -> PublicSchema:
        """The public facts about the data set."""
        return self.params.schema_of_data

    @property
    def seed(self) -> int:
        """The seed of only what touches no private row."""
        return self.params.seed

    @property
    def answers(self) -> Path:
        """The file of language models' answers to a public stage, by the hash of what they were asked."""
        return OF_PUBLIC_ASKS / f"{self.spender.name}.sqlite"

    def key(self) -> bytes:
        """Return the asset's key, for this variant."""
        asset = Ledger.open(ledger_url(self.params)).asset(self.params.dataset.asset)
        return keyed.digest(asset.key, self.spender.method.name, self.spender.name)

    def texts(self) -> list[str]:
        """Return the public texts."""
        self.require(Reads.TEXTS)
        return public_texts()

    def start(self) -> list[Record]:
        """Return the records that first populations are chosen from; the public texts are for any label."""
        self.require(Reads.START)
        if self._zero_shot is None:
            return [Record(text) for text in public_texts()]
        return read_public(self._begins)

    def embeddings(self) -> Mapping[str, np.ndarray]:
        """Return the embeddings of the public texts and of the labels' descriptions."""
        self.require(Reads.EMBEDDINGS)
        labels = self.params.dataset.labels
        return public_embeddings(labels) if labels else {}

    def heldout(self) -> list[str]:
        """Return held-out public texts."""
        self.require(Reads.HELDOUT)
        return heldout_texts()

    def base(self) -> Path:
        """Return the public language model."""
        self.require(Reads.BASE)
        return BASE_LM

    def untouched(self) -> Path:
        """Return the public language model by which texts are judged and filtered."""
        self.require(Reads.BASE)
        return self.params.untouched

    def reader(self) -> Path:
        """Return the public language model that reads prompts."""
        self.require(Reads.READER)
        return MODELS / self._origin

    def decoder(self) -> Path:
        """Return the public decoder."""
        self.require(Reads.DECODER)
        return DECODERS / self._origin

    def encoder(self) -> Path:
        """Return the public sentence encoder."""
        self.require(Reads.ENCODER)
        return self.vouched(self.params, "models.encoder")

    def author(self) -> Any:
        """Return the author's settings."""
        self.require(Reads.AUTHOR)
        return self.params.authors[self._origin]

    def author_model(self) -> Path:
        """Return the folder of a local author's model."""
        self.require(Reads.AUTHOR)
        return self.vouched(self.params, f"authors.{self._origin}.model")

    def source(self) -> list[Record]:
        """Return the rows of another variant."""
        self.require(Reads.SOURCE)
        data = self.params.dataset
        return read_synthetic(SYNTHETIC / self._origin, data.text, data.label, data.fields)

    def sources(self) -> dict[str, list[Record]]:
        """Return the rows of several other variants, by their names."""
        self.require(Reads.SOURCES)
        data = self.params.dataset
        named = self.spender.origins
        return {name: read_synthetic(SYNTHETIC / name, data.text, data.label, data.fields) for name in named}

    def fitted(self) -> Path:
        """Return a fitted language model."""
        self.require(Reads.FITTED)
        return MODELS / self._origin

    def require(self, what: Reads) -> None:
        """Refuse what the method does not declare: the graph would have no edge to it."""
        if what not in self._read:
            raise ValueError(f"method {self.spender.method.name} does not declare that it reads {what}")

    def provenance(self) -> str:
        """Identify the public sources of the method's model; see `Query.subject`.

        They are identified by what their owner gave, and not by what our code made of it: a named model, the public
        texts that the embedded one learns from, a fitted model that was paid for.
        """
        if Reads.FITTED in self._read:
            return fingerprint_of(self.fitted())
        if not self._read & {Reads.BASE, Reads.READER}:
            return ""
        if self.params.models.lm == EMBEDDED:
            return plain_digest(public_texts())
        return fingerprint_of(self.vouched(self.params, "models.lm"))

    @property
    def _read(self) -> frozenset[Reads]:
        """The artifacts that the method reads here; its author may make some of them unnecessary."""
        known = self.spender.method
        if Reads.AUTHOR not in known.reads:
            return known.reads
        return known.reads_with(self.params.authors[self._origin])

    @property
    def _zero_shot(self) -> str | None:
        return getattr(self.spender.settings, "zero_shot", None)

    @property
    def _begins(self) -> Path:
        """The file that first populations are chosen from."""
        return PUBLIC / "train.parquet" if self._zero_shot is None else ZERO_SHOT / f"{self._zero_shot}.parquet"

    @property
    def _origin(self) -> str:
        if self.spender.origin is None:
            raise ValueError(f"{self.spender.name} is drawn from nothing")
        return self.spender.origin


@dataclass(frozen=True)
class StoredEncoders:
    """One sentence encoder with two memories, so that stored vectors of private texts meet no other text."""

    rows: KeptVectors  # for private texts
    others: KeptVectors  # for public and synthetic texts, of one zone
    fresh: Encode  # for public texts, each by itself, with no memory
    fingerprint: str  # of the encoder's weights and configuration

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.rows.dimension


def memory_of(*, leaves: bool) -> Path:
    """Return the memory for public and synthetic texts, by whether the stage makes rows that may leave."""
    return OF_PAID if leaves else OF_MEASURED


def measuring_encoder(params: Params, others: Path = OF_MEASURED) -> StoredEncoders:
    """Return the encoder of stages that only compare texts, and encode all of them with it: in `compute.precision`."""
    return encoders(params, _AT_ONCE, others, half=True) if uses_half(params) else encoders(params, others=others)


def uses_half(params: Params) -> bool:
    """Tell whether vectors are in half precision here."""
    return params.compute.precision != "float32" and has_bfloat16()


def encoders(
    params: Params, batch: int | None = None, others: Path = OF_MEASURED, half: bool = False
) -> StoredEncoders:
    """Return the configured encoder; new private texts are read in batches of `batch`.

    Guarantee: with `others` `OF_PAID` or `OF_PUBLIC`, vectors of other texts are functions of public texts and of what
    the ledger paid for, to the last bit; with `OF_PUBLIC`, of public texts.

    Without a `batch` no guarantee rests on the last bits of the vectors. Then each new text is read by itself, so that
    every other stage can take its vector; vectors of texts that other stages read together are taken, too. With `half`,
    vectors are in half precision, and float32 vectors are neither taken nor given.
    """
    folder = resolve_vouched(params, "models.encoder")
    encoder, mark = Encoder(folder, half=half), f"{fingerprint_of(folder)}{_HALF * half}"
    return add_memories(encoder, mark, batch, others)


def add_memories(encoder: ReadsTexts, mark: str, batch: int | None, others: Path) -> StoredEncoders:
    """Give an encoder of texts its memories; see `encoders`. `mark` distinguishes it from all others."""
    stored = partial(KeptVectors, encoder.encode_batch, encoder.dimension)
    rows = stored(OF_ROWS, mark, batch or 1, takes_together=batch is None)

    def fresh(texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([encoder.encode_batch([text]) for text in texts])

    return StoredEncoders(rows, stored(others, mark, _AT_ONCE), fresh, mark)


@dataclass(frozen=True)
class EncodingTools(Artifacts):
    """The artifacts of a method that reads texts by embedding."""

    spender: Spender

    @property
    def leaves(self) -> bool:
        """True if the rows may leave: they are no reference's and not made under noise that a seed fixes."""
        return self.spender.target.purpose == "release" and self.params.testing.noise_seed is None

    @property
    def answers(self) -> Path:
        """The file of language models' answers for these rows; answers beside exact counts meet no release."""
        return (OF_PAID_ASKS if self.leaves else OF_OTHER_ASKS) / f"{self.spender.name}.sqlite"

    def encoders(self, batch: int) -> Encoders:
        """Return the configured encoder; new private texts are read in batches of `batch`."""
        self.require(Reads.ENCODER)
        return encoders(self.params, batch, memory_of(leaves=self.leaves))

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """Return a public language model's own reader of texts; new private texts are read in batches of `batch`."""
        mark = f"{fingerprint_of(self.base())} {told}"
        return add_memories(reader, mark, batch, memory_of(leaves=self.leaves))
