"""Steering of a fitted model towards labels by its discriminator: by gradients (PPLM), or without them (FUDGE).

All of it is post-processing of the fitted model: it reads no private row and costs no privacy.

PPLM: Dathathri et al. 2019 ("Plug and Play Language Models"), by gradients of the discriminator with respect to the
past, for a batch of texts with different target labels at once. Where the paper leaves room, this module does as
follows.

- The discriminator reads the mean of the features of *text* tokens, as it was trained to: those written so far by the
  unsteered model, the newest one under the perturbed past, and the soft look-ahead tokens. One that was trained on the
  last token's state reads that of the last soft token, or of the newest token where there is none.
- The norm of the gradient is taken per sequence and per layer, keys and values together.
- All positions of the past move alike, and every token of a text is steered.
- A perturbation stays in the past that the next tokens are steered from; the plain distribution, which the KL term and
  the geometric mean refer to, always comes from the unperturbed past.

FUDGE: Yang and Klein 2021. P(token | text, label) is proportional to P(token | text) P(label | text, token): the
likeliest next tokens are reweighted by how likely they make the wanted label. EOS is not a token of the text: as a
candidate it is judged by the text so far.

- `FudgeWalk` reads every candidate with the model. All candidates of a text go through one forward pass as one row:
  each sees the past and itself but no other candidate, so the past is neither copied nor read again.
- `StateWalk` uses only the present state: the candidate's token embedding joins the mean of the embeddings, and the
  mean hidden state stays that of the text so far. It needs a discriminator that reads both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from palimpsest.methods.dp_lm.decoding import (
    Past,
    StepDraw,
    begin,
    cache_of,
    empty_past,
    extend_mask,
    forward,
    past_of,
    select,
)
from palimpsest.methods.dp_lm.model import ConditionalLm, HeadShape, widen
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.models.attention import block_of, masks_of
from palimpsest.models.products import multiply
from palimpsest.models.tokens import Specials

_TINY = 1e-10


@dataclass(frozen=True)
class State:
    """B unfinished texts. Prompts are padded on the left, so that all texts end in the same column.

    Attributes:
        last: newest token of each sequence, int64 (B,).
        plain: keys and values of the tokens before `last`, unperturbed.
        steered: those keys and values with all perturbations so far.
        mask: which columns of the past are real, int64 (B, time).
        kept: running unsteered features of the text tokens before `last`, by `HeadShape.joined`, (B, inputs).
        targets: index of the wanted label of each text, int64 (B,).
        written: text tokens so far, `last` included; 0 while `last` belongs to the prompt.
    """

    last: torch.Tensor
    plain: Past
    steered: Past
    mask: torch.Tensor
    kept: torch.Tensor
    targets: torch.Tensor
    written: int

    def keep(self, rows: torch.Tensor) -> "State":
        """The sequences at these indices, int64 (k,)."""
        return State(
            last=self.last[rows],
            plain=select(self.plain, rows),
            steered=select(self.steered, rows),
            mask=self.mask[rows],
            kept=self.kept[rows],
            targets=self.targets[rows],
            written=self.written,
        )


class PplmWalk:
    """Draws the next token after a past that was moved towards the wanted label."""

    def __init__(
        self,
        model: ConditionalLm,
        prompts: Sequence[Sequence[int]],
        targets: Sequence[int],
        pad: int,
        settings: DpLmGenerate,
    ) -> None:
        self._model, self._settings = model, settings
        self._state = start(model, prompts, targets, pad)

    def step(self, draw: StepDraw) -> torch.Tensor:
        """Steer, then draw."""
        self._state, log_probs = next_token(self._model, self._state, self._settings)
        self._state = replace(self._state, last=draw.pick(draw.mask_banned(log_probs)))
        return self._state.last

    def keep(self, rows: torch.Tensor) -> None:
        """Drop the other texts."""
        self._state = self._state.keep(rows)


def start(model: ConditionalLm, prompts: Sequence[Sequence[int]], targets: Sequence[int], pad: int) -> State:
    """The state after reading every prompt but its last token."""
    last, past, mask = begin(model, prompts, pad)
    kept = torch.zeros(len(prompts), model.head.shape.inputs, device=last.device)
    return State(last, past, past, mask, kept, torch.tensor(targets, device=last.device), written=0)


@torch.no_grad()
def next_token(model: ConditionalLm, state: State, settings: DpLmGenerate) -> tuple[State, torch.Tensor]:
    """Log-probabilities of the next token, (B, vocabulary), and the state with `last` moved into the past."""
    hidden, plain = _read(model, state, state.plain)
    log_probs = functional.log_softmax(_logits(model, hidden, settings), dim=-1)
    steered = plain
    if settings.iterations:
        moved, steered = _read(model, state, perturb(model, state, log_probs, settings))
        log_moved = functional.log_softmax(_logits(model, moved, settings), dim=-1)
        log_probs = settings.gm_scale * log_moved + (1 - settings.gm_scale) * log_probs
    later = replace(
        state,
        plain=plain,
        steered=steered,
        mask=extend_mask(state.mask),
        kept=_with_last(model, state, hidden),
        written=state.written + 1,
    )
    return later, functional.log_softmax(log_probs, dim=-1)


def perturb(model: ConditionalLm, state: State, plain_log_probs: torch.Tensor, settings: DpLmGenerate) -> Past:
    """The steered past, moved by `iterations` gradient steps towards the wanted labels."""
    past = state.steered
    if not state.written + settings.horizon:
        return past  # without a text token the head has nothing to read: a normalised gradient would be rounding alone
    real = state.mask.to(state.kept)[:, None, :, None]  # a text is not moved by way of the padding before it
    own = tuple(
        (empty_past(keys), empty_past(values)) for keys, values in past
    )  # the plain past may share the other's memory
    for _ in range(settings.iterations):
        leaves = [tensor.detach().requires_grad_() for layer in past for tensor in layer]
        past = tuple(zip(leaves[::2], leaves[1::2], strict=True))
        with torch.enable_grad():
            loss = _steering_loss(model, state, past, plain_log_probs, settings)
        gradients = [gradient.mul_(real) for gradient in torch.autograd.grad(loss, leaves)]
        pairs = zip(gradients[::2], gradients[1::2], strict=True)
        for layer, pair, moved in zip(past, pairs, own, strict=True):
            _step(layer, pair, moved, settings)
        past = own
    return past


def look_ahead(
    model: ConditionalLm, state: State, past: Past, plain_log_probs: torch.Tensor, settings: DpLmGenerate
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of the labels (B, labels) after `past` and `last`, and the divergence of the next token.

    The divergence is KL(steered || plain) in nats, summed over rows; `plain_log_probs` is (B, vocabulary).
    """
    hidden, past = _read(model, state, past)
    embedded, apart = Expected.apply(_logits(model, hidden, settings), model.embedding, plain_log_probs)
    kept, mask = _with_last(model, state, hidden), extend_mask(state.mask)
    for ahead in range(settings.horizon):
        if ahead:
            embedded = _logits(model, hidden, settings).softmax(dim=-1) @ model.embedding
        cache = cache_of(past)
        hidden = forward(model, model.read(embedded), cache, mask)
        past, mask = past_of(cache), extend_mask(mask)
        kept = model.head.shape.join(kept, model.features(hidden, embedded))
    read = model.head.shape.read(kept, state.written + settings.horizon)
    return functional.log_softmax(model.head(read), dim=-1), apart


