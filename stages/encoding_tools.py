"""The artifacts that a method is built with, the sentence encoder with its memories among them."""

from dataclasses import dataclass

from palimpsest.methods.shared.tools import Encoders, Reads, ReadsTexts
from palimpsest.records.vouched import fingerprint_of
from stages.encoding import encoders, memory_of, remembered
from stages.spenders import Spender
from stages.tools import Artifacts


@dataclass(frozen=True)
class EncodingTools(Artifacts):
    """What a method is built with that reads texts by embedding."""

    spender: Spender

    def encoders(self, batch: int) -> Encoders:
        """The configured encoder; private texts that are new are read `batch` at once."""
        self.require(Reads.ENCODER)
        return encoders(self.params, batch, memory_of(self.spender.target.purpose))

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """A public language model's own reader of texts; private texts that are new are read `batch` at once."""
        mark = f"{fingerprint_of(self.base())} {told}"
        return remembered(reader, mark, batch, memory_of(self.spender.target.purpose))
