"""Writing texts side by side: the loop that all ways of choosing a token share, and its keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from palimpsest.methods.dp_lm.model import ConditionalLm
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.models.grammar import Grammar
from palimpsest.models.products import QuickProducts
from palimpsest.models.tokens import Specials
from palimpsest.models.writing import draw

Past = tuple[tuple[torch.Tensor, torch.Tensor], ...]  # per layer: keys and values, (batch, heads, time, head width)

_ROOM = 64  # columns that a buffer has more than it needs
_LABELS = 1 << 40  # more texts than any label gets: each label has its own range of streams
_ROOMY = 7 / 8  # below this share of unfinished texts the finished ones are dropped from memory


class _Roomy(DynamicLayer):
    """One layer's keys and values."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns after the present ones."""
        self.keys, self.values = _Behind.apply(self.keys, key_states), _Behind.apply(self.values, value_states)
        return self.keys, self.values


class _Behind(torch.autograd.Function):
    """Appends new columns to a past in the same memory. Autograd sees no write: no column that it has seen changes."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        ctx.time = past.shape[2]  # type: ignore[attr-defined]
        columns = past.shape[2] + new.shape[2]
        if columns > _columns(past):
            past = empty_past(past, new.shape[2] + _ROOM).copy_(past)
        wide = past.data.as_strided((*past.shape[:2], columns, past.shape[3]), past.stride())
        wide[:, :, past.shape[2] :] = new
        return wide

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> Sequence[torch.Tensor]:
        time: int = ctx.time  # type: ignore[attr-defined]
        return gradient[:, :, :time], gradient[:, :, time:]


def _columns(past: torch.Tensor) -> int:
    """Count the columns of the past's buffer; 0 where the layout is not that of a buffer."""
    _, heads, _, width = past.shape
    buffer = past.stride() == (heads * past.stride(1), past.stride(1), width, 1)
    return past.stride(1) // width if buffer else 0


def empty_past(past: torch.Tensor, room: int = _ROOM) -> torch.Tensor:
    """Return an uninitialised tensor of the past's shape, with room for so many more columns."""
    rows, heads, time, width = past.shape
    return past.new_empty(rows, heads, time + room, width)[:, :, :time]


def cache_of(past: Past) -> Cache:
    """Return a cache that continues a past and uses its room: one cache at a time."""
    return Cache(layers=[_Roomy(keys, values) for keys, values in past])


def past_of(cache: Cache) -> Past:
    """The keys and values of a cache."""
    return tuple((layer.keys, layer.values) for layer in cache.layers)  # type: ignore[misc, union-attr]


def select(past: Past, rows: torch.Tensor) -> Past:
    """The past of the texts at these indices."""
    return tuple((keys[rows], values[rows]) for keys, values in past)


@dataclass(frozen=True)
class StepDraw:
    """One step's rules and coins for B texts.

    Attributes:
        uniforms: one draw in [0, 1) per text, (B,).
        banned: token ids that may not come now, int64 (k,).
        top_k: only so many of the likeliest tokens may come; 0 is no limit.
        top_p: only the smallest set of likeliest tokens with this probability may come.
        allowed: tokens with which each text stays within a grammar, bool (B, vocabulary); None is all.
    """

    uniforms: torch.Tensor
    banned: torch.Tensor
    top_k: int
    top_p: float
    allowed: torch.Tensor | None = field(default=None, kw_only=True)

    def mask_banned(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B, vocabulary) without the banned tokens, and of the allowed ones alone."""
        if self.allowed is not None:
            logits = logits.masked_fill(~self.allowed.to(logits.device), -torch.inf)
        return functional.log_softmax(logits.index_fill(1, self.banned.to(logits.device), -torch.inf), dim=-1)

    def pick(self, log_probs: torch.Tensor) -> torch.Tensor:
        """Draw a column for each text from log-probabilities (B, columns); int64 (B,)."""
        return draw(log_probs, self.top_p, self.uniforms.to(log_probs.device), self.top_k)


class Walk(Protocol):
    """B unfinished texts, and a way of choosing their next tokens."""

    def step(self, draw: StepDraw) -> torch.Tensor:
        """Choose and append the next token of each text; int64 (B,)."""

    def keep(self, rows: torch.Tensor) -> None:
        """Continue with the texts at these indices, int64 (k,)."""


@torch.no_grad()
def write(
    walk: Walk, ids: Specials, settings: DpLmGenerate, uniforms: np.ndarray, grammar: Grammar | None = None
) -> list[list[int]]:
    """Tokens of a walk's n texts, without EOS: at least 1, at most as many as there are draws in [0, 1), (n, tokens).

    EOS ends a text and comes second at the earliest; other special tokens never occur. With a grammar each text is a
    record of it, or the beginning of one where no more tokens were left.
    """
    records = [grammar.begin(uniforms.shape[1]) for _ in uniforms] if grammar else []
    texts: list[list[int]] = [[] for _ in range(len(uniforms))]
    alive = going = torch.arange(len(uniforms))  # rows still in memory, and those of them that have not ended
    coins = torch.from_numpy(uniforms)
    for step in range(uniforms.shape[1]):
        allowed = grammar.allowed([records[row] for row in alive.tolist()]) if grammar else None
        banned = _banned_tokens(ids, step == 0)
        rules = StepDraw(coins[alive, step], banned, settings.top_k, settings.top_p, allowed=allowed)
        with QuickProducts():
            tokens = walk.step(rules).cpu()
        unfinished = torch.isin(alive, going) & (tokens != ids.eos)
        for row, token in zip(alive[unfinished].tolist(), tokens[unfinished].tolist(), strict=True):
            texts[row].append(token)
            if records:
                records[row].take(token)
        going = alive[unfinished]
        if not len(going):
            break
        if len(going) <= _ROOMY * len(alive):
            walk.keep(unfinished.nonzero().squeeze(1))
            alive = going
    return texts


class PlainWalk:
    """The next token is drawn from the model as it is."""

    def __init__(self, model: ConditionalLm, prompts: Sequence[Sequence[int]], pad: int, temperature: float) -> None:
        self._model, self._temperature = model, temperature
        self._last, past, self._mask = begin(model, prompts, pad)
        self._cache = cache_of(past)

    def step(self, draw: StepDraw) -> torch.Tensor:
        """Draw from the model's own distribution."""
        embedded = self._model.lm.get_input_embeddings()(self._last)
        hidden = forward(self._model, embedded, self._cache, self._mask)
        self._mask = extend_mask(self._mask)
        self._last = draw.pick(draw.mask_banned(self._model.logits(hidden) / self._temperature))
        return self._last

    def keep(self, rows: torch.Tensor) -> None:
        """Drop the other texts."""
        self._last, self._mask = self._last[rows], self._mask[rows]
        self._cache.batch_select_indices(rows)


