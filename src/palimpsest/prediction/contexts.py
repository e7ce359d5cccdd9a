"""Many contexts under way at once: each prompt is read once, then goes on token by token or back to its end.

Every product of matrices has a public shape, whatever the contexts: passes of as many rows, prompts padded to public
widths, room for the longest text from the beginning. Then the bits of a context's logits do not depend on the contexts
beside it or on its place among them, where the device's kernels keep to one order of summation for one shape.
`require_exact` tries that.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import cycle, islice, pairwise

import torch
from torch import nn
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from palimpsest import validate
from palimpsest.errors import ModelError
from palimpsest.models.attention import attend_by_products, cap_logits, cap_of, is_mixture, masks_of
from palimpsest.models.products import pack_layers
from palimpsest.shards import Here, Posts, There, posts

_LARGEST_GAP = 5e-4  # nats by which two ways to read one context may differ; no privacy rests on it
_HEAD_ROWS = 32  # states that the head reads at once
_COLUMNS = 1 << 15  # tokens whose logits are compared at once
_FEW = 2  # tokens of a trial after which logits are compared; after further ones, what is inside the model is
_AT_ONCE = 1 << 24  # numbers that a digest is made of at once
_LEAST_MOVE = 1e-5  # nats that a logit is taken to move by where bits inside the model do and no logit of the trial did
_FEWEST_COLUMNS = 128  # tokens whose logits are computed at once, at least
_PER_SCORE = 4.0  # how far one unit of rounding in logits may move a score: `require_exact` says why


def rung(length: int, least: int, most: int) -> int:
    """Return the smallest of `least`, 2 `least`, 4 `least`, ..., `most` that `length` fits in."""
    width = least
    while width < length:
        width *= 2
    return min(width, most)


@dataclass(frozen=True)
class Shape:
    """The shape of every forward pass; all of it public.

    Attributes:
        rows: contexts that one pass reads; where there are fewer, meaningless rows fill it.
        least: each prompt is padded to the smallest of `least`, 2 `least`, 4 `least`, ... tokens that it fits in.
        most: the longest prompt; no prompt is padded beyond it.
        room: tokens that may follow a prompt.
        threads: a processor's threads in every pass; None takes this process's number, which other libraries change.
    """

    rows: int
    least: int
    most: int
    room: int
    threads: int | None = None

    def __post_init__(self) -> None:
        validate.require_positive(rows=self.rows, least=self.least, most=self.most)
        validate.require_in_range(0, float("inf"), room=self.room)

    def width(self, length: int) -> int:
        """Return the number of tokens that a prompt of `length` tokens is padded to."""
        return rung(length, self.least, self.most)

    def hold(self) -> None:
        """Set the number of threads that was tried: an import or a fit of another library may have raised it since."""
        if self.threads is not None and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    @property
    def widths(self) -> list[int]:
        """All padded widths, in order."""
        widths = [self.width(1)]
        while widths[-1] < self.most:
            widths.append(self.width(widths[-1] + 1))
        return widths


@dataclass
class _Where:
    """The positions of a pass's rows, kept apart from the desk so that its cache is freed with it, without a cycle.

    Attributes:
        places: int64 (rows,), the column that each row writes next.
        opening: whether the prompts are being read.
    """

    places: torch.Tensor
    opening: bool = True


class _Shelf(CacheLayerMixin):
    """One layer's keys and values, (rows, heads, room, head width); each row is written at its own position."""

    def __init__(self, where: "_Where", room: int) -> None:
        super().__init__()
        self._where, self._room = where, room

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate room for the longest text, once."""
        rows, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(rows, heads, self._room, key_states.shape[-1])
        self.values = value_states.new_zeros(rows, heads, self._room, value_states.shape[-1])
        self.is_initialized = True

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns and hand all the room to attention, which a mask bounds."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        if self._where.opening:  # the prompts, each from its beginning
            new = key_states.shape[2]
            self.keys[:, :, :new], self.values[:, :, :new] = key_states, value_states
            return key_states, value_states
        rows, places = torch.arange(len(key_states), device=key_states.device), self._where.places
        self.keys[rows, :, places], self.values[rows, :, places] = key_states[:, :, 0], value_states[:, :, 0]
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return sizes that nothing uses: masks come whole."""
        return self._room, 0

    def get_seq_length(self) -> int:
        """Return 0: positions come whole, too."""
        return 0

    def get_max_length(self) -> int:
        """Return how many columns there is room for."""
        return self._room