class Expected(torch.autograd.Function):
    """The next token's expected embedding (B, width) under logits z, and the sum over rows of KL(p || plain).

    With p = softmax(z), g the gradient of the embedding and k that of the divergence, the gradient of z is
    p (d - <p, d>) for d = E g + k (log p - log plain). By the rules of its parts it takes more passes over the
    vocabulary.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, logits: torch.Tensor, table: torch.Tensor, plain_log_probs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The embedding and the divergence, of logits and of plain log-probabilities (B, vocabulary)."""
        gap = functional.log_softmax(logits, dim=-1)
        probs = gap.exp()
        gap -= plain_log_probs
        ctx.save_for_backward(probs, gap, table)
        return multiply(probs, table.T), torch.einsum("bv,bv->b", probs, gap).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, embedded: torch.Tensor, apart: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient of the logits, written over what was kept: it is asked for once."""
        probs, gap, table = ctx.saved_tensors
        size = block_of(embedded, table)
        for columns, rows in zip(gap.split(size, dim=1), table.split(size), strict=True):
            columns.mul_(apart).add_(multiply(embedded, rows))
        mean = torch.einsum("bv,bv->b", probs, gap)
        return gap.sub_(mean[:, None]).mul_(probs), None, None


def _logits(model: ConditionalLm, hidden: torch.Tensor, settings: DpLmGenerate) -> torch.Tensor:
    return model.logits(hidden) / settings.temperature


def _read(model: ConditionalLm, state: State, past: Past) -> tuple[torch.Tensor, Past]:
    """Hidden state (B, width) of `last` after `past`, and the past with it."""
    cache = cache_of(past)
    hidden = forward(model, model.lm.get_input_embeddings()(state.last), cache, state.mask)
    return hidden, past_of(cache)


def _with_last(model: ConditionalLm, state: State, hidden: torch.Tensor) -> torch.Tensor:
    """Return the running features of the text including `last`, if that is one of its tokens."""
    if not state.written:
        return state.kept
    return model.head.shape.join(state.kept, model.features(hidden, model.embed(state.last)))


def _steering_loss(
    model: ConditionalLm, state: State, past: Past, plain_log_probs: torch.Tensor, settings: DpLmGenerate
) -> torch.Tensor:
    """Sum over rows of the cross entropy to the wanted label plus the scaled KL to the plain distribution."""
    labels, apart = look_ahead(model, state, past, plain_log_probs, settings)
    return functional.nll_loss(labels, state.targets, reduction="sum") + settings.kl_scale * apart


def _step(
    layer: tuple[torch.Tensor, torch.Tensor],
    gradient: tuple[torch.Tensor, torch.Tensor],
    moved: tuple[torch.Tensor, torch.Tensor],
    settings: DpLmGenerate,
) -> None:
    """Write into `moved` one layer's keys and values, moved against the gradient, scaled per sequence."""
    keys, values = (torch.linalg.vector_norm(part, dim=(1, 2, 3), keepdim=True) for part in gradient)
    scale = settings.step_size / (torch.hypot(keys, values) + _TINY) ** settings.gamma
    for tensor, part, target in zip(layer, gradient, moved, strict=True):
        torch.sub(tensor.detach(), part.mul_(scale), out=target)  # addcmul takes three times as long


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
