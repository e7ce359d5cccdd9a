"""A judge on this machine: a causal language model's answers behind a prompt, chosen among labels, or written.

A prompt is the instruction, the demonstrations and an item. The part before the item is read once; items are then
read side by side on copies of its keys and values. All answers to an item stand in one row, and none sees another.
"""

import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.audit.utility import label_indices
from palimpsest.errors import ParamsError
from palimpsest.models.attention import Masks, masks_of, measure_logits, require_plain_head
from palimpsest.models.tokens import Specials, encode_texts, specials
from palimpsest.records.record import Record
from palimpsest.records.segment import wording
from palimpsest_lab.audits.incontext import Judge
from palimpsest_lab.audits.incontext_settings import CONTENT_FREE, LABEL, TEXT, InContext

Past = tuple[tuple[torch.Tensor, torch.Tensor], ...]  # per layer: keys and values, (1, heads, time, head width)
Tokens = Sequence[int]
Answered = Callable[[Past, Sequence[Tokens], Sequence[str]], np.ndarray]  # beginning, items, true labels -> (items,)
_MOST_HELD = 1 << 30  # bytes of the beginning's keys and values, over all items side by side

# Free answers: likeliest first tokens that calibration chooses among. Further out the quotient of two tiny
# probabilities says nothing.
FIRST_TOKENS = 100