class _ContextDesk:
    """Contexts that one forward pass reads: their cache, their positions, and their states after the prompt.

    States are float32, whatever the model computes in.
    """

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], width: int, shape: Shape) -> None:
        shape.hold()
        self._model, self.width, self._shape, self._count = model, width + shape.room, shape, len(prompts)
        device = model.device
        filled = [*prompts, *([[0]] * (shape.rows - len(prompts)))]
        self.starts = torch.tensor([len(prompt) for prompt in filled], device=device)
        self._where = _Where(self.starts)
        layers = model.config.get_text_config().num_hidden_layers
        self._cache = Cache(layers=[_Shelf(self._where, self.width) for _ in range(layers)])
        tokens = torch.tensor([[*prompt, *([0] * (width - len(prompt)))] for prompt in filled], device=device)
        causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        columns = torch.arange(width, device=device)
        positions = columns.expand(shape.rows, -1)
        hidden = self._read(tokens, causal.expand(shape.rows, 1, -1, -1), columns[:, None] - columns, positions)
        self._where.opening = False
        rows = torch.arange(shape.rows, device=device)
        self.first = hidden[rows, self.starts - 1].float()  # (rows, width of the model)

    def opening(self) -> torch.Tensor:
        """Return the states after the prompts."""
        return self.first[: self._count]

    @torch.no_grad()
    def step(self, tokens: torch.Tensor, goes_on: torch.Tensor) -> torch.Tensor:
        """Append a token to rows that go on; reset the others to the end of their prompts. Return the new states."""
        self._shape.hold()
        count, rows = len(tokens), len(self.starts)
        tokens, goes_on = _pad_rows(tokens, rows), _pad_rows(goes_on, rows)
        hidden, places = self.first, self._where.places
        if goes_on.any():
            columns = torch.arange(self.width, device=places.device)
            apart = (places[:, None] - columns)[:, None, None]  # (rows, 1, 1, width)
            read = self._read(tokens[:, None], apart >= 0, apart, places[:, None])[:, 0].float()
            hidden = torch.where(goes_on[:, None], read, self.first)
        self._where.places = torch.where(goes_on, places + 1, self.starts)
        return hidden[:count]

    def _read(
        self, tokens: torch.Tensor, visible: torch.Tensor, apart: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        return self._model.base_model(
            input_ids=tokens,
            attention_mask=masks_of(self._model.config, visible, apart, self._model.dtype),
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state


class Contexts:
    """n prompts side by side.

    A context's states depend only on its own tokens and on the shape, bit for bit where `require_exact` holds with no
    error. They do not depend on where it is read: `find_agreeing_workers` has workers try the same passes and takes
    those that agree.
    """

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], shape: Shape, posts: Posts | None = None
    ) -> None:
        """Read the prompts.

        Args:
            prompts: token ids, at least one each and at most `shape.most`.
            posts: workers that read them; None has this process do so.
        """
        self._shape = shape
        shape.hold()
        parts = list(_parts([shape.width(len(prompt)) for prompt in prompts], shape.rows))
        make = partial(_desk, model, shape)
        items = (([list(prompts[index]) for index in part], width) for width, part in parts)
        self._desks: Sequence[Here | There]
        self._desks = [Here(make(item)) for item in items] if posts is None else posts.settle(make, items)
        self._rows = [torch.tensor(part, device=model.device) for _, part in parts]
        waiting = [desk.ask("opening") for desk in self._desks]
        states = [wait() for wait in waiting]
        self._hidden = states[0].new_empty(len(prompts), states[0].shape[1])
        for rows, own in zip(self._rows, states, strict=True):
            self._hidden[rows] = own

    def step(self, tokens: torch.Tensor, goes_on: torch.Tensor, active: torch.Tensor) -> None:
        """Append a token to each context that goes on; the others return to the end of their prompts.

        Args:
            tokens: int64 (n,).
            goes_on: bool (n,).
            active: bool (n,); an inactive context stays inactive, and a pass without active ones is left out.
        """
        self._shape.hold()
        waiting = [
            (rows, desk.ask("step", tokens[rows], goes_on[rows]))
            for rows, desk in zip(self._rows, self._desks, strict=True)
            if active[rows].any()
        ]
        for rows, wait in waiting:
            self._hidden[rows] = wait()

    def hidden(self, first: int, last: int) -> torch.Tensor:
        """Return the last hidden states (last - first, width) of a run of contexts, float32."""
        return self._hidden[first:last]


