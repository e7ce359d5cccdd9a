"""The public language model of `phrases`: it writes after prompts that show a label and some phrases."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from palimpsest.devices import dtype_of, exact_device
from palimpsest.methods.phrases.declaration import PhrasesSettings
from palimpsest.methods.phrases.plan import UNLABELLED
from palimpsest.methods.shared.base import coins
from palimpsest.models.lm import load_lm
from palimpsest.models.prompts import heads_of, require_slots
from palimpsest.models.writing import Start, Writer, decode_texts

_SLOT = "{phrases}"


class Voice:
    """A causal language model that is never trained.

    Guarantee: what it writes is a function of public settings, labels and descriptions, the seed, and the phrases that
    it is given: post-processing of these.

    Attributes:
        seed: seeds its random draws.
    """

    def __init__(self, settings: PhrasesSettings, folder: Path, labels: Mapping[str, str], seed: int) -> None:
        """Load the model, and try the prompts without a phrase.

        Raises:
            ModelError: the folder holds no causal language model, or a prompt leaves no room for a text.
            ParamsError: a prompt names an unknown slot.
        """
        model, self._tokenizer = load_lm(folder, dtype_of(settings.precision))
        model.to(exact_device())  # type: ignore[arg-type]
        self._prompt, self._most, self.seed = settings.prompt, settings.max_tokens, seed
        self._writer = Writer(
            model, self._tokenizer, settings.temperature, settings.top_p, line=settings.prompt.ends == "line"
        )
        self._labels = dict(labels) or {UNLABELLED: ""}
        for name, template in (("about", self._prompt.about.replace(_SLOT, "")), ("plain", self._prompt.plain)):
            require_slots(name, template, 0)
            for head in heads_of(self._tokenizer, template, self._labels).values():
                self._writer.room(head, self._most)

    def texts(self, asked: Sequence[tuple[str, int, Sequence[str]]]) -> list[str]:
        """A text for each label, number and phrases, written side by side; some may be empty.

        Texts of one label with different numbers have independent random draws.
        """
        return decode_texts(self._tokenizer, self._writer.go_on([self._start(*one) for one in asked]))

    def _start(self, label: str, number: int, phrases: Sequence[str]) -> Start:
        template = self._prompt.about.replace(_SLOT, ", ".join(phrases)) if phrases else self._prompt.plain
        head = heads_of(self._tokenizer, template, {label: self._labels[label]})[label]
        return self._writer.start_text(head, self._most, coins(self.seed, "text", label, number))
