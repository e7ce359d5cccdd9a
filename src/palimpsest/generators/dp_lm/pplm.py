"""Drawing texts from a conditional language model, plainly or steered by its discriminator (PPLM).

Dathathri et al. 2019 ("Plug and Play Language Models"), for a batch of texts with different target labels at once. All
of it is post-processing of the fitted model: it reads no private row and costs no privacy.

Where the paper leaves room, this module does as follows.
- The discriminator reads the mean of the hidden states of *text* tokens, as it was trained to: those written so far by
  the unsteered model, the newest one under the perturbed past, and the soft look-ahead tokens.
- The norm of the gradient is taken per sequence and per layer, keys and values together.
- A perturbation stays in the past that the next tokens are steered from; the plain distribution, which the KL term and
  the geometric mean refer to, always comes from the unperturbed past.
- A sequence's uniform draws depend on the seed and its number alone, so neither the batch size nor its neighbours
  change its text (but for rounding).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache

from palimpsest.generators.dp_lm.model import ConditionalLm
from palimpsest.models.tokens import Specials
from palimpsest.params.dp_lm import DpLmGenerate

Past = tuple[tuple[torch.Tensor, torch.Tensor], ...]  # per layer: keys and values, (batch, heads, time, head width)
_TINY = 1e-10


@dataclass(frozen=True)
class State:
    """B texts under way. Prompts are padded on the left, so that all texts end in the same column.

    Attributes:
        last: newest token of each sequence, int64 (B,).
        plain: keys and values of the tokens before `last`, unperturbed.
        steered: the same with all perturbations so far.
        mask: which columns of the past are real, int64 (B, time).
        sums: sum of the unsteered hidden states of the text tokens before `last`, (B, width).
        targets: index of the wanted label of each text, int64 (B,).
        written: text tokens so far, `last` included; 0 while `last` is the prompt's.
    """

    last: torch.Tensor
    plain: Past
    steered: Past
    mask: torch.Tensor
    sums: torch.Tensor
    targets: torch.Tensor
    written: int

    def keep(self, rows: torch.Tensor) -> "State":
        """The sequences that a bool mask (B,) selects."""
        return State(
            last=self.last[rows],
            plain=_select(self.plain, rows),
            steered=_select(self.steered, rows),
            mask=self.mask[rows],
            sums=self.sums[rows],
            targets=self.targets[rows],
            written=self.written,
        )


@torch.no_grad()
def write(
    model: ConditionalLm,
    prompts: Sequence[Sequence[int]],
    targets: Sequence[int],
    ids: Specials,
    settings: DpLmGenerate,
    uniforms: np.ndarray,
) -> list[list[int]]:
    """Write one text per prompt, side by side.

    Args:
        model: the fitted model.
        prompts: `BOS label SEP` of each text.
        targets: index of each text's label for the discriminator.
        ids: special tokens; EOS ends a text and comes second at the earliest, the others never occur.
        settings: how to sample and steer.
        uniforms: draws in [0, 1), (texts, max_tokens).

    Returns:
        Tokens of each text, without EOS: at least 1, at most `max_tokens`.
    """
    state = begin(model, prompts, targets, ids.pad)
    texts: list[list[int]] = [[] for _ in prompts]
    alive = torch.arange(len(prompts))
    for step in range(settings.max_tokens):
        state, log_probs = next_token(model, state, settings)
        _forbid(log_probs, ids, first=step == 0)
        draws = torch.from_numpy(uniforms[alive.numpy(), step]).to(log_probs)
        state = replace(state, last=nucleus(log_probs, settings.top_p, draws))
        going = state.last != ids.eos
        for row, token in zip(alive[going.cpu()].tolist(), state.last[going].tolist(), strict=True):
            texts[row].append(token)
        if not going.all():
            alive, state = alive[going.cpu()], state.keep(going)
        if not len(alive):
            break
    return texts


def next_token(model: ConditionalLm, state: State, settings: DpLmGenerate) -> tuple[State, torch.Tensor]:
    """Log-probabilities of the next token, (B, vocabulary), and the state with `last` moved into the past."""
    hidden, plain = _forward(model, state, state.plain)
    log_probs = functional.log_softmax(model.logits(hidden) / settings.temperature, dim=-1)
    steered = plain
    if settings.iterations:
        past = perturb(model, state, log_probs, settings)
        moved, steered = _forward(model, state, past)
        logits = model.logits(moved) / settings.temperature
        log_probs = settings.gm_scale * functional.log_softmax(logits, dim=-1) + (1 - settings.gm_scale) * log_probs
    later = replace(
        state,
        plain=plain,
        steered=steered,
        mask=_seen(state.mask),
        sums=state.sums + hidden if state.written else state.sums,
        written=state.written + 1,
    )
    return later, functional.log_softmax(log_probs, dim=-1)


def perturb(model: ConditionalLm, state: State, plain_log_probs: torch.Tensor, settings: DpLmGenerate) -> Past:
    """The steered past, moved by `iterations` gradient steps towards the wanted labels."""
    past = state.steered
    if not state.written + settings.horizon:
        return past  # the discriminator has nothing to read: a normalised gradient would be rounding alone
    for _ in range(settings.iterations):
        leaves = [tensor.detach().requires_grad_() for layer in past for tensor in layer]
        past = tuple(zip(leaves[::2], leaves[1::2], strict=True))
        with torch.enable_grad():
            loss = _steering_loss(model, state, past, plain_log_probs, settings)
        gradients = torch.autograd.grad(loss, leaves)
        past = tuple(
            _step(layer, pair, settings)
            for layer, pair in zip(past, zip(gradients[::2], gradients[1::2], strict=True), strict=True)
        )
    return past


def nucleus(log_probs: torch.Tensor, top_p: float, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw from the smallest set of likeliest tokens whose probability reaches `top_p` (Holtzman et al. 2019).

    Args:
        log_probs: (B, vocabulary).
        top_p: in (0, 1].
        uniforms: one draw in [0, 1) per row, (B,).

    Returns:
        Token ids, int64 (B,).
    """
    probs, tokens = log_probs.exp().sort(dim=-1, descending=True, stable=True)
    before = probs.cumsum(dim=-1) - probs
    probs = torch.where(before < top_p, probs, 0.0)
    bounds = probs.cumsum(dim=-1)
    place = torch.searchsorted(bounds, uniforms[:, None] * bounds[:, -1:], right=True)
    last = (probs > 0).sum(dim=-1, keepdim=True) - 1  # rounding must not reach a token outside the set
    return tokens.gather(1, torch.minimum(place, last)).squeeze(1)


