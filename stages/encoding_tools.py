"""The artifacts of a method, including the sentence encoder with its memories."""

from dataclasses import dataclass
from pathlib import Path

from palimpsest.methods.shared.tools import Encoders, Reads, ReadsTexts
from palimpsest.records.vouched import fingerprint_of
from palimpsest.workspace import CHECKPOINTS, PRIVATE
from stages.encoding import encoders, memory_of, remembered
from stages.spenders import Spender
from stages.tools import Artifacts

# As the memories of vectors (`stages.encoding`): the last bits of a local model's answer depend on what is asked beside
# it.
OF_PAID_ASKS, OF_OTHER_ASKS = CHECKPOINTS / "answers", PRIVATE / "answers"


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
        return remembered(reader, mark, batch, memory_of(leaves=self.leaves))