def _desk(model: PreTrainedModel, shape: Shape, item: tuple[Sequence[Sequence[int]], int]) -> _ContextDesk:
    """Make the desk of these prompts and the width that they are padded to."""
    return _ContextDesk(model, *item, shape)


def _parts(widths: Sequence[int], rows: int) -> Iterator[tuple[int, list[int]]]:
    """Yield each width with the contexts of that width that are read together."""
    for width in sorted(set(widths)):
        own = [index for index, other in enumerate(widths) if other == width]
        yield from ((width, own[start : start + rows]) for start in range(0, len(own), rows))


def _pad_rows(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Pad values (n, ...) with zeros to (rows, ...), in memory of their own: alignment is part of the shape."""
    filled = values.new_zeros(rows, *values.shape[1:])
    filled[: len(values)] = values
    return filled


def context_of(model: PreTrainedModel) -> int:
    """Return the most tokens that the model reads."""
    return int(model.config.get_text_config().max_position_embeddings)


@dataclass(frozen=True, eq=False)
class Head:
    """The layer from hidden states to logits, in float32 whatever the model computes in: scores have its digits.

    Attributes:
        weight: (vocabulary, width).
        bias: (vocabulary,), or None.
        cap: the bound of a model that caps its logits; None where it does not.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    cap: float | None

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits (..., vocabulary) of states (..., width)."""
        return cap_logits(nn.functional.linear(hidden, self.weight, self.bias), self.cap)


def head_of(model: PreTrainedModel) -> Head:
    """Return the language model's head."""
    head: nn.Linear = model.get_output_embeddings()
    return Head(head.weight.float(), None if head.bias is None else head.bias.float(), cap_of(model))


def logits_of(
    head: Head, hidden: torch.Tensor, rows: int, columns: torch.Tensor | None = None
) -> Iterator[torch.Tensor]:
    """Yield logits of states (n, width), float32, block after block of at most `rows` and of a fixed number of states.

    Args:
        rows: contexts that one forward pass reads.
        columns: tokens whose logits are wanted, int64 (k,); None for all. As many are computed as the next power of 2.
    """
    weight, bias = head.weight, head.bias
    count, block = len(weight) if columns is None else len(columns), min(rows, _HEAD_ROWS)
    if columns is not None:
        chosen = _pad_rows(columns, rung(count, _FEWEST_COLUMNS, len(weight)))
        weight, bias = weight[chosen], None if bias is None else bias[chosen]
    for part in hidden.split(block):
        yield Head(weight, bias, head.cap)(_pad_rows(part, block))[: len(part), :count]


def give_dtype(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Give the parameters this type, as if `load_lm` had read them so; what positions are made of keeps its digits.

    In float32 on a processor the model is from now on only read, by faster products.
    """
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    pack_layers(model.base_model)
    attend_by_products(model)


@torch.no_grad()
def require_exact(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    more: Sequence[int],
    shape: Shape,
    error: float,
    dtype: torch.dtype = torch.float32,
) -> Shape:
    """Try public prompts where the model is now, at the shapes that private ones will have.

    Read side by side they must give what each gives by itself, in the digits of the float32 weights, where a wrong mask
    or position shows. Then the model takes the type in which it will read. No logit of a context may move with its
    place or with the contexts beside it by more than `error` / 4. A context's contribution is its logits less the
    largest one, or less the middle of their range, cut: a logit that moves by x moves it by at most 2 x, and the mean
    over a fixed s of at most 2 s persons by 4 x. Its probabilities move by at most x in L1 (softmax is 1-Lipschitz from
    the largest norm to L1), so the sparse vector's distance by 2 x.

    The inputs and outputs of every layer are compared, not only logits: in bf16 another order of summation shows in one
    number of thousands, and where it shows it moves a logit by hundredths of a nat. So a charge for rounding, which is
    made from the largest move that a trial saw, is only for float32.

    A processor whose threads share a product may round a row depending on its place. Where that moves more than is
    charged, this process goes on with one thread and is tried again. The returned shape keeps the threads that were
    tried.

    Args:
        more: public tokens to go on with, the more the better.
        shape: the shape of every forward pass over private contexts.
        error: e, nats that a score before the temperature may move by rounding, as the plan charges it; 0 asks for
            equal bits, as it must be where `dtype` is not float32.
        dtype: the type of the model from now on, except its head.

    Raises:
        ModelError: the model is a mixture of experts, its positions would depend on the longest context, it treats
            positions, masks or its head in a way of its own, the device rounds products, or rounding moves more than is
            charged.
    """
    more = more[: shape.room]
    _require_dense(model)
    _require_one_scale(model, shape)
    _require_alone(model, prompts, more[:_FEW], shape)
    give_dtype(model, dtype)
    largest = measure_movement(model, prompts, more, shape)
    if not largest <= error / _PER_SCORE and model.device.type == "cpu" and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        largest = measure_movement(model, prompts, more, shape)
    if not largest <= error / _PER_SCORE:  # nor where it is no number
        raise _movement_error(largest, error, dtype)
    return replace(shape, threads=torch.get_num_threads())


def _movement_error(largest: float, error: float, dtype: torch.dtype) -> ModelError:
    """Return the error for a model whose logits move by so much."""
    device = "or use a device whose products keep one order of summation."
    if dtype != torch.float32:
        what = "What a model in half precision makes of a context moves with the contexts beside it."
        return ModelError(what, f"Set `precision: float32`, {device}")
    return ModelError(
        f"A context's logits move by up to {largest:.3g} nats with the contexts beside it; the plan charges for "
        f"{error / _PER_SCORE:.3g}.",
        f"Set `rounding` of the variant's method to {_PER_SCORE * 2.0 * largest:.2g} or more, which is charged and "
        f"listed as an assumption (of predict with a batch_size of 24 or more), {device}",
    )


def _require_dense(model: PreTrainedModel) -> None:
    if is_mixture(model):
        raise ModelError(
            "The language model is a mixture of experts: what an expert multiplies at once depends on all contexts.",
            "Use a dense causal model, such as GPT-2, Llama, Qwen, Mistral, Gemma, OPT or Phi.",
        )


def _require_one_scale(model: PreTrainedModel, shape: Shape) -> None:
    """Refuse contexts that may pass the limit of `longrope`, where the longest of a pass chooses all rotations.

    A prompt is opened beside others of its own public width, so only what is written after prompts is concerned.
    """
    given = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    ropes = [given, *(rope for rope in given.values() if isinstance(rope, dict))]  # one, or one for each type of layer
    limits = [rope["original_max_position_embeddings"] for rope in ropes if rope.get("rope_type") == "longrope"]
    need, limit = shape.most + shape.room, min(limits, default=math.inf)
    if shape.room and need > limit:
        raise ModelError(
            f"A prompt and an example need up to {need} positions; one beyond {limit} changes how this model reads all "
            "contexts beside it.",
            "Lower prompt.text_tokens or max_tokens, shorten the prompt, or use a model without longrope.",
        )


def _require_alone(model: PreTrainedModel, prompts: Sequence[Sequence[int]], more: Sequence[int], shape: Shape) -> None:
    for count, logits in enumerate(_trial(model, head_of(model), prompts, more, replace(shape, rows=len(prompts)))):
        rows = [torch.tensor([[*prompt, *more[:count]]], device=model.device) for prompt in prompts]
        wanted = torch.stack(
            [model(input_ids=row, logits_to_keep=1).logits[0, -1].float().log_softmax(dim=-1) for row in rows]
        )
        if not torch.allclose(logits.log_softmax(dim=-1), wanted, atol=_LARGEST_GAP, rtol=0.0):
            raise ModelError(
                "The language model reads contexts side by side differently than one by one.",
                "Use a causal model whose logits are its head's output, capped or not, such as GPT-2, Llama, Qwen, "
                "Mistral, Gemma, OPT or Phi, and full precision of float32 products.",
            )


@torch.no_grad()
def measure_movement(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], more: Sequence[int], shape: Shape
) -> float:
    """Return the most that a logit of a public context moves with its place and with the contexts beside it; 0 is equal
    bits.

    In one pass the prompts fill all rows, again and again; in another they stand in reverse order in half of the rows.
    Copies of one prompt are compared: their logits after the prompt and after a few tokens, over all tokens and over
    as many as each step of the ladder of `logits_of` has; and, wherever they are read, the inputs and outputs of each
    layer. NaN where a logit is no number; at least `_LEAST_MOVE` where only bits inside the model moved.
    """
    head = head_of(model)
    largest, inside = [_ladder(head, shape)], False
    for own, orders in _passes(prompts, shape, len(head.weight)):
        trials, seen = [], []
        for order in orders:
            with _watch_layers(model, shape.rows) as digests:
                trials.append(list(_trial(model, head, [own[index] for index in order], more, shape)))
            seen.append(torch.stack(digests)[:, : len(order)])
        places = torch.tensor([index for order in orders for index in order], device=model.device)
        largest += [_largest_difference(torch.cat(pair), places) for pair in zip(*trials, strict=True)]
        inside |= bool((torch.cat(seen, 1) != torch.cat(seen, 1)[:, _first_places(places)]).any())
    found = float(torch.stack(largest).max())
    return max(found, _LEAST_MOVE) if inside else found


@contextmanager
def _watch_layers(model: PreTrainedModel, rows: int) -> Iterator[list[torch.Tensor]]:
    """Collect digests (rows,) of the inputs and outputs of each layer without sublayers, as they come."""
    found: list[torch.Tensor] = []

    def watch(_layer: nn.Module, given: tuple[object, ...], made: object) -> None:
        found.extend(
            _digests(values, rows)
            for values in (*given, made)
            if isinstance(values, torch.Tensor) and values.is_floating_point() and values.dim() > 1
            if len(values) % rows == 0
        )

    layers = [layer for layer in model.base_model.modules() if not list(layer.children())]
    handles = [layer.register_forward_hook(watch) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _digests(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a number for each row, int64, that rows of other bits share with a chance of some 2^-32."""
    bits = values.detach().reshape(rows, -1).contiguous()
    even = bits.shape[1] * bits.element_size() % 4 == 0
    whole = bits.view(torch.int32) if even else bits.view(torch.int16).to(torch.int32)
    factors = _factors(whole.shape[1]).to(whole.device)
    parts = whole.split(max(1, _AT_ONCE // whole.shape[1]))
    return torch.cat([(part * factors).sum(dim=1) for part in parts])  # products wrap around


@lru_cache(maxsize=16)
def _factors(count: int) -> torch.Tensor:
    """Return odd numbers, int32 (count,), so that a change of a single number always shows."""
    return _random(2**31, (count,), 0).to(torch.int32) | 1


def _random(below: int, size: tuple[int, ...], seed: int) -> torch.Tensor:
    """Draw public whole numbers, int64."""
    return torch.randint(below, size, generator=torch.Generator().manual_seed(seed))


def _passes(
    prompts: Sequence[Sequence[int]], shape: Shape, vocabulary: int
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield for each width the prompts, with random ones for half of the rows, and the two orders that fill a pass."""
    for before, width in pairwise([0, *shape.widths]):
        own = [_stretch_prompt(prompt, before, width) for prompt in prompts] + [
            _stretch_prompt(prompts[0], width - 1, width)
        ]
        own += _random(vocabulary, (max(0, shape.rows // 2 - len(own)), width), width).tolist()
        first = [place % len(own) for place in range(shape.rows)]
        yield own, [first, [len(own) - 1 - place for place in first[: shape.rows // 2 + 1]]]


def find_agreeing_workers(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], more: Sequence[int], shape: Shape
) -> Posts | None:
    """Return workers whose states of public prompts, in `measure_movement`, equal this process's to the last bit.

    None where no cluster is asked for.

    Raises:
        ShardError: a worker's states differ.
    """
    passes = _passes(prompts, shape, len(head_of(model).weight))
    trials = [[own[index] for index in order] for own, orders in passes for order in orders]
    return posts(partial(_states, model, list(more[: shape.room]), shape), trials)


def _states(model: PreTrainedModel, more: Sequence[int], shape: Shape, prompts: Sequence[Sequence[int]]) -> bytes:
    """Return the states after the prompts and after each further token, as bytes."""
    contexts, everyone = Contexts(model, prompts, shape), torch.ones(len(prompts), dtype=torch.bool)
    states = [contexts.hidden(0, len(prompts)).clone()]
    for token in more:
        contexts.step(torch.full((len(prompts),), token), everyone, everyone)
        states.append(contexts.hidden(0, len(prompts)).clone())
    return torch.cat(states).view(torch.uint8).numpy().tobytes()


def _stretch_prompt(prompt: Sequence[int], before: int, width: int) -> list[int]:
    """Repeat or cut the prompt so that it is padded to this width and not to the one before."""
    return list(islice(cycle(prompt), min(width, max(len(prompt), before + 1))))


def _trial(
    model: PreTrainedModel, head: Head, prompts: Sequence[Sequence[int]], more: Sequence[int], shape: Shape
) -> Iterator[torch.Tensor]:
    """Yield logits (n, vocabulary) after each prompt and after each of the first few further tokens; all are read."""
    contexts = Contexts(model, prompts, shape)
    everyone = torch.ones(len(prompts), dtype=torch.bool, device=model.device)
    yield torch.cat(list(logits_of(head, contexts.hidden(0, len(prompts)), shape.rows)))
    for number, token in enumerate(more):
        contexts.step(torch.full((len(prompts),), token, device=model.device), everyone, everyone)
        if number < _FEW:
            yield torch.cat(list(logits_of(head, contexts.hidden(0, len(prompts)), shape.rows)))


def _largest_difference(values: torch.Tensor, owners: torch.Tensor) -> torch.Tensor:
    """Return the largest difference between rows (n, k) of one owner (n,)."""
    first = _first_places(owners)
    parts = zip(values.split(_COLUMNS, 1), values[first].split(_COLUMNS, 1), strict=True)
    return torch.stack([(own.double() - other.double()).abs().max() for own, other in parts]).max()


def _first_places(owners: torch.Tensor) -> torch.Tensor:
    """Return the first place of each place's owner, int64 (n,)."""
    firsts = {owner: place for place, owner in reversed(list(enumerate(owners.tolist())))}
    return torch.tensor([firsts[owner] for owner in owners.tolist()], device=owners.device)


def _ladder(head: Head, shape: Shape) -> torch.Tensor:
    """Return the largest difference between logits of one state at two places of a head's pass, over its shapes."""
    rows = min(shape.rows, _HEAD_ROWS)
    most = len(head.weight)
    states = head.weight[: min(5, most)].detach()  # any states will do
    owners = torch.arange(3 * rows - 1, device=states.device) % len(states)
    largest, count = torch.zeros((), dtype=torch.float64, device=states.device), _FEWEST_COLUMNS
    while count < most:
        columns = torch.arange(count, device=states.device)
        logits = torch.cat(list(logits_of(head, states[owners], shape.rows, columns)))
        largest, count = torch.maximum(largest, _largest_difference(logits, owners)), 2 * count
    return largest
