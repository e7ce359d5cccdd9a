"""The result of a `dp_lm` fit: weights, tokenizer and label shares, all of them differentially private or public."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.methods.dp_lm.model import ConditionalLm
from palimpsest.methods.dp_lm.serialise import Serialiser, serialiser
from palimpsest.methods.shared.shares import divided
from palimpsest.models.words import BARE

_FACTS, _JUDGE = "artifact.json", "judge"


@dataclass(frozen=True)
class DpLmArtifact:
    """A fitted conditional language model.

    Attributes:
        tokenizer: the public base model's.
        shares: label -> share of the rows, from the noisy histogram or the public prior; in the public order.
        max_tokens: tokens of a text that it was trained on.
        loss_on: tokens that its loss counted, "text" or "all".
        template: the prompt template that came before a text.
        descriptions: label -> public description, for the template.
        judge: a separate model whose head judges texts; None where the head of `model` does.
    """

    model: ConditionalLm
    tokenizer: PreTrainedTokenizerBase
    shares: Mapping[str, float]
    max_tokens: int
    loss_on: str
    template: str = BARE
    descriptions: Mapping[str, str] = field(default_factory=dict)
    judge: ConditionalLm | None = None

    @property
    def judging(self) -> ConditionalLm:
        """The model whose head judges texts."""
        return self.model if self.judge is None else self.judge

    def serialiser(self) -> Serialiser:
        """Return a serialiser that turns rows into token sequences as in training."""
        labels = {label: self.descriptions.get(label, "") for label in self.shares}
        return serialiser(self.tokenizer, labels, self.max_tokens, self.loss_on, self.template)

    def counts(self, rows: int) -> dict[str, int]:
        """`rows` rows split over the labels by their shares (largest remainders; ties to the earlier label)."""
        return divided(rows, self.shares)

    def save(self, folder: Path) -> None:
        """Write `lm/`, `head.safetensors` and `artifact.json`, and `judge/` for one of its own, all or nothing."""
        with atomic_path(folder) as draft:
            draft.mkdir()
            self.model.save(draft, self.tokenizer)
            if self.judge is not None:
                self.judge.save(draft / _JUDGE, self.tokenizer)
            facts = {"shares": dict(self.shares), "max_tokens": self.max_tokens, "loss_on": self.loss_on}
            facts |= {"template": self.template, "descriptions": dict(self.descriptions)}
            write_json(draft / _FACTS, {"method": "dp_lm", **facts})

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> "DpLmArtifact":
        """The artifact that `save` wrote, its language model's weights of this type; those of a judge are float32."""
        model, tokenizer = ConditionalLm.load(folder, dtype)
        facts = read_json(folder / _FACTS)
        told = facts["template"], facts["descriptions"]
        judge = ConditionalLm.load(folder / _JUDGE)[0] if (folder / _JUDGE).is_dir() else None
        return cls(model, tokenizer, facts["shares"], facts["max_tokens"], facts["loss_on"], *told, judge)
