"""A public language model that continues many beginnings side by side, and scores how well a text fits what follows.

Every beginning has its own random draws, so its continuation depends neither on its neighbours nor on their number,
except for rounding.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError
from palimpsest.models.grammar import Grammar, Spelling
from palimpsest.models.tokens import Specials, line_ends, pad_right, specials
from palimpsest.records.segment import ENDS

_LIKELIEST = 256  # tokens that mostly hold a nucleus; finding them takes a quarter of the time of a full sort, or less
_HASTE = 0.5  # nats that each further token adds to the ends of a text that is due
_ROOMY = 7 / 8  # below this share of unfinished texts the finished ones are dropped from memory
_SHORTEST = 0.75  # of the tokens that a text may have: from when the end of its sentence closes it
_BLANKS = re.compile(r" {2,}")
_SENTENCE_END = re.compile(rf"[{ENDS}][\"')」』”]*$")


@dataclass(frozen=True, eq=False)
class Start:
    """A beginning to continue.

    Attributes:
        tokens: token ids, at least one.
        least: tokens that are written before the text may end, at least 1.
        due: tokens after which the text ends with the next sentence, and is pushed to end it.
        coins: draws in [0, 1), one for each token that may be written at most, shape (most,).
        kept: how many of the tokens, the last ones, are the text's own beginning.
    """

    tokens: Sequence[int]
    least: int
    due: int
    coins: np.ndarray
    kept: int = 0

    @property
    def within_record(self) -> "Start":
        """The same for a text that a grammar ends."""
        return replace(self, least=1, due=len(self.coins))


@dataclass(frozen=True, eq=False)
class Gap:
    """A gap to fill.

    Attributes:
        before: token ids, at least one.
        after: token ids that follow it, at least one.
        coins: draws in [0, 1) of each proposal, one for each of its tokens; every gap has as many proposals.
    """

    before: Sequence[int]
    after: Sequence[int]
    coins: Sequence[np.ndarray]


class Writer:
    """A causal language model that writes.

    Attributes:
        ids: its special tokens.
        ends: tokens that end a sentence.
        context: most tokens that it can read and write together.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        temperature: float,
        top_p: float,
        line: bool = False,
        json_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Sample at `temperature` from the smallest set of likeliest tokens whose probability reaches `top_p`.

        With `line` a new line ends a text, as EOS does. With a schema a text that `go_on` writes is a record of it, but
        where its beginning is the beginning of none; `fill` does not know how a record would go on behind a gap.
        """
        width = model.get_output_embeddings().weight.shape[0]
        self._grammar = None if json_schema is None else Grammar(tokenizer, json_schema, width)
        self.ids = specials(tokenizer)
        self.context = int(model.config.get_text_config().max_position_embeddings)
        self._model, self._temperature, self._top_p = model, temperature, top_p
        self._banned = torch.tensor(
            _unwritable_tokens(model, tokenizer, self.ids), device=model.device, dtype=torch.long
        )
        self.ends = _sentence_ends(tokenizer)
        self._last = frozenset({self.ids.eos}) | (line_ends(tokenizer) if line else frozenset())
        self._ending = torch.tensor(sorted(self._last), device=model.device)
        self._closing = torch.tensor(sorted(self.ends | self._last), device=model.device)

    def room(self, head: Sequence[int], most: int, parts: int = 1) -> int:
        """Return how many tokens a text may have after its head, or each of so many texts, at most `most`.

        Raises:
            ModelError: there is no room for any token.
        """
        room = (self.context - len(head) - 1) // parts
        if room < 1:
            raise ModelError(
                f"{len(head)} tokens before a text leave no room in the model's {self.context} positions.",
                "Shorten label names and prompt, show fewer examples, or use a model with a longer context.",
            )
        return min(most, room)

    def start_text(self, head: Sequence[int], most: int, stream: np.random.Generator) -> Start:
        """The beginning of a text of at most `most` tokens after only its head, with draws from a stream."""
        room = self.room(head, most)
        return Start(head, 1, round(_SHORTEST * room), stream.random(room))

    @torch.no_grad()
    def go_on(self, starts: Sequence[Start]) -> list[list[int]]:
        """Return the continuation of each start, all written side by side.

        A text ends with EOS or a similar token, which is not part of it, or with the end of a sentence after `due`
        tokens, or with its last draw. No control token occurs in it.

        Raises:
            ModelError: a start and its longest text do not fit the model.
        """
        texts: list[list[int]] = [[] for _ in starts]
        if not starts:
            return texts
        _require_room([len(start.tokens) + len(start.coins) for start in starts], self.context)
        grammar = self._grammar
        records = [None if grammar is None else _begin_record(grammar, start) for start in starts]
        starts = [start.within_record if record else start for start, record in zip(starts, records, strict=True)]
        walk, alive = _Walk(self._model, [start.tokens for start in starts], self.ids.pad), list(range(len(starts)))
        going = set(alive)
        while going:
            logits = walk.logits
            if grammar is not None:
                allowed = grammar.allowed([records[row] for row in alive]).to(logits.device)
                logits = logits.masked_fill(~allowed, -torch.inf)
            tokens = self._draw_next(logits, [starts[row] for row in alive], [len(texts[row]) for row in alive])
            for row, token in zip(alive, tokens, strict=True):
                if row not in going:
                    continue
                if not self._goes_on(token, texts[row], starts[row]):
                    going.discard(row)
                elif record := records[row]:
                    record.take(token)
            if going:
                places = _kept_places(alive, going)
                alive = [alive[place] for place in places]
                walk.keep(places)
                # A text that ended may be read on beside the others; its place stays, for it may be the model's last.
                walk.step([tokens[place] for place in places], [row in going for row in alive])
        return texts

    @torch.no_grad()
    def fill(self, gaps: Sequence[Gap]) -> list[list[int]]:
        """Return for each gap the proposal after which `after` is likeliest, of those drawn after `before`.

        The tokens before a gap are read once for all its proposals.

        Raises:
            ModelError: a gap and the tokens around it do not fit the model.
        """
        if not gaps:
            return []
        _require_room([len(gap.before) + len(gap.after) + max(map(len, gap.coins)) for gap in gaps], self.context)
        rows = [(index, coins) for index, gap in enumerate(gaps) for coins in gap.coins]
        walk = _Walk(self._model, [gap.before for gap in gaps], self.ids.pad)
        walk.keep([index for index, _ in rows])
        proposals: list[list[int]] = [[] for _ in rows]
        for step in range(max(len(coins) for _, coins in rows)):
            real = [step < len(coins) for _, coins in rows]
            uniforms = [float(coins[min(step, len(coins) - 1)]) for _, coins in rows]
            tokens = self._draw(walk.logits, uniforms, [True] * len(rows))
            for text, token, counts in zip(proposals, tokens, real, strict=True):
                text += [token] if counts else []
            walk.step(tokens, real)
        fits = walk.log_likelihoods([gaps[index].after for index, _ in rows]).reshape(len(gaps), -1)
        return [proposals[int(best) + index * fits.shape[1]] for index, best in enumerate(fits.argmax(axis=1))]

    def _draw_next(self, logits: torch.Tensor, starts: Sequence[Start], written: Sequence[int]) -> list[int]:
        """Draw a token for each start after so many written ones; a text that has ended gets an arbitrary one."""
        late = [max(0, number - start.due) for number, start in zip(written, starts, strict=True)]
        haste = _HASTE * self._temperature * torch.tensor(late, device=logits.device, dtype=torch.float32)
        hurried = logits.float().index_add(1, self._closing, haste[:, None].expand(-1, len(self._closing)))
        coins = [start.coins[min(n, len(start.coins) - 1)] for n, start in zip(written, starts, strict=True)]
        return self._draw(hurried, coins, [n < start.least for n, start in zip(written, starts, strict=True)])

    def _draw(self, logits: torch.Tensor, coins: Sequence[float], endless: Sequence[bool]) -> list[int]:
        """Draw a token for each row by its coin; never one that ends a text where the row is endless."""
        allowed = (logits.float() / self._temperature).index_fill(1, self._banned, -torch.inf)
        rows = torch.tensor(endless, device=logits.device).nonzero()  # (endless rows, 1)
        allowed[rows, self._ending] = -torch.inf
        uniforms = torch.tensor(coins, dtype=torch.float64, device=logits.device)
        return [int(token) for token in draw(functional.log_softmax(allowed, dim=-1), self._top_p, uniforms).tolist()]

    def _goes_on(self, token: int, text: list[int], start: Start) -> bool:
        """Append a token unless it ends the text; return whether the text goes on."""
        if token in self._last:
            return False
        text.append(token)
        return len(text) < len(start.coins) and not (len(text) >= start.due and token in self.ends)


class _Walk:
    """Unfinished rows: the model's cache of them, and its prediction of the next token.

    Attributes:
        logits: logits of the next token, shape (rows, vocabulary).
    """

    def __init__(self, model: PreTrainedModel, rows: Sequence[Sequence[int]], pad: int) -> None:
        self._model, self._cache, self._pad = model, DynamicCache(), pad
        width = max(map(len, rows))
        tokens = torch.tensor([[*[pad] * (width - len(row)), *row] for row in rows], device=model.device)
        fill = torch.tensor([width - len(row) for row in rows], device=model.device)
        self._mask = (torch.arange(width, device=model.device) >= fill[:, None]).long()
        self.logits = self._read(tokens, self._mask, 1)[:, -1]

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with the rows at these places; a place may be named more than once."""
        if list(rows) != list(range(len(self._mask))):
            places = torch.tensor(rows, device=self._mask.device)
            self._cache.batch_select_indices(places)
            self._mask, self.logits = self._mask[places], self.logits[places]

    def step(self, tokens: Sequence[int], real: Sequence[bool] | None = None) -> None:
        """Append a token to each row; none to rows that are not real."""
        kept = torch.tensor([True] * len(tokens) if real is None else real, device=self._mask.device)
        self._mask = torch.cat([self._mask, kept.long()[:, None]], dim=1)
        logits = self._read(torch.tensor(tokens, device=self._mask.device)[:, None], self._mask, 1)[:, -1]
        self.logits = torch.where(kept[:, None], logits, self.logits)

    def log_likelihoods(self, after: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probability of these tokens after each row, at least one each: float64 (rows,). It ends the walk."""
        targets = pad_right(after, self._pad).to(self._mask.device)  # (rows, most)
        real = pad_right([[1] * len(right) for right in after], 0).to(self._mask.device)
        logits = self.logits[:, None]
        if targets.shape[1] > 1:
            self._mask = torch.cat([self._mask, real[:, :-1]], dim=1)
            rest = self._read(targets[:, :-1], self._mask, targets.shape[1] - 1)
            logits = torch.cat([logits, rest], dim=1)
        likely = functional.log_softmax(logits.float(), dim=-1).gather(2, targets[:, :, None]).squeeze(2)
        return (likely.double() * real).sum(dim=1).cpu().numpy()

    def _read(self, tokens: torch.Tensor, mask: torch.Tensor, wanted: int) -> torch.Tensor:
        """Logits after the last `wanted` of these tokens, shape (rows, wanted, vocabulary)."""
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -tokens.shape[1] :]
        output = self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=wanted,
        )
        return output.logits


def decode_texts(tokenizer: PreTrainedTokenizerBase, written: Sequence[Sequence[int]]) -> list[str]:
    """Texts of the written tokens, without incomplete characters and runs of blanks."""
    texts = tokenizer.batch_decode([list(tokens) for tokens in written])
    return [_BLANKS.sub(" ", text.replace("\ufffd", "")).strip() for text in texts]


def draw(log_probs: torch.Tensor, top_p: float, uniforms: torch.Tensor, top_k: int = 0) -> torch.Tensor:
    """Draw from the smallest set of likeliest tokens whose probability reaches `top_p` (Holtzman et al. 2019).

    Args:
        log_probs: shape (B, vocabulary), of full probability.
        uniforms: one draw in [0, 1) per row, (B,).
        top_k: if not 0, `top_p` is a share of so many likeliest tokens, and no other is drawn.

    Returns:
        Token ids, int64 (B,).
    """
    if top_p == 1.0 and not top_k:
        return _pick_by_coin(log_probs.exp(), uniforms)
    likeliest, columns = log_probs.topk(min(top_k or _LIKELIEST, log_probs.shape[1]), dim=-1)
    probs = likeliest.exp()
    share = top_p * (probs.double().sum(dim=-1, keepdim=True) if top_k else torch.ones_like(probs[:, :1]))
    drawn = columns.gather(1, _pick_by_coin(_cut(probs, share), uniforms)[:, None]).squeeze(1)
    flat = (probs.sum(dim=-1) < top_p).nonzero().squeeze(1)  # their nucleus is larger
    if len(flat) and not top_k and probs.shape[1] < log_probs.shape[1]:
        drawn[flat] = _draw_from_all(log_probs[flat].exp(), share[flat], uniforms[flat])
    return drawn


def _draw_from_all(probs: torch.Tensor, share: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw a column of each row's nucleus by its coin, int64 (B,): likeliest first, and equals from left to right."""
    ordered = _sort_descending(probs)
    place = _pick_by_coin(_cut(ordered, share), uniforms)[:, None]
    drawn = ordered.gather(1, place)
    equal, before = probs == drawn, (ordered > drawn).sum(dim=-1, keepdim=True)
    return (equal & (equal.cumsum(dim=-1) == place - before + 1)).int().argmax(dim=-1)


def _sort_descending(probs: torch.Tensor) -> torch.Tensor:
    """Sort each row from the largest to the smallest: numpy takes a third of the time of a sort with indices."""
    if probs.device.type != "cpu":
        return probs.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(probs.numpy(), axis=-1)).flip(-1)


