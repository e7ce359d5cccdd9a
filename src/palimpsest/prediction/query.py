"""The metered query of private prediction: text written from one wave of batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from dp_accounting.dp_event import DpEvent

from palimpsest import validate
from palimpsest.prediction.cells import Cells, part
from palimpsest.prediction.contexts import Contexts, head_of
from palimpsest.prediction.decoding import Batches, BatchWriter, MeteredWriting, Rules, WrittenSoFar
from palimpsest.prediction.mechanism import EXACT, Rounding, wave_event
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import Kept, Meter, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.progress import counter
from palimpsest.shards import Posts


@bounds_persons
@register_query
@dataclass(frozen=True, kw_only=True)
class WriteWave(MeteredWriting):
    """Text written from the batches `first` to `last`, r private tokens each, all batches side by side.

    Guarantee: for adding or removing one unit of privacy, a record or a person with all their rows, this is r adaptive
    compositions of `token_rho`. The unit is in one batch (`Cells`), and given what was written no other batch's
    scores depend on it. Of its own batch its contexts, averaged within the person, move the summed contributions by at
    most the clip and the summed probabilities by at most 1 in L1 (`mechanism.averaged_sum`), for every token anew and
    given what was written before, which is the mechanism's output. Waves hold different batches and compose in
    parallel. A private token, and the round of the sparse vector before it, begins only after the meter counted it for
    all batches; an attempt that goes on counts for every batch what the meter counted, whether or not the batch had
    drawn it. With epsilon infinity nothing is clipped that matters: a reference run, not private.

    A private context's logits do not depend on those that are computed beside it: every forward pass has the public
    `shape`, at which `contexts.require_exact` tried the model for equal bits, and sums are exact. Where the device
    could not give equal bits, `rounding` charges an error that was measured on public prompts, which is an assumption.
    Nor do they depend on the worker that computes them, where there are several. Public contexts are computed by
    themselves, in this process. Running time and memory are not covered.

    Attributes:
        cells: the assignment of records or persons to batches.
        first: the first batch of the wave.
        last: one past its last batch; batches that do not exist write nothing.
        reference: True where the charge is not private.
        rounding: the rounding of logits as it is charged.
        posts: workers that read private contexts; see `contexts.find_agreeing_workers`.
    """

    rules: Rules
    cells: Cells
    first: int
    last: int
    reference: bool = False
    rounding: Rounding = EXACT
    posts: Posts | None = None

    def __post_init__(self) -> None:
        if self.rounding.error:
            validate.require_in_range(1, self.rounding.batches, batches=len(self.labels) or 1)

    @property
    def stores_answer(self) -> bool:
        """Whether a finished wave is kept for a retry: a reference's texts, not private, stay out of the ledger."""
        return not self.reference

    @property
    def partition(self) -> tuple[str, str]:
        """The batches that it reads."""
        return part(self.first, self.last)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each batch of the wave; there may be fewer batches than the wave has room for."""
        return self.cells.labels[self.first : self.last]

    @property
    def steps(self) -> int:
        """r: the number of private tokens of each batch."""
        return self.rules.tokens

    def event(self) -> DpEvent:
        """Compose r tokens; the batches of a wave hold different records, or different persons."""
        return wave_event(self.rules.clipping, self.rules.vector, self.steps, self.reference, self.rounding)

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> list[dict[str, Any]]:
        """Return what each batch wrote; a stopped attempt's examples are kept, its unfinished ones are dropped."""
        kept = Kept(self.checkpoints, meter)
        written = self._load_earlier(kept, meter.begun)
        if not written:
            return []
        writer = BatchWriter(self._batches(rows), self.rules, written, noise)
        total = self.steps * len(written)
        shown = counter(name=self.name, total=total, private=self.reference, unit="token")
        while active := [batch for batch, own in enumerate(written) if own.may_continue(self.rules)]:
            if max(written[batch].used for batch in active) >= meter.begun:
                kept.save([{"examples": own.examples, "drawn": own.drawn} for own in written])
                meter.begin(min(self.stride, meter.limit - meter.begun))
            writer.step(active)
            shown(sum(own.used for own in written))
        return [self.summarise_batch(*pair) for pair in zip(self.labels, written, strict=True)]

    def _batches(self, rows: Sequence[PrivateRow]) -> Batches:
        labels = self.labels
        texts: list[list[str]] = [[] for _ in labels]
        counts: list[list[int]] = [[] for _ in labels]
        for unit in group_by_person(rows):
            batch, own = self.cells.of(unit) or (-1, [])
            if self.first <= batch < self.last:
                cell = batch - self.first
                texts[cell] += [self.prompter.join_record(row.text, row.label) for row in own]
                counts[cell] += [len(own)] * len(own)
        bounds = [0, *accumulate(map(len, texts))]
        pairs = zip(labels, texts, strict=True)
        prompts = [prompt for label, own_texts in pairs for prompt in self.prompter.contexts(label, own_texts)]
        heads = [self.prompter.public[label] for label in labels]
        public = Contexts(self.model, heads, replace(self.shape, rows=min(self.shape.rows, len(heads))))
        private = Contexts(self.model, prompts, self.shape, self.posts) if prompts else None
        persons = torch.tensor([count for own in counts for count in own], dtype=torch.long, device=self.model.device)
        return Batches(private, public, bounds, persons, head_of(self.model), self.shape.rows)

    def _load_earlier(self, kept: Kept, begun: int) -> list[WrittenSoFar]:
        """Return what an earlier attempt wrote, every batch as if it had drawn all that the meter counted."""
        earlier = kept.load()
        if earlier is None:
            return [WrittenSoFar(used=begun) for _ in self.labels]
        return [WrittenSoFar(examples=own["examples"], used=begun, drawn=own["drawn"]) for own in earlier]
