"""The sentence encoder with a memory: a text that any stage has encoded is never encoded again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from palimpsest.devices import halves
from palimpsest.methods.shared.tools import Encode, ReadsTexts
from palimpsest.models.encoder import Encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.schema import Params
from palimpsest.records.vouched import fingerprint_of
from palimpsest.workspace import CHECKPOINTS, PRIVATE
from stages.vouching import vouched

# All are outside DVC's outputs, so that a stopped stage leaves them. The last bits of a text's vector depend on the
# texts that are read together with it. So texts of references and of audits never meet those of what may leave, and
# they never reach a public file.
OF_ROWS = PRIVATE / "vectors"
OF_MEASURED = PRIVATE / "other_vectors"  # the texts of audits, and of runs without noise
OF_PAID = CHECKPOINTS / "vectors"  # the texts that the ledger paid for, and the public texts beside them
OF_PUBLIC = CHECKPOINTS / "public_vectors"  # the texts of public stages
_AT_ONCE = 64  # public and synthetic texts
_HALF = " bf16"  # behind the fingerprint: such vectors belong to another encoder


@dataclass(frozen=True)
class StoredEncoders:
    """One sentence encoder with two memories, so that stored vectors of private texts meet no other text.

    Attributes:
        rows: for private texts.
        others: for public and synthetic texts, of one zone.
        fresh: for public texts, each by itself, with no memory.
        fingerprint: of the encoder's weights and configuration.
    """

    rows: KeptVectors
    others: KeptVectors
    fresh: Encode
    fingerprint: str

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.rows.dimension


def memory_of(*, leaves: bool) -> Path:
    """Return the memory for public and synthetic texts, by whether the stage makes rows that may leave."""
    return OF_PAID if leaves else OF_MEASURED


def measuring(params: Params, others: Path = OF_MEASURED) -> StoredEncoders:
    """Return the encoder of stages that only compare texts, and encode all of them with it: in `compute.precision`."""
    return encoders(params, _AT_ONCE, others, half=True) if in_half(params) else encoders(params, others=others)


def in_half(params: Params) -> bool:
    """Tell whether vectors are in half precision here."""
    return params.compute.precision != "float32" and halves()


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
    folder = vouched(params, "models.encoder")
    encoder, mark = Encoder(folder, half=half), f"{fingerprint_of(folder)}{_HALF * half}"
    return remembered(encoder, mark, batch, others)


def remembered(encoder: ReadsTexts, mark: str, batch: int | None, others: Path) -> StoredEncoders:
    """Give an encoder of texts its memories; see `encoders`. `mark` distinguishes it from all others."""
    stored = partial(KeptVectors, encoder.encode_batch, encoder.dimension)
    rows = stored(OF_ROWS, mark, batch or 1, takes_together=batch is None)

    def fresh(texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([encoder.encode_batch([text]) for text in texts])

    return StoredEncoders(rows, stored(others, mark, _AT_ONCE), fresh, mark)