def _cut(probs: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Set sorted probabilities to 0 after the place where their sum reaches a row's share, (B, 1)."""
    return torch.where(probs.cumsum(dim=-1) - probs < share, probs, 0.0)


def _pick_by_coin(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the column of each row on which its coin falls: int64 (B,); never one of weight 0."""
    bounds = weights.double().cumsum(dim=-1)
    return torch.searchsorted(bounds, uniforms[:, None] * bounds[:, -1:], right=True).squeeze(1)


def _begin_record(grammar: Grammar, start: Start) -> Spelling | None:
    return grammar.begin(start.kept + len(start.coins), start.tokens[len(start.tokens) - start.kept :])


def _kept_places(alive: Sequence[int], open_rows: set[int]) -> list[int]:
    """Places of `alive` to continue with: the open ones, or all while nearly all are open."""
    if len(open_rows) > _ROOMY * len(alive):
        return list(range(len(alive)))
    return [place for place, row in enumerate(alive) if row in open_rows]


def _unwritable_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ids: Specials) -> list[int]:
    """Control tokens except EOS, and columns of the model that are not tokens."""
    added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    columns = range(len(tokenizer), int(model.get_output_embeddings().weight.shape[0]))
    return sorted({*(ids.control | added) - {ids.eos}, *columns})


def _sentence_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end in a full stop, an exclamation or question mark, with or without closing quotes and brackets."""
    spelt: Iterable[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return frozenset(number for number, token in enumerate(spelt) if token and _SENTENCE_END.search(token))


def _require_room(sizes: Iterable[int], context: int) -> None:
    """Raise ModelError unless texts of these sizes, in tokens, fit the model."""
    if (longest := max(sizes)) > context:
        raise ModelError(
            f"A beginning and what is written behind it need up to {longest} positions; the model has {context}.",
            "Lower max_tokens, or use a model with a longer context.",
        )