def uniforms(seed: int, label: int, number: int, steps: int) -> np.ndarray:
    """Draws of the `number`-th text of a label, (steps,): each text has a stream of its own."""
    return np.random.Generator(np.random.Philox(key=[seed, label * _LABELS + number])).random(steps)


@torch.no_grad()
def begin(model: ConditionalLm, prompts: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, Past, torch.Tensor]:
    """Read every prompt but its last token; prompts may differ in length and are padded on the left.

    A soft prompt goes between the padding and the prompt, as it came before the text in training.

    Returns:
        The last tokens, int64 (B,); keys and values of those before; which of their columns are real, int64 (B, time).
    """
    width = max(map(len, prompts)) - 1
    device = model.embedding.device
    fill = [width + 1 - len(prompt) for prompt in prompts]
    rows = [[*[pad] * missing, *prompt] for missing, prompt in zip(fill, prompts, strict=True)]
    tokens = torch.tensor(rows, device=device)
    embedded = model.lm.get_input_embeddings()(tokens[:, :-1])
    padding, front = torch.tensor(fill, device=device)[:, None], model.front(len(prompts))
    if front is not None:
        embedded = _insert_after_padding(front, embedded, padding)
    mask = (torch.arange(embedded.shape[1], device=device) >= padding).long()
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    cache = DynamicCache()
    model.lm.base_model(inputs_embeds=embedded, attention_mask=mask, position_ids=positions, past_key_values=cache)
    return tokens[:, -1], past_of(cache), mask


def _insert_after_padding(front: torch.Tensor, embedded: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Insert `front` (B, n, width) after each row's padding, int64 (B, 1), into embeddings (B, time, width)."""
    size, joined = front.shape[1], torch.cat([front, embedded], dim=1)
    columns = torch.arange(joined.shape[1], device=joined.device)
    behind = torch.where(columns < padding + size, columns - padding, columns)
    order = torch.where(columns < padding, columns + size, behind)
    return joined.gather(1, order[..., None].expand(-1, -1, joined.shape[2]))


def forward(model: ConditionalLm, embedded: torch.Tensor, cache: Cache, mask: torch.Tensor) -> torch.Tensor:
    """Hidden state (B, width) of one more, perhaps soft, token embedding (B, width); the cache grows by it."""
    output = model.lm.base_model(
        inputs_embeds=embedded[:, None],
        attention_mask=extend_mask(mask),
        position_ids=mask.sum(dim=1, keepdim=True),
        past_key_values=cache,
    )
    return output.last_hidden_state[:, -1]


def extend_mask(mask: torch.Tensor) -> torch.Tensor:
    """The mask with one more real column."""
    return torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)


def _banned_tokens(ids: Specials, first: bool) -> torch.Tensor:
    """Control tokens, and EOS as the first token of a text."""
    return torch.tensor(sorted(ids.control | {ids.eos} if first else ids.control - {ids.eos}), dtype=torch.long)
