"""Settings of the next-token evaluation."""

from pydantic import Field

from palimpsest.models.settings import Schooling
from palimpsest.settings import Settings

NEXT_TOKEN = "next_token"  # the evaluator's name: the one that asks for no labels
_FROM_SCRATCH, _PRETRAINED = 5e-4, 5e-5  # learning rates: a pretrained model wants a tenth of a small new one's


class NextToken(Settings):
    """A small language model goes on learning on the rows, and is asked for the next token of real texts."""

    epochs: float = Field(default=3, gt=0, description="Passes over the rows.")
    batch: int = Field(default=32, ge=1, description="Rows per step.")
    learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate; null: 0.0005, or 0.00005 where models.next_token names one."""
    max_tokens: int = Field(default=512, ge=3, description="Tokens read of a text, within the model's context.")

    def schooling(self, named: bool) -> Schooling:
        """Return the training settings of the model; `named` where it was pretrained elsewhere."""
        rate = self.learning_rate or (_PRETRAINED if named else _FROM_SCRATCH)
        return Schooling(epochs=self.epochs, batch=self.batch, learning_rate=rate)
