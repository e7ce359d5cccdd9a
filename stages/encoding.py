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

# All are outside DVC's outputs, so that a stopped stage leaves them. A text that is read together with others has the
# last bits of its vector from them. So texts of references and of audits never meet those of what may leave, and these
# never reach a public file.
OF_ROWS = PRIVATE / "vectors"
OF_MEASURED = PRIVATE / "other_vectors"  # what audits read, and what runs without noise write
OF_PAID = CHECKPOINTS / "vectors"  # what the ledger paid for, and the public texts beside it
OF_PUBLIC = CHECKPOINTS / "public_vectors"  # what public stages read
_AT_ONCE = 64  # public and synthetic texts
_HALF = " bf16"  # behind the fingerprint: such vectors are another encoder's


@dataclass(frozen=True)
class StoredEncoders:
    """One sentence encoder with two memories, so that what is kept of private texts meets no other text.

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
    """The memory for public and synthetic texts of a stage that makes rows which may leave, or others."""
    return OF_PAID if leaves else OF_MEASURED


def measuring(params: Params, others: Path = OF_MEASURED) -> StoredEncoders:
    """The encoder of what only compares texts, and reads all of them by it: in `compute.precision`."""
    return encoders(params, _AT_ONCE, others, half=True) if in_half(params) else encoders(params, others=others)


def in_half(params: Params) -> bool:
    """Whether that is half precision here."""
    return params.compute.precision != "float32" and halves()


def encoders(
    params: Params, batch: int | None = None, others: Path = OF_MEASURED, half: bool = False
) -> StoredEncoders:
    """The configured encoder; private texts that are new are read `batch` at once.

    Guarantee: with `others` `OF_PAID` or `OF_PUBLIC`, vectors of other texts are functions of public texts and of what
    the ledger paid for, to the last bit; with `OF_PUBLIC`, of public texts.

    Without a `batch` no guarantee rests on the last bits of the vectors. What is new is then read alone, so that every
    other stage can take it; what another one read together is taken, too. With `half` vectors are in half precision,
    and those of float32 are neither taken nor given.
    """
    folder = vouched(params, "models.encoder")
    encoder, mark = Encoder(folder, half=half), f"{fingerprint_of(folder)}{_HALF * half}"
    return remembered(encoder, mark, batch, others)


def remembered(encoder: ReadsTexts, mark: str, batch: int | None, others: Path) -> StoredEncoders:
    """Any encoder of texts with its memories; see `encoders`. `mark` tells it from all others."""
    stored = partial(KeptVectors, encoder.encode_batch, encoder.dimension)
    rows = stored(OF_ROWS, mark, batch or 1, takes_together=batch is None)

    def fresh(texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([encoder.encode_batch([text]) for text in texts])

    return StoredEncoders(rows, stored(others, mark, _AT_ONCE), fresh, mark)
