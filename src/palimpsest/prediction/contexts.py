"""Many contexts under way at once: each prompt is read once, then goes on token by token or back to its end."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from palimpsest.errors import ModelError
from palimpsest.models.tokens import pad_right

_ROOMY = 3 / 4  # below this share of active contexts the others are dropped from memory
_LARGEST_GAP = 5e-4  # nats: what two orders of summation may differ by


class _Shelf(CacheLayerMixin):
    """One layer's keys and values, (rows, heads, room, head width): each row is written at a place of its own."""

    def __init__(self, desk: "_Desk", room: int) -> None:
        super().__init__()
        self._desk, self._room = desk, room

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Room for the longest text, taken once."""
        rows, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(rows, heads, self._room, key_states.shape[-1])
        self.values = value_states.new_zeros(rows, heads, self._room, value_states.shape[-1])
        self.is_initialized = True

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns; everything up to the longest row is handed to attention, which a mask bounds."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        if self._desk.opening:  # the prompts, each from its beginning
            new = key_states.shape[2]
            self.keys[:, :, :new], self.values[:, :, :new] = key_states, value_states
            return key_states, value_states
        rows, places = torch.arange(len(key_states), device=key_states.device), self._desk.places
        self.keys[rows, :, places], self.values[rows, :, places] = key_states[:, :, 0], value_states[:, :, 0]
        return self.keys[:, :, : self._desk.width], self.values[:, :, : self._desk.width]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Drop the other rows."""
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = self.keys[indices], self.values[indices]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Not asked: masks come whole."""
        return self._desk.width, 0

    def get_seq_length(self) -> int:
        """Positions come whole, too."""
        return 0

    def get_max_length(self) -> int:
        """Columns that there is room for."""
        return self._room


class _Desk:
    """Contexts that one forward pass reads: their cache, where each stands, and its state behind the prompt."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], room: int) -> None:
        self._model = model
        device = model.device
        self.starts = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.places, self.width = self.starts, int(self.starts.max())
        layers = model.config.get_text_config().num_hidden_layers
        self.opening = True
        self._cache = Cache(layers=[_Shelf(self, self.width + room) for _ in range(layers)])
        tokens = pad_right(prompts, 0).to(device)
        causal = torch.ones(self.width, self.width, dtype=torch.bool, device=device).tril()
        positions = torch.arange(self.width, device=device).expand(len(prompts), -1)
        hidden = self._read(tokens, causal.expand(len(prompts), 1, -1, -1), positions)
        self.opening = False
        self.first = hidden[torch.arange(len(prompts), device=device), self.starts - 1]  # (rows, width of the model)

    def step(self, tokens: torch.Tensor, goes_on: torch.Tensor) -> torch.Tensor:
        """Append a token to the rows that go on; the others return to the end of their prompts. The new states."""
        hidden = self.first
        if goes_on.any():
            self.width = int(self.places.max()) + 1
            columns = torch.arange(self.width, device=self.places.device)
            visible = (columns <= self.places[:, None])[:, None, None]  # (rows, 1, 1, width)
            read = self._read(tokens[:, None], visible, self.places[:, None])[:, 0]
            hidden = torch.where(goes_on[:, None], read, self.first)
        self.places = torch.where(goes_on, self.places + 1, self.starts)
        return hidden

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all but these rows, int64 (k,)."""
        self.starts, self.places, self.first = self.starts[rows], self.places[rows], self.first[rows]
        self._cache.batch_select_indices(rows)

    def _read(self, tokens: torch.Tensor, visible: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        kinds = torch.zeros(visible.shape, dtype=self._model.dtype, device=visible.device)
        return self._model.base_model(
            input_ids=tokens,
            attention_mask=kinds.masked_fill(~visible, torch.finfo(kinds.dtype).min),
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state


class Contexts:
    """n prompts side by side.

    A context's states depend on its own tokens alone, but for the rounding of floats that are summed in other orders
    beside other contexts. Prompts of one length are read together, so that little is spent on padding.
    """

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], room: int, micro_batch: int) -> None:
        """Read the prompts.

        Args:
            model: a causal language model.
            prompts: token ids, at least one each.
            room: tokens that may follow a prompt.
            micro_batch: contexts that one forward pass reads.
        """
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        parts = [order[start : start + micro_batch] for start in range(0, len(order), micro_batch)]
        self._desks = [_Desk(model, [prompts[index] for index in part], room) for part in parts]
        self._rows = [torch.tensor(part, device=model.device) for part in parts]
        self._hidden = self._desks[0].first.new_empty(len(prompts), self._desks[0].first.shape[1])
        for rows, desk in zip(self._rows, self._desks, strict=True):
            self._hidden[rows] = desk.first

    @torch.no_grad()
    def step(self, tokens: torch.Tensor, goes_on: torch.Tensor, active: torch.Tensor) -> None:
        """Append a token to each context that goes on; the others return to the end of their prompts.

        Args:
            tokens: int64 (n,).
            goes_on: bool (n,).
            active: bool (n,); a context that is not active will not be again.
        """
        for index, desk in enumerate(self._desks):
            alive = active[self._rows[index]]
            if alive.sum() <= _ROOMY * len(alive):
                desk.keep(alive.nonzero().squeeze(1))
                self._rows[index] = self._rows[index][alive]
            rows = self._rows[index]
            if len(rows):
                self._hidden[rows] = desk.step(tokens[rows], goes_on[rows])

    def hidden(self, first: int, last: int) -> torch.Tensor:
        """Last hidden states (last - first, width) of a run of contexts."""
        return self._hidden[first:last]


def context_of(model: PreTrainedModel) -> int:
    """Most tokens that the model reads."""
    return int(model.config.get_text_config().max_position_embeddings)


def head_of(model: PreTrainedModel) -> nn.Linear:
    """The language model's head, which turns hidden states into logits."""
    return model.get_output_embeddings()


@torch.no_grad()
def require_exact(model: PreTrainedModel, prompts: Sequence[Sequence[int]], more: Sequence[int]) -> None:
    """Try public prompts side by side, token by token, against reading each by itself, where the model is now.

    Raises:
        ModelError: the log-probabilities differ by more than rounding: the model treats positions, masks or its head in
            a way of its own, or the device rounds products.
    """
    contexts = Contexts(model, prompts, len(more), max(1, len(prompts)))
    everyone = torch.ones(len(prompts), dtype=torch.bool, device=model.device)
    for count in range(len(more) + 1):
        found = head_of(model)(contexts.hidden(0, len(prompts))).float().log_softmax(dim=-1)
        rows = [torch.tensor([[*prompt, *more[:count]]], device=model.device) for prompt in prompts]
        wanted = torch.stack([model(input_ids=row).logits[0, -1].float().log_softmax(dim=-1) for row in rows])
        if not torch.allclose(found, wanted, atol=_LARGEST_GAP, rtol=0.0):
            raise ModelError(
                "The language model reads contexts side by side differently than one by one.",
                "Use a causal model with full attention and a plain head, such as GPT-2, Llama or OPT, and full "
                "precision of float32 products.",
            )
        if count < len(more):
            contexts.step(torch.full((len(prompts),), more[count], device=model.device), everyone, everyone)
