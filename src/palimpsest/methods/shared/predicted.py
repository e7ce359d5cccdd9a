"""Shared by methods that write from private contexts: the tokens that may be drawn, and the written rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.methods.shared.base import Made
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.means import ClassSums
from palimpsest.methods.shared.postprocess import Filter
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.tokens import line_ends, specials
from palimpsest.prediction.prompts import split_record
from palimpsest.privacy.planned import LOGIT_ROUNDING
from palimpsest.records.record import Record

_JOINT = "joint"  # what removed an example that is no label with a text


@dataclass(frozen=True)
class Predicted:
    """The output of all batches.

    Attributes:
        batches: for each its label, `examples`, the unfinished `rest`, tokens `drawn`, and how many of them `private`.
        keeps_unfinished: whether examples that were unfinished when the budget ended become rows, too.
        sums: noisy sum of each label's embeddings, if asked for.
    """

    batches: tuple[Mapping[str, Any], ...]
    keeps_unfinished: bool
    sums: ClassSums | None = None

    @property
    def drawn(self) -> int:
        """Tokens in all."""
        return sum(batch["drawn"] for batch in self.batches)

    @property
    def private_share(self) -> float:
        """Share of all tokens that cost budget."""
        return sum(batch["private"] for batch in self.batches) / max(1, self.drawn)

    @property
    def examples(self) -> Iterator[Record]:
        """The examples with their batches' labels, without those that have no word."""
        for batch in self.batches:
            texts = [*batch["examples"], *([batch["rest"]] if self.keeps_unfinished else [])]
            yield from (Record(text, batch["label"] or None) for text in texts if text)

    def made(
        self,
        filters: Filters,
        measure: Callable[[], Filter],
        joint: str | None,
        rounding: float | None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> Made:
        """Return the examples that the filters keep, and the facts reported about them; see `chain`.

        `joint` stands between a free label and its text; examples without it are removed first. With a schema, so is
        what is no record of it.
        """
        examples, removing = list(self.examples), build_filters(filters, measure, json_schema)
        told = {"tokens": self.drawn, "private_share": self.private_share}
        assumptions = () if rounding is None else (LOGIT_ROUNDING,)
        pairs = examples if joint is None else _pairs(examples, joint)
        rows = apply_filters(removing, pairs)
        unpaired = {} if joint is None else {_JOINT: len(examples) - len(pairs)}
        return Made(rows, len(examples), unpaired | removing.removed, told, assumptions=assumptions)


def _pairs(examples: Sequence[Record], joint: str) -> list[Record]:
    return [Record(*pair) for one in examples if (pair := split_record(one.text, joint)) is not None]


def ends_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: str) -> frozenset[int]:
    """Tokens that end an example: the model's own ends of text, and those with a new line where a line is an example.

    Ending at such a token is post-processing of a drawn token: every token keeps its probability.
    """
    own = getattr(model.generation_config, "eos_token_id", None)
    tokens = {specials(tokenizer).eos, *(own if isinstance(own, (list, tuple)) else [own] if own is not None else [])}
    return frozenset(tokens) | (line_ends(tokenizer) if ends == "line" else frozenset())


def allowed_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int] | frozenset[int]
) -> torch.Tensor:
    """Tokens that may be drawn, bool (logits,): the tokenizer's, except control tokens that do not end an example."""
    allowed = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    allowed[: len(tokenizer)] = True
    allowed[sorted(specials(tokenizer).control - frozenset(ends))] = False
    return allowed.to(model.device)
