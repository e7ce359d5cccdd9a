"""The metered query of few-shot generation (Tang et al. 2024): every token is the argmax of a noisy average.

For each token a fresh Poisson sample of records, one of each person, is spread over M prompts, each record by a draw of
its own; the probabilities of the next token are averaged over the prompts and get Gaussian noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from dp_accounting.dp_event import DpEvent

from palimpsest.prediction.contexts import Contexts, head_of, logits_of
from palimpsest.prediction.decoding import MeteredWriting, WrittenSoFar, exclude_ends
from palimpsest.prediction.mechanism import averaged_sum, probabilities
from palimpsest.prediction.sampling import SCHEME, Sampling
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import Kept, Meter, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, select_one_each
from palimpsest.progress import counter


@bounds_persons
@register_query
@dataclass(frozen=True, kw_only=True)
class WriteShots(MeteredWriting):
    """Demonstrations of one label, token by token.

    Guarantee: for adding or removing one unit of privacy, a record or a person with all their rows, this is `steps`
    adaptive Poisson-subsampled Gaussian mechanisms. One keyed row stands for a person (`one_each`), and its label is
    the person's, so labels are disjoint parts of the persons. For each token every row that stands is drawn by a coin
    of its own and put into one of M prompts by a draw of its own. One unit more changes only the distribution of one
    prompt, by at most sqrt(2) in L2, whatever else is in it. The average over the fixed M has noise of `noise_std` on
    each of the public top-k tokens, and the argmax is post-processing. Each token begins after the meter counted it.
    One row of a person is as much as a prompt has room for: more would push out rows of others.

    The other prompts' distributions keep their bits: every forward pass has the public `shape`, at which
    `contexts.require_exact` tried the model, and the sum is exact. Where the device could not give equal bits, the
    noise allows for `Sampling.rounding`, which was measured on public prompts and is an assumption.

    Attributes:
        shape: of every forward pass over prompts; a record that would pass its longest is left out of its prompt.
    """

    sampling: Sampling
    label: str  # whose demonstrations; "" where the task has no labels
    allowed: torch.Tensor  # tokens that may follow, bool (vocabulary,)
    ends: frozenset[int]  # ids that end a demonstration

    @property
    def stores_answer(self) -> bool:
        """Finished demonstrations are kept for a retry; a reference's are not private and stay out of the ledger."""
        return self.sampling.noise_multiplier > 0

    @property
    def partition(self) -> tuple[str, str] | None:
        """The records, or persons, of its label; all where the task has no labels."""
        return (SCHEME, self.label) if self.label else None

    @property
    def steps(self) -> int:
        """How many steps one charge pays for."""
        return self.sampling.steps

    def event(self) -> DpEvent:
        return self.sampling.event()

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> dict[str, Any]:
        """Return the demonstrations written for the label."""
        mine = [row for row in select_one_each(rows) if not self.label or row.label == self.label]
        shots = self.prompter.contexts(self.label, [self.prompter.join_record(row.text, row.label) for row in mine])
        kept = Kept(self.checkpoints, meter)
        earlier = kept.load() or {"examples": [], "drawn": 0}
        examples, drawn = earlier["examples"], earlier["drawn"]
        text: list[int] = []
        used = meter.begun
        shown = counter(name=self.name, total=self.sampling.rows, private=not self.stores_answer, unit="row")
        while len(examples) < self.sampling.rows and used < meter.limit:
            if used >= meter.begun:
                kept.save({"examples": examples, "drawn": drawn})
                meter.begin(min(self.stride, meter.limit - meter.begun))
            used += 1
            drawn += 1
            token = self._token(shots, text, noise)
            text = text if token in self.ends else [*text, token]
            if token in self.ends or len(text) >= self.sampling.longest:
                examples.append(text)
                text = []
            shown(len(examples))
        return self.summarise_batch(self.label, WrittenSoFar(examples, text, used=drawn, drawn=drawn))

    @torch.no_grad()
    def _token(self, shots: Sequence[Sequence[int]], text: Sequence[int], noise: NoiseSource) -> int:
        """Draw one token: sample, spread, average, add noise, take the largest."""
        sampling = self.sampling
        chosen = noise.bernoulli(len(shots), sampling.rate).nonzero()[0].tolist() if shots else []
        places = noise.integers(len(chosen), sampling.prompts).tolist() if chosen else []
        prompts: list[list[int]] = [list(self.prompter.public[self.label]) for _ in range(sampling.prompts)]
        for shot, place in zip(chosen, places, strict=True):
            if len(prompts[place]) + len(shots[shot]) + sampling.longest <= self.shape.most:
                prompts[place] += shots[shot]
        columns = self._columns(self._read([[*self.prompter.public[self.label], *text]])[0], not text)
        likely = self._read([[*prompt, *text] for prompt in prompts])[:, columns]
        alone = torch.ones(sampling.prompts, dtype=torch.long, device=likely.device)
        noisy = averaged_sum(likely, alone, 1.0) / sampling.prompts
        noise.add_gaussian(noisy, sampling.noise_std)
        return int(columns[noisy.argmax()])

    def _read(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return next-token probabilities (n, vocabulary); public and private prompts come in separate passes."""
        shape = replace(self.shape, rows=min(self.shape.rows, len(prompts)))
        hidden = Contexts(self.model, prompts, shape).hidden(0, len(prompts))
        blocks = logits_of(head_of(self.model), hidden, shape.rows)
        return torch.cat([probabilities(logits) for logits in blocks])

    def _columns(self, public: torch.Tensor, first: bool) -> torch.Tensor:
        """Return the likeliest public tokens; a demonstration does not begin with its end."""
        usable = exclude_ends(self.allowed, self.ends) if first else self.allowed
        return public.masked_fill(~usable, -1.0).topk(min(self.sampling.top_k, int(usable.sum()))).indices
