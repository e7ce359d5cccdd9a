"""The sentence encoder with a memory: a text that any stage has encoded is never encoded again."""

from dataclasses import dataclass
from functools import partial

from palimpsest.methods.shared.tools import Encode
from palimpsest.models.encoder import Encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.schema import Params
from palimpsest.records.vouched import fingerprint_of
from palimpsest.workspace import CHECKPOINTS, PRIVATE
from stages.vouching import vouched

# Both are outside DVC's outputs, so that a stopped stage leaves them.
OF_ROWS = PRIVATE / "vectors"
OF_OTHERS = CHECKPOINTS / "vectors"
_AT_ONCE = 64  # public and synthetic texts: no guarantee rests on the last bits of their vectors


@dataclass(frozen=True)
class StoredEncoders:
    """One sentence encoder with two memories, so that what is kept of private texts meets no other text.

    Attributes:
        rows: for private texts.
        others: for public and synthetic texts.
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


def encoders(params: Params, batch: int | None = None) -> StoredEncoders:
    """The configured encoder; private texts that are new are read `batch` at once.

    Without a `batch` no guarantee rests on the last bits of the vectors. What is new is then read alone, so that every
    other stage can take it; what another one read together is taken, too.
    """
    folder = vouched(params, "models.encoder")
    encoder, mark = Encoder(folder), fingerprint_of(folder)
    stored = partial(KeptVectors, encoder.encode_batch, encoder.dimension)
    rows = stored(OF_ROWS, mark, batch or 1, takes_together=batch is None)
    return StoredEncoders(rows, stored(OF_OTHERS, mark, _AT_ONCE), encoder.encode_alone, mark)
