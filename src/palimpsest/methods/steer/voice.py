"""The public language model of `steer`: it writes after a label's prompt, with moved states or not, and reads texts."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path

import numpy as np

from palimpsest.devices import HALF, dtype_of, exact_device
from palimpsest.methods.shared.base import coins
from palimpsest.methods.steer.declaration import SteerSettings
from palimpsest.models.activations import Activations, shift_states
from palimpsest.models.attention import blocks
from palimpsest.models.lm import load_lm
from palimpsest.models.prompts import heads_of
from palimpsest.models.tokens import specials
from palimpsest.models.writing import Start, Writer, decode_texts


class Voice:
    """A causal language model that is never trained.

    Guarantee: what it writes is a function of public settings, labels and descriptions, the seed, and the shift that it
    is given: post-processing of that shift.

    Attributes:
        reader: texts to hidden states after the block that is moved, each text after only BOS, whatever its label.
        told: everything that these states depend on besides the model.
    """

    def __init__(self, settings: SteerSettings, folder: Path, labels: Mapping[str, str], seed: int) -> None:
        """Load the model.

        Raises:
            ModelError: the folder holds no causal language model, or a label leaves no room for a text.
        """
        self._model, self._tokenizer = load_lm(folder, dtype_of(settings.precision))
        self._model.to(exact_device())  # type: ignore[arg-type]
        self._writer = Writer(
            self._model, self._tokenizer, settings.temperature, settings.top_p, line=settings.ends == "line"
        )
        self._settings, self._seed = settings, seed
        self._heads = heads_of(self._tokenizer, settings.prompt, labels)
        self._block = max(0, round(settings.depth * len(blocks(self._model))) - 1)
        head = (specials(self._tokenizer).bos,)
        self.reader = Activations(self._model, self._tokenizer, self._block, head, self._read)
        half = f", {HALF}" if settings.precision == HALF else ""
        self.told = f"block {self._block}, {self._read} tokens{half}"

    def texts(self, label: str, numbers: Sequence[int], shift: np.ndarray | None = None) -> list[str]:
        """Write the texts of these numbers after a label's prompt, side by side; some may be empty.

        Args:
            shift: the shift of states, shape (d,); None leaves them unchanged.
        """
        starts = [self._start(label, shift, number) for number in numbers]
        with nullcontext() if shift is None else shift_states(self._model, self._block, shift):
            return decode_texts(self._tokenizer, self._writer.go_on(starts))

    def _start(self, label: str, shift: np.ndarray | None, number: int) -> Start:
        """The beginning of a text; its random draws depend on the shift."""
        moved_by = "" if shift is None else blake2b(np.ascontiguousarray(shift).tobytes(), digest_size=8).hexdigest()
        stream = coins(self._seed, "steer", label, moved_by, number)
        return self._writer.start_text(self._heads[label], self._settings.max_tokens, stream)

    @property
    def _read(self) -> int:
        """The number of tokens of a text that are read."""
        return min(self._settings.max_tokens, self._writer.context - 1)
