"""Steering without gradients: the likeliest next tokens, reweighted by how likely they make the wanted label.

Yang and Klein 2021 ("FUDGE"): P(token | text, label) is proportional to P(token | text) P(label | text, token). Both
ways here use the discriminator of the fitted model; all of it is post-processing and costs no privacy.

- `FudgeWalk` reads every candidate with the model. All candidates of a text go through one forward pass as one row:
  each sees the past and itself but no other candidate, so the past is neither copied nor read again.
- `StateWalk` uses only the present state: the candidate's token embedding joins the mean of the embeddings, and the
  mean hidden state stays that of the text so far. It needs a discriminator that reads both.

EOS is not a token of the text: as a candidate it is judged by the text so far.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from palimpsest.methods.dp_lm.decoding import Past, StepDraw, begin, cache_of, extend_mask, forward, past_of, select
from palimpsest.methods.dp_lm.model import ConditionalLm, HeadShape, widen
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.models.attention import masks_of
from palimpsest.models.tokens import Specials


class _CandidatesWalk:
    """Texts after their prompts, whose next tokens are drawn from a few candidates for a target label each."""

    def __init__(
        self,
        model: ConditionalLm,
        prompts: Sequence[Sequence[int]],
        targets: Sequence[int],
        ids: Specials,
        settings: DpLmGenerate,
    ) -> None:
        self._model, self._settings, self._eos = model, settings, ids.eos
        self._last, past, self._mask = begin(model, prompts, ids.pad)
        self._cache = cache_of(past)
        self._targets = torch.tensor(targets, device=self._last.device)
        self._written = 0
        self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _read_last(self) -> torch.Tensor:
        """Hidden state (B, width) of the newest token, which joins the past."""
        hidden = forward(self._model, self._model.lm.get_input_embeddings()(self._last), self._cache, self._mask)
        self._mask = extend_mask(self._mask)
        return hidden

    def _pick_candidates(self, hidden: torch.Tensor, draw: StepDraw) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and ids of the candidates after hidden states (B, width), each (B, candidates)."""
        log_probs = draw.mask_banned(self._model.logits(hidden) / self._settings.temperature)
        return log_probs.topk(min(self._settings.candidates, log_probs.shape[1]), dim=-1)

    def _weigh(self, features: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the candidates, (B, k), once the discriminator has weighed them."""
        labels = functional.log_softmax(self._model.head(features), dim=-1)
        wanted = labels.gather(2, self._targets[:, None, None].expand(*log_probs.shape, 1)).squeeze(2)
        return functional.log_softmax(log_probs + self._settings.strength * wanted, dim=-1)


class FudgeWalk(_CandidatesWalk):
    """The next token is drawn from the candidates, each read by the model and judged by the discriminator."""

    @torch.no_grad()
    def _start(self) -> None:
        self._hidden = self._read_last()
        self._past = past_of(self._cache)
        self._kept = torch.zeros(len(self._last), 1, self._model.head.shape.inputs, device=self._last.device)

    def step(self, draw: StepDraw) -> torch.Tensor:
        """Read the candidates, weigh them, and continue with the one that is drawn."""
        log_probs, tokens = self._pick_candidates(self._hidden, draw)
        hidden, past = read_candidates(self._model, tokens, self._past, self._mask)
        features = self._model.features(hidden, self._model.embed(tokens))
        shape = self._model.head.shape
        read = read_with(shape, self._kept, features, self._written, tokens == self._eos)
        column = draw.pick(self._weigh(read, log_probs))
        self._hidden = _gather_column(hidden, column)
        self._past = tuple(_keep_candidate(*layer, self._past[0][0].shape[2], column) for layer in past)
        self._kept = shape.join(self._kept, _gather_column(features, column)[:, None])
        self._mask, self._written = extend_mask(self._mask), self._written + 1
        return tokens.gather(1, column[:, None]).squeeze(1)

    def keep(self, rows: torch.Tensor) -> None:
        """Drop the other texts."""
        self._hidden, self._mask, self._kept = self._hidden[rows], self._mask[rows], self._kept[rows]
        self._past, self._targets = select(self._past, rows), self._targets[rows]


class StateWalk(_CandidatesWalk):
    """The next token is drawn from the candidates, judged from the state before them."""

    def _start(self) -> None:
        self._embedded = self._states = torch.zeros_like(widen(self._model.embed(self._last)))[:, None]

    def step(self, draw: StepDraw) -> torch.Tensor:
        """Weigh the candidates by the change that their embeddings would make, and continue with the one drawn."""
        model, hidden = self._model, self._read_last()
        if self._written:
            self._states = self._states + hidden[:, None]
        log_probs, tokens = self._pick_candidates(hidden, draw)
        embedded = model.embed(tokens)
        means = read_with(model.head.shape, self._embedded, embedded, self._written, tokens == self._eos)
        features = model.features((self._states / max(1, self._written)).expand_as(means), means)
        column = draw.pick(self._weigh(features, log_probs))
        self._embedded = self._embedded + _gather_column(embedded, column)[:, None]
        self._last, self._written = tokens.gather(1, column[:, None]).squeeze(1), self._written + 1
        return self._last

    def keep(self, rows: torch.Tensor) -> None:
        """Drop the other texts."""
        self._last, self._mask, self._targets = self._last[rows], self._mask[rows], self._targets[rows]
        self._embedded, self._states = self._embedded[rows], self._states[rows]
        self._cache.batch_select_indices(rows)


def read_candidates(
    model: ConditionalLm, tokens: torch.Tensor, past: Past, mask: torch.Tensor
) -> tuple[torch.Tensor, Past]:
    """Return hidden states (B, k, width) of k candidates for the same position, and the past with all of them appended.

    `tokens` are the candidates, int64 (B, k); `mask` says which columns of the past are real, (B, time).
    """
    candidates = tokens.shape[1]
    itself = torch.eye(candidates, device=mask.device).to(mask).expand(len(mask), -1, -1)
    visible = torch.cat([mask[:, None].expand(-1, candidates, -1), itself], dim=-1)[:, None].bool()
    age = mask.flip(1).cumsum(dim=1).flip(1)  # of a real column: 1 for the newest
    apart = torch.cat([age, age.new_zeros(len(mask), candidates)], dim=1)[:, None, None]
    cache = cache_of(past)
    output = model.lm.base_model(
        inputs_embeds=model.lm.get_input_embeddings()(tokens),
        attention_mask=masks_of(model.lm.config, visible, apart, model.lm.dtype),
        position_ids=mask.sum(dim=1, keepdim=True).expand(-1, candidates),
        past_key_values=cache,
    )
    return output.last_hidden_state, past_of(cache)


def read_with(
    shape: HeadShape, kept: torch.Tensor, features: torch.Tensor, written: int, ends: torch.Tensor
) -> torch.Tensor:
    """Return the head's input for each text followed by each candidate, (B, k, inputs).

    `kept` (B, 1, inputs) covers the `written` tokens so far, `features` (B, k, inputs) are the candidates'. Candidates
    that are EOS, by `ends`, bool (B, k), leave the text unchanged.
    """
    joined = shape.read(shape.join(kept, features), written + 1)
    return torch.where(ends[..., None], shape.read(kept, written), joined)


def _gather_column(values: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """values[b, column[b]], (B, width), of values (B, k, width)."""
    return values[torch.arange(len(column), device=column.device), column]


def _keep_candidate(
    keys: torch.Tensor, values: torch.Tensor, before: int, column: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep one candidate of those after the first `before` columns of a layer's keys and values, written in place."""
    rows = torch.arange(len(column), device=column.device)
    for states in (keys, values):
        states[:, :, before] = states[rows, :, before + column]
    return keys[:, :, : before + 1], values[:, :, : before + 1]
