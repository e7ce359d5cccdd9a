"""The artifacts that a method is built with, the sentence encoder with its memories among them."""

from dataclasses import dataclass
from pathlib import Path

from palimpsest.methods.shared.tools import Encoders, Reads, ReadsTexts
from palimpsest.records.vouched import fingerprint_of
from palimpsest.workspace import CHECKPOINTS, PRIVATE
from stages.encoding import encoders, memory_of, remembered
from stages.spenders import Spender
from stages.tools import Artifacts

# As the memories of vectors (`stages.encoding`): a local model's answer has its last bits from what is asked beside it.
OF_PAID_ASKS, OF_OTHER_ASKS = CHECKPOINTS / "answers", PRIVATE / "answers"


@dataclass(frozen=True)
class EncodingTools(Artifacts):
    """What a method is built with that reads texts by embedding."""

    spender: Spender

    @property
    def leaves(self) -> bool:
        """Whether the rows may leave: neither a reference's nor made under noise that a seed fixes."""
        return self.spender.target.purpose == "release" and self.params.testing.noise_seed is None

    @property
    def answers(self) -> Path:
        """What language models answered for these rows; what they wrote beside exact counts meets no release."""
        return (OF_PAID_ASKS if self.leaves else OF_OTHER_ASKS) / f"{self.spender.name}.sqlite"

    def encoders(self, batch: int) -> Encoders:
        """The configured encoder; private texts that are new are read `batch` at once."""
        self.require(Reads.ENCODER)
        return encoders(self.params, batch, memory_of(leaves=self.leaves))

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """A public language model's own reader of texts; private texts that are new are read `batch` at once."""
        mark = f"{fingerprint_of(self.base())} {told}"
        return remembered(reader, mark, batch, memory_of(leaves=self.leaves))
