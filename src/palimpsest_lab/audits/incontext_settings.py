"""Settings of the in-context evaluation."""

from collections.abc import Mapping, Sequence

from pydantic import Field, field_validator, model_validator

from palimpsest.errors import ParamsError
from palimpsest.settings import Settings

TEXT, LABEL = "{text}", "{label}"
CONTENT_FREE = ("N/A", "", "[MASK]")  # say nothing (Zhao et al. 2021): the answers to them calibrate those to the items


class InContext(Settings):
    """A judge, a language model, answers test items behind demonstrations from the rows; nothing is trained."""

    shots: tuple[int, ...] = Field(default=(0, 4, 16, 64), min_length=2)
    """Numbers of demonstrations, ascending from 0: zero-shot is what they have to beat."""
    draws: int = Field(default=5, ge=1, description="Random draws of the demonstrations for each number above 0.")
    items: int = Field(default=300, ge=1, le=300)
    """Test items to answer, at most; the same ones for every row."""
    batch: int = Field(default=32, ge=1)
    """Items side by side, at most, each on a copy of the demonstrations' keys and values; all copies have 1 GiB
    together."""
    demonstration_tokens: int = Field(default=40, ge=1)
    """Tokens kept of a demonstration's text; the rest is cut."""
    item_tokens: int = Field(default=60, ge=1, description="Tokens kept of a test item's text; cut ones are counted.")
    instruction: str = ""
    """Text before the demonstrations, with its line break; may be empty."""
    item: str = Field(default="{text}\nLabel:", description="Template of a text to answer; holds `{text}` once.")
    answer: str = " {label}\n\n"
    """Template of an answer behind its item; holds `{label}` once."""
    verbalisers: Mapping[str, str] | None = None
    """The word that stands for each label; null: the labels' own names. Unused where labels are free."""
    calibrate: bool = True
    """Calibrate answers by those to texts that say nothing; false: take them as they are, as paper 003 does for
    extraction."""
    answer_tokens: int = Field(default=8, ge=1)
    """Free labels: tokens of an answer, at most; longer ones are cut."""

    @field_validator("shots")
    @classmethod
    def _ascending_from_zero(cls, shots: tuple[int, ...]) -> tuple[int, ...]:
        if shots[0] != 0 or list(shots) != sorted(set(shots)):
            raise ValueError(f"shots ascends from 0 and names each number once, got {list(shots)}")
        return shots

    @model_validator(mode="after")
    def _templates_hold_their_places(self) -> "InContext":
        for name, template, place in (("item", self.item, TEXT), ("answer", self.answer, LABEL)):
            if template.count(place) != 1:
                raise ValueError(f"{name} must hold {place} once, got {template!r}")
        if not (self.item.partition(TEXT)[2] + self.answer.partition(LABEL)[0]).strip(" "):
            raise ValueError("between text and label something must stand, such as '\\nAnswer:' at the end of item")
        return self

    @field_validator("verbalisers")
    @classmethod
    def _words_differ(cls, verbalisers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        words = [word.strip() for word in (verbalisers or {}).values()]
        if len(set(words)) < len(words) or not all(words):
            raise ValueError(f"verbalisers needs a word of its own for each label, got {words}")
        return verbalisers

    def words(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The word that stands for each of the labels, in their order.

        Raises:
            ParamsError: `verbalisers` and the labels differ.
        """
        if self.verbalisers is None:
            return tuple(labels)
        if set(self.verbalisers) != set(labels):
            raise ParamsError(
                f"verbalisers and dataset.labels differ in {sorted(set(self.verbalisers) ^ set(labels))}.",
                "Give each label one word, or set verbalisers to null.",
            )
        return tuple(self.verbalisers[label] for label in labels)