@dataclass(frozen=True)
class TokenPrompts:
    """The templates in tokens.

    Every piece is tokenised by itself, so that its length is known and a text can be cut to the token. A space before
    a text or an answer belongs to the piece that it leads, as it does within ordinary text. White space inside a text
    becomes single spaces: line breaks belong to the template.
    """

    tokenizer: PreTrainedTokenizerBase
    settings: InContext

    @cached_property
    def ids(self) -> Specials:
        """The tokenizer's special tokens."""
        return specials(self.tokenizer)

    @cached_property
    def start(self) -> list[int]:
        """The beginning-of-text token and the instruction."""
        return [self.ids.bos, *self._piece(self.settings.instruction)]

    def items(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Return each text, its first `most` tokens, within its template and up to where an answer follows."""
        before, after = (self._piece(piece.rstrip(" ")) for piece in (self._around[0], self._bridge))
        return [[*before, *text, *after] for text in self._encode_after(_gap(self._around[0]), texts, most)]

    def answers(self, words: Sequence[str], most: int = sys.maxsize) -> list[list[int]]:
        """Return the first `most` tokens of each answer, without the template's text behind it."""
        return self._encode_after(_gap(self._bridge), words, most)

    def demonstrations(self, texts: Sequence[str], answers: Sequence[Tokens]) -> list[list[int]]:
        """Return each text with its answer."""
        items = self.items(texts, self.settings.demonstration_tokens)
        return [[*item, *answer, *self._tail] for item, answer in zip(items, answers, strict=True)]

    def count_cut(self, texts: Sequence[str], most: int) -> int:
        """Count the texts with more than `most` tokens."""
        return sum(len(tokens) > most for tokens in self._encode_after(_gap(self._around[0]), texts, most + 1))

    def needs(self, shots: int, longest_answer: int) -> int:
        """Count positions of the longest prompt and answer that the settings allow: equal for all rows and draws."""
        around, behind = len(self.items([""], 0)[0]), len(self._tail)
        demonstration = around + self.settings.demonstration_tokens + longest_answer + behind
        return len(self.start) + shots * demonstration + around + self.settings.item_tokens + longest_answer

    @cached_property
    def _tail(self) -> list[int]:
        """The template's text behind an answer."""
        return self._piece(self.settings.answer.partition(LABEL)[2])

    @property
    def _around(self) -> tuple[str, str]:
        before, _, after = self.settings.item.partition(TEXT)
        return before, after

    @property
    def _bridge(self) -> str:
        """The template's text between a text and its answer."""
        return self._around[1] + self.settings.answer.partition(LABEL)[0]

    def _piece(self, text: str) -> list[int]:
        return encode_texts(self.tokenizer, [text], sys.maxsize)[0]

    def _encode_after(self, gap: str, texts: Sequence[str], most: int) -> list[list[int]]:
        return encode_texts(self.tokenizer, [gap + " ".join(text.split()) for text in texts], most)


@dataclass(frozen=True)
class Reading:
    """B items, read behind one beginning."""

    log_probs: torch.Tensor  # of the token after each item, (B, vocabulary)
    cache: DynamicCache  # keys and values of the beginning, padding and each item
    mask: torch.Tensor  # which columns of the cache are real, int64 (B, time)


@torch.no_grad()
def read(model: PreTrainedModel, tokens: Tokens) -> Past:
    """Read the tokens before the items, at least one; return their keys and values."""
    cache, inputs = DynamicCache(), torch.tensor([list(tokens)], device=model.device)
    model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return tuple((layer.keys, layer.values) for layer in cache.layers)  # type: ignore[misc, union-attr]


@torch.no_grad()
def read_items(model: PreTrainedModel, past: Past, items: Sequence[Tokens], pad: int) -> Reading:
    """Read items of any lengths side by side; padding stands between the beginning and an item, and is not seen."""
    before, width = past[0][0].shape[2], max(map(len, items))
    fill = torch.tensor([width - len(item) for item in items])
    rows = [[*[pad] * (width - len(item)), *item] for item in items]
    real = (torch.arange(width) >= fill[:, None]).long()
    mask = torch.cat([real.new_ones(len(items), before), real], dim=1).to(model.device)
    cache = DynamicCache(tuple(tuple(states.expand(len(items), -1, -1, -1) for states in layer) for layer in past))
    keys = mask.cumsum(dim=1) - 1
    visible = (
        torch.ones(width, before + width, dtype=torch.bool, device=model.device).tril(before) & mask.bool()[:, None]
    )
    output = model(
        input_ids=torch.tensor(rows, device=model.device),
        attention_mask=_masks(model, visible, keys[:, before:], keys),
        position_ids=keys[:, before:],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return Reading(functional.log_softmax(output.logits[:, -1], dim=-1), cache, mask)


@torch.no_grad()
def score_answers(model: PreTrainedModel, reading: Reading, answers: Sequence[Tokens]) -> torch.Tensor:
    """Return the log-probability of each answer after each item, summed over its tokens, (B, answers).

    The answers' tokens stand in one row behind the item, each at its own answer's place and blind to other answers, so
    nothing is read twice. The reading's cache grows by them: it is used up.
    """
    first = reading.log_probs[:, torch.tensor([answer[0] for answer in answers], device=reading.log_probs.device)]
    inputs = list(chain.from_iterable(answer[:-1] for answer in answers))
    if not inputs:
        return first
    targets = torch.tensor(list(chain.from_iterable(answer[1:] for answer in answers)), device=first.device)
    owners = [owner for owner, answer in enumerate(answers) for _ in answer[1:]]
    within = torch.tensor([place for answer in answers for place in range(len(answer) - 1)], device=first.device)
    places = reading.mask.sum(dim=1, keepdim=True) + within
    hidden = model.base_model(
        input_ids=torch.tensor([inputs] * len(first), device=first.device),
        attention_mask=_masks(
            model,
            _separate_answers(reading.mask, owners),
            places,
            torch.cat([reading.mask.cumsum(dim=1) - 1, places], dim=1),
        ),
        position_ids=places,
        past_key_values=reading.cache,
        use_cache=True,
    ).last_hidden_state
    later = -measure_logits(model, hidden.flatten(0, 1), targets.repeat(len(first))).view(len(first), -1)
    return first.index_add(1, torch.tensor(owners, device=first.device), later)


@torch.no_grad()
def write_tokens(
    model: PreTrainedModel, reading: Reading, first: torch.Tensor, prompts: TokenPrompts, most: int
) -> list[list[int]]:
    """Write the likeliest continuation of each item, token by token, until every answer has ended or has `most` tokens.

    Args:
        reading: the items; used up.
        first: the first tokens, int64 (B,).
        prompts: the tokenizer and its special tokens.
        most: tokens of an answer, at most.
    """
    last, mask, rows = first, reading.mask, first[:, None]
    for _ in range(most - 1):
        if all(_has_ended(row, prompts) for row in rows.tolist()):
            break
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        keys = mask.cumsum(dim=1) - 1
        output = model(
            input_ids=last[:, None],
            attention_mask=_masks(model, mask.bool()[:, None], keys[:, -1:], keys),
            position_ids=keys[:, -1:],
            past_key_values=reading.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        last = output.logits[:, -1].argmax(dim=-1)
        rows = torch.cat([rows, last[:, None]], dim=1)
    return rows.tolist()


def answer_text(row: Tokens, prompts: TokenPrompts) -> str:
    """Return the text of a row of tokens before its first line break or end of text."""
    return _decode_row(row, prompts).partition("\n")[0]


def _masks(model: PreTrainedModel, visible: torch.Tensor, places: torch.Tensor, keys: torch.Tensor) -> Masks:
    """Return what a model's layers add to attention scores; windows count positions, so padding in between takes none.

    Args:
        visible: which columns each of n tokens may see at all, bool (B, n, time).
        places: the tokens' positions, (B, n).
        keys: the columns' positions, (B, time).
    """
    apart = places[..., None] - keys[:, None]
    return masks_of(model.config, visible[:, None], apart[:, None], model.dtype)


def _separate_answers(mask: torch.Tensor, owners: Sequence[int]) -> torch.Tensor:
    """Tell which columns n new tokens see, bool (B, n, time + n): the past and their own answer so far."""
    own = torch.tensor(owners, device=mask.device)
    among = (own[:, None] == own[None, :]).tril().expand(len(mask), -1, -1)
    return torch.cat([mask.bool()[:, None].expand(-1, len(owners), -1), among], dim=-1)


def _gap(piece: str) -> str:
    """Return the spaces at the end of a template's piece."""
    return piece[len(piece.rstrip(" ")) :]


def _has_ended(row: Tokens, prompts: TokenPrompts) -> bool:
    return prompts.ids.eos in row or "\n" in _decode_row(row, prompts)


def _decode_row(row: Tokens, prompts: TokenPrompts) -> str:
    kept = list(row[: row.index(prompts.ids.eos)] if prompts.ids.eos in row else row)
    return str(prompts.tokenizer.decode(kept, skip_special_tokens=True))


# --- two ways of answering, calibrated unless the settings say no (Zhao et al. 2021) ---------------------------------


class Answerer(Judge):
    """A way of answering items behind a beginning that was read."""

    def __init__(self, model: PreTrainedModel, prompts: TokenPrompts) -> None:
        self.model, self.prompts = model, prompts

    @property
    def context(self) -> int:
        return int(self.model.config.get_text_config().max_position_embeddings)

    def needs(self, shots: int) -> int:
        return self.prompts.needs(shots, self.longest)

    def count_cut(self, texts: Sequence[str]) -> int:
        return self.prompts.count_cut(texts, self.prompts.settings.item_tokens)

    def judge_items(self, shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        return self._ask_behind(shown, asked, self.are_right)

    def _ask_behind(self, shown: Sequence[Record], asked: Sequence[Record], answered: Answered) -> np.ndarray:
        """Return the finding for each item behind these demonstrations, (asked,)."""
        answers = self.answers([row.label or "" for row in shown])
        before = self.prompts.demonstrations([row.text for row in shown], answers)
        past = read(self.model, [*self.prompts.start, *chain.from_iterable(before)])
        items = self.prompts.items([row.text for row in asked], self.prompts.settings.item_tokens)
        order = np.argsort([len(item) for item in items], kind="stable")  # so that batches hold little padding
        found = answered(past, [items[index] for index in order], [asked[index].label or "" for index in order])
        return found[np.argsort(order)]

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest answer."""

    @abstractmethod
    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        """Return these labels in tokens, as demonstrations show them."""

    @abstractmethod
    def are_right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        """Tell which items are answered right, bool (items,)."""

    def _readings(self, past: Past, items: Sequence[Tokens]) -> Iterator[Reading]:
        """Yield the items in batches, each read on request: as many items as copies of the beginning leave room for."""
        held = sum(states.numel() * states.element_size() for layer in past for states in layer)
        batch = max(1, min(self.prompts.settings.batch, _MOST_HELD // held))
        for start in range(0, len(items), batch):
            yield read_items(self.model, past, items[start : start + batch], self.prompts.ids.pad)

    def _content_free_items(self) -> list[list[int]]:
        return self.prompts.items(CONTENT_FREE, self.prompts.settings.item_tokens)


def local_judge(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, labels: Sequence[str], settings: InContext
) -> Answerer:
    """Make a judge of a public language model, on its device; it chooses a label, or writes where there are none.

    Raises:
        ParamsError: the verbalisers and the labels differ, or a label's word has no token.
        ModelError: the model does more to its logits than its head and a cap.
    """
    require_plain_head(model)
    prompts = TokenPrompts(tokenizer, settings)
    return Chooser(model, prompts, labels) if labels else AnswerWriter(model, prompts)


class Chooser(Answerer):
    """Chooses the label whose words are likeliest behind the item, calibrated if that is asked for."""

    balanced = True

    def __init__(self, model: PreTrainedModel, prompts: TokenPrompts, labels: Sequence[str]) -> None:
        super().__init__(model, prompts)
        self._labels, self._options = list(labels), prompts.answers(prompts.settings.words(labels))
        if not all(self._options):
            raise ParamsError("A label's word has no token of the model.", "Give it another word in verbalisers.")

    @property
    def longest(self) -> int:
        return max(map(len, self._options))

    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        return [self._options[index] for index in label_indices(labels, self._labels)] if labels else []

    def are_right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        chosen = self._calibrate_scores(past, items).argmax(dim=1).cpu().numpy()
        return chosen == label_indices(truth, self._labels)

    def own_probabilities(self, shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        """Return each item's probability of its own label among all, behind these demonstrations, float64 (asked,)."""
        return self._ask_behind(shown, asked, self._read_own)

    def _read_own(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        probabilities = self._calibrate_scores(past, items).double().softmax(dim=1).cpu().numpy()
        return probabilities[np.arange(len(items)), label_indices(truth, self._labels)]

    def _calibrate_scores(self, past: Past, items: Sequence[Tokens]) -> torch.Tensor:
        """Score all labels by logs, (items, labels), less those of inputs without content where that is asked for."""
        scores = self._scores(past, items)
        if not self.prompts.settings.calibrate:
            return scores
        return scores - content_free_bias(self._scores(past, self._content_free_items()))

    def _scores(self, past: Past, items: Sequence[Tokens]) -> torch.Tensor:
        readings = self._readings(past, items)
        return torch.cat([score_answers(self.model, reading, self._options) for reading in readings])


class AnswerWriter(Answerer):
    """Writes the likeliest answer; only its first token is calibrated, as the later ones follow from it."""

    balanced = False

    @property
    def longest(self) -> int:
        return self.prompts.settings.answer_tokens

    def answers(self, labels: Sequence[str]) -> list[list[int]]:
        return self.prompts.answers(labels, self.longest)

    def are_right(self, past: Past, items: Sequence[Tokens], truth: Sequence[str]) -> np.ndarray:
        bias = self._bias(past) if self.prompts.settings.calibrate else None
        written = chain.from_iterable(self._write_answers(reading, bias) for reading in self._readings(past, items))
        return np.array([has_same_wording(*pair) for pair in zip(written, truth, strict=True)])

    def _bias(self, past: Past) -> torch.Tensor:
        """Return the score that inputs without content give each first token, (vocabulary,)."""
        free = self._readings(past, self._content_free_items())
        return content_free_bias(torch.cat([reading.log_probs for reading in free]))

    def _write_answers(self, reading: Reading, bias: torch.Tensor | None) -> list[str]:
        settings, vocabulary = self.prompts.settings, reading.log_probs.shape[1]
        scores, tokens = reading.log_probs.topk(min(FIRST_TOKENS, vocabulary), dim=1)
        lifted = scores if bias is None else scores - bias[tokens]
        first = tokens.gather(1, lifted.argmax(dim=1, keepdim=True)).squeeze(1)
        rows = write_tokens(self.model, reading, first, self.prompts, settings.answer_tokens)
        return [answer_text(row, self.prompts) for row in rows]


def content_free_bias(scores: torch.Tensor) -> torch.Tensor:
    """Return the log of the answers' mean probabilities, (answers,), from log-scores (content-free inputs, answers)."""
    return functional.log_softmax(scores, dim=-1).logsumexp(dim=0) - math.log(len(scores))


def has_same_wording(answer: str, truth: str) -> bool:
    """Tell whether an answer is the true label but for case, punctuation and spaces; a label without a word never is.

    >>> has_same_wording(" Josh  Trank.", "josh trank"), has_same_wording("", "?")
    (True, False)
    """
    return bool(wording(truth)) and wording(answer) == wording(truth)