def uniforms(seed: int, first: int, texts: int, steps: int) -> np.ndarray:
    """Draws of the texts numbered from `first`, (texts, steps): each text has a stream of its own."""
    streams = [np.random.Generator(np.random.Philox(key=[seed, first + number])) for number in range(texts)]
    return np.stack([stream.random(steps) for stream in streams])


def begin(model: ConditionalLm, prompts: Sequence[Sequence[int]], targets: Sequence[int], pad: int) -> State:
    """The state after reading every prompt but its last token; prompts may differ in length."""
    width = max(map(len, prompts)) - 1
    device = model.embedding.device
    fill = [width + 1 - len(prompt) for prompt in prompts]
    tokens = torch.tensor(
        [[*[pad] * missing, *prompt] for missing, prompt in zip(fill, prompts, strict=True)], device=device
    )
    mask = (torch.arange(width) >= torch.tensor(fill)[:, None]).long().to(device)
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    output = model.lm.base_model(
        input_ids=tokens[:, :-1], attention_mask=mask, position_ids=positions, past_key_values=DynamicCache()
    )
    past = _past(output.past_key_values)
    return State(
        last=tokens[:, -1],
        plain=past,
        steered=past,
        mask=mask,
        sums=torch.zeros(len(prompts), model.embedding.shape[1], device=device),
        targets=torch.tensor(targets, device=device),
        written=0,
    )


