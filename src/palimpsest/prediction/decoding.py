"""Writing from batches of private contexts, many batches at once, within what each batch may spend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel

from palimpsest import validate
from palimpsest.errors import LedgerError
from palimpsest.models.grammar import Grammar, Spelling
from palimpsest.prediction.contexts import Contexts, Head, Shape, logits_of
from palimpsest.prediction.mechanism import Clipping, SparseVector, averaged_sum, draw, probabilities
from palimpsest.prediction.prompts import Prompter
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow


@dataclass(frozen=True)
class Rules:
    """How tokens are drawn; all of it public.

    Attributes:
        clipping: how private logits enter a score.
        vector: the sparse vector that passes over tokens without cost, or None.
        public_temperature: divides the public logits of a token that was passed over.
        allowed: tokens that may follow, bool (vocabulary,).
        ends: ids that end an example; none may come first.
        tokens: r, the private tokens that each batch may draw.
        longest: most tokens of an example.
        most: most tokens of a batch, free ones included.
        grammar: what every example is a record of; None where examples are plain text.
    """

    clipping: Clipping
    vector: SparseVector | None
    public_temperature: float
    allowed: torch.Tensor
    ends: frozenset[int]
    tokens: int
    longest: int
    most: int
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        validate.require_positive(tokens=self.tokens, longest=self.longest, most=self.most)

    def follow(self, first: bool) -> torch.Tensor:
        """Return the tokens that may come now, bool (vocabulary,)."""
        return exclude_ends(self.allowed, self.ends) if first else self.allowed


def exclude_ends(allowed: torch.Tensor, ends: frozenset[int]) -> torch.Tensor:
    """Return the tokens that may come first, bool (vocabulary,): an example does not begin with its end."""
    return allowed.index_fill(0, torch.tensor(sorted(ends), device=allowed.device), False)


@dataclass
class WrittenSoFar:
    """The tokens that a batch has written so far; all of it is the mechanism's output.

    Attributes:
        examples: tokens of each finished example, without its end.
        text: tokens of the example under way.
        used: private tokens that count as drawn.
        drawn: tokens in all, free ones included.
    """

    examples: list[list[int]] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    used: int = 0
    drawn: int = 0

    def take(self, token: int, rules: Rules) -> bool:
        """Append a token; return whether the example goes on."""
        self.drawn += 1
        if token not in rules.ends:
            self.text.append(token)
        goes_on = token not in rules.ends and len(self.text) < rules.longest
        if not goes_on:
            self.examples.append(self.text)
            self.text = []
        return goes_on

    def may_continue(self, rules: Rules) -> bool:
        """Return whether the batch may draw more."""
        return self.used < rules.tokens and self.drawn < rules.most


@dataclass(frozen=True, kw_only=True)
class MeteredWriting:
    """A query that writes token by token with a public language model, each token counted before it is drawn.

    Attributes:
        name: the charge's name.
        shape: the shape of every forward pass over private contexts.
        stride: private tokens between two entries in the ledger; a stopped run loses at most that many per batch.
        checkpoints: where a stopped run leaves what was written; None keeps nothing.
    """

    name: str
    model: PreTrainedModel
    prompter: Prompter
    shape: Shape
    stride: int
    checkpoints: Path | None = None
    reads_model: ClassVar[bool] = True

    @property
    def subject(self) -> object:
        """The prompts that texts are written after."""
        prompts, frames = self.prompter, self.prompter.private.items()
        private = {label: (frame.before, frame.after) for label, frame in frames}
        return prompts.public, private, prompts.text_tokens, prompts.joint

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> list[dict[str, Any]]:
        """Refuse to run without a meter.

        Raises:
            LedgerError: always.
        """
        raise LedgerError("Text is written in steps that a meter counts.", "Ask for it through a view.")

    def summarise_batch(self, label: str, own: WrittenSoFar) -> dict[str, Any]:
        """Return the label, the texts of finished examples, the unfinished text, and how many tokens were drawn."""
        decode = self.prompter.tokenizer.decode
        return {
            "label": label,
            "examples": [str(decode(tokens)).strip() for tokens in own.examples],
            "rest": str(decode(own.text)).strip(),
            "private": own.used,
            "drawn": own.drawn,
        }


@dataclass(frozen=True)
class Batches:
    """The contexts of B batches.

    Public contexts are read in passes of their own, whose shapes are public: beside private ones the rounding of their
    logits would tell how many there are, and a token at the edge of the candidates would tell it for certain.

    Attributes:
        private: the private contexts of each batch, batch after batch; None where there are none.
        public: the public context of each batch.
        bounds: batch b owns the private contexts from bounds[b] to bounds[b + 1]; length B + 1.
        persons: how many contexts the person behind each private context has, int64 (contexts,); 1 where the unit of
            privacy is a record.
        head: turns hidden states into logits.
        rows: contexts that one forward pass reads.
    """

    private: Contexts | None
    public: Contexts
    bounds: Sequence[int]
    persons: torch.Tensor
    head: Head
    rows: int

    def public_logits(self) -> torch.Tensor:
        """Return logits (B, vocabulary) of the public contexts, float32."""
        return self.head(self.public.hidden(0, len(self.bounds) - 1))

    def private_sum(
        self, batch: int, columns: torch.Tensor | None, of: Callable[[torch.Tensor], torch.Tensor], bound: float
    ) -> torch.Tensor:
        """Return the sum over a batch's persons of the mean of `of` over their contexts, float64 (k,).

        Args:
            columns: tokens whose logits are wanted, int64 (k,); None for all.
            of: a function of each row of logits by itself, (n, k) -> (n, k).
            bound: the largest size of its values.
        """
        first, last = self.bounds[batch], self.bounds[batch + 1]
        width = len(self.head.weight if columns is None else columns)
        total = torch.zeros(width, dtype=torch.float64, device=self.head.weight.device)
        if self.private is not None:
            hidden, persons = self.private.hidden(first, last), self.persons[first:last]
            for logits in logits_of(self.head, hidden, self.rows, columns):
                total += averaged_sum(of(logits), persons[: len(logits)], bound)
                persons = persons[len(logits) :]
        return total


class BatchWriter:
    """Draws tokens for all batches side by side.

    Guarantee: `step` draws at most one private token a batch, and `WrittenSoFar.used` counts each before it is drawn.
    Given what was written, the scores of a batch depend on its own private contexts and on public ones alone.

    With a grammar, the candidates are the allowed tokens among which public logits choose as before. That set is a
    function of the public schema and of what the batch has written, which is the mechanism's output, so it is public
    before a private context is read. Contributions are cut to the clip token by token, on whatever candidates there
    are: fewer of them leave each score's sensitivity at c / s, and so the draw's range. The sparse vector's distance is
    over the whole vocabulary, as without a grammar; a token that it passes over is drawn from the public logits of the
    same candidates. Where the grammar leaves one candidate, it is written without reading a private context: no query
    is asked, and nothing is counted.
    """

    def __init__(self, batches: Batches, rules: Rules, written: list[WrittenSoFar], source: NoiseSource) -> None:
        self._batches, self._rules, self._written, self._source = batches, rules, written, source
        self._thresholds: dict[int, float] = {}
        self._records: dict[int, Spelling | None] = {}
        counts = [after - before for before, after in pairwise(batches.bounds)]
        owners = [batch for batch, count in enumerate(counts) for _ in range(count)]
        self._owners = torch.tensor(owners, dtype=torch.long, device=batches.head.weight.device)

    @torch.no_grad()
    def step(self, active: Sequence[int]) -> None:
        """Draw and append the next token of each active batch."""
        public = self._batches.public_logits()
        tokens, goes_on, alive = ([0] * len(self._written) for _ in range(3))
        for batch in active:
            tokens[batch] = self._draw_next(batch, public[batch])
            if record := self._records.get(batch):
                record.take(tokens[batch])
            goes_on[batch] = self._written[batch].take(tokens[batch], self._rules)
            alive[batch] = self._written[batch].may_continue(self._rules)
        device = self._owners.device
        told = torch.tensor([tokens, goes_on, alive], device=device)  # (3, batches)
        self._batches.public.step(told[0], told[1].bool(), told[2].bool())
        if self._batches.private is not None:
            spread = told[:, self._owners]
            self._batches.private.step(spread[0], spread[1].bool(), spread[2].bool())

    def _draw_next(self, batch: int, public: torch.Tensor) -> int:
        follow = self._follow(batch)
        columns = self._rules.clipping.candidates(public, follow).nonzero().squeeze(1)
        if self._rules.grammar and len(columns) == 1:
            return int(columns[0])
        if self._rules.vector and self._is_free(batch, public, self._rules.vector):
            return int(columns[draw(public[columns] / self._rules.public_temperature, self._source)])
        self._written[batch].used += 1
        self._thresholds.pop(batch, None)
        return self._draw_private(batch, public[columns], columns)

    def _follow(self, batch: int) -> torch.Tensor:
        """Return the tokens with which a batch's example may go on, bool (vocabulary,)."""
        first, rules = not self._written[batch].text, self._rules
        follow = rules.follow(first)
        if rules.grammar is None:
            return follow
        if first:
            self._records[batch] = rules.grammar.begin(rules.longest)
        return follow & rules.grammar.allowed([self._records[batch]])[0].to(follow.device)

    def _is_free(self, batch: int, public: torch.Tensor, vector: SparseVector) -> bool:
        """Return whether the sparse vector passes over this token."""
        if batch not in self._thresholds:
            self._thresholds[batch] = vector.new_threshold(self._source)
        total = self._batches.private_sum(batch, None, probabilities, 1.0)
        return vector.passes(vector.distance(total, probabilities(public)), self._thresholds[batch], self._source)

    def _draw_private(self, batch: int, chosen: torch.Tensor, columns: torch.Tensor) -> int:
        """Draw a token of these columns, whose public logits are `chosen`."""
        clipping = self._rules.clipping
        total = self._batches.private_sum(
            batch, columns, lambda logits: clipping.contributions(logits, chosen), clipping.clip
        )
        return int(columns[draw(clipping.scores(total, chosen), self._source)])