def _forward(model: ConditionalLm, state: State, past: Past) -> tuple[torch.Tensor, Past]:
    """Hidden state (B, width) of `last` after `past`, and the past with it."""
    return _extend(model, model.lm.get_input_embeddings()(state.last), past, state.mask)


def _extend(
    model: ConditionalLm, embedded: torch.Tensor, past: Past, mask: torch.Tensor
) -> tuple[torch.Tensor, Past]:
    """Hidden state (B, width) of one more, perhaps soft, token embedding (B, width), and the longer past."""
    output = model.lm.base_model(
        inputs_embeds=embedded[:, None],
        attention_mask=_seen(mask),
        position_ids=mask.sum(dim=1, keepdim=True),
        past_key_values=DynamicCache(past),
    )
    return output.last_hidden_state[:, -1], _past(output.past_key_values)


def look_ahead(
    model: ConditionalLm, state: State, past: Past, settings: DpLmGenerate
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the labels (B, labels) and of the next token (B, vocabulary) after `past` and `last`."""
    hidden, past = _forward(model, state, past)
    next_log_probs = log_probs = functional.log_softmax(model.logits(hidden) / settings.temperature, dim=-1)
    total = state.sums + hidden if state.written else state.sums
    mask = _seen(state.mask)
    for ahead in range(settings.horizon):
        hidden, past = _extend(model, log_probs.exp() @ model.embedding, past, mask)
        total, mask = total + hidden, _seen(mask)
        if ahead + 1 < settings.horizon:
            log_probs = functional.log_softmax(model.logits(hidden) / settings.temperature, dim=-1)
    mean = total / max(1, state.written + settings.horizon)
    return functional.log_softmax(model.head(mean), dim=-1), next_log_probs


def _steering_loss(
    model: ConditionalLm, state: State, past: Past, plain_log_probs: torch.Tensor, settings: DpLmGenerate
) -> torch.Tensor:
    """Sum over rows of the cross entropy to the wanted label plus the scaled KL to the plain distribution."""
    labels, tokens = look_ahead(model, state, past, settings)
    wanted = functional.nll_loss(labels, state.targets, reduction="sum")
    return wanted + settings.kl_scale * functional.kl_div(plain_log_probs, tokens, reduction="sum", log_target=True)


def _step(
    layer: tuple[torch.Tensor, torch.Tensor], gradient: tuple[torch.Tensor, torch.Tensor], settings: DpLmGenerate
) -> tuple[torch.Tensor, torch.Tensor]:
    """Move one layer's keys and values against the gradient, scaled per sequence."""
    keys, values = (part.square().sum(dim=(1, 2, 3), keepdim=True) for part in gradient)
    scale = settings.step_size / ((keys + values).sqrt() + _TINY) ** settings.gamma
    moved = [tensor.detach() - scale * part for tensor, part in zip(layer, gradient, strict=True)]
    return moved[0], moved[1]


def _forbid(log_probs: torch.Tensor, ids: Specials, first: bool) -> None:
    """Make control tokens impossible, and EOS as the first token of a text."""
    banned = sorted(ids.control | {ids.eos} if first else ids.control - {ids.eos})
    log_probs[:, banned] = -torch.inf
    log_probs -= log_probs.logsumexp(dim=-1, keepdim=True)


def _past(cache: DynamicCache) -> Past:
    return tuple((layer.keys, layer.values) for layer in cache.layers)  # type: ignore[misc, union-attr]


def _select(past: Past, rows: torch.Tensor) -> Past:
    return tuple((keys[rows], values[rows]) for keys, values in past)


def _seen(mask: torch.Tensor) -> torch.Tensor:
    """The mask with one more real column."""
    return torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
