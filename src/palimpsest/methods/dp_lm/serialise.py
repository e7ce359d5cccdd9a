"""Rows as token sequences: `BOS label SEP text EOS`, and `BOS rand SEP text EOS` for the discriminator.

Where records have fields, their cells stand in words behind the label's prompt: `BOS label SEP fields SEP text EOS`.

`label SEP` stands for any prompt in words that a public template makes of a label; `rand` then replaces the label in
it. A record's label selects one of the public prompts, and its text follows the prompt. A prompt's tokens are public
constants: none depends on another record, so a record still adds one clipped gradient. So do its own fields.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from palimpsest.models.settings import BARE
from palimpsest.models.tokens import (
    Frame,
    Specials,
    blind_of,
    encode_texts,
    heads_of,
    pad_right,
    require_slots,
    specials,
)
from palimpsest.records.fields import Declared, decode_cells, domains_of
from palimpsest.records.record import Fields
from palimpsest.training.batches import bucket

UNLABELLED = ""  # the one label of a task without labels


class Serialisable(Protocol):
    """The fields of a record that are read."""

    @property
    def text(self) -> str: ...

    @property
    def label(self) -> str | None: ...
    @property
    def fields(self) -> str | Fields: ...


@dataclass(frozen=True)
class Batch:
    """B records, padded on the right: attention is causal, so no real token sees the padding.

    Attributes:
        prompted: `BOS label SEP text EOS`, int64 (B, T).
        counted: tokens of `prompted` that the LM loss predicts, bool (B, T).
        blinded: `BOS rand SEP text EOS`, int64 (B, T).
        text: text tokens of `blinded`, bool (B, T).
        labels: index of the label, int64 (B,).
    """

    prompted: torch.Tensor
    counted: torch.Tensor
    blinded: torch.Tensor
    text: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the batch to another device."""
        return Batch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Serialiser:
    """Turns records into batches with a public model's tokenizer.

    Attributes:
        tokenizer: the public base model's.
        ids: its special tokens.
        prompts: label -> tokens of its prompt, in the public order; it begins with BOS.
        blind: the prompt around the stand-in of a label.
        ordinary: ids that may stand in for a label, int64 (k,).
        max_tokens: tokens kept of a text.
        loss_on: "text" (text and EOS) or "all" (the label and SEP too).
        cells: tokens of each field's cells; none where records have no fields.
        entropy: number -> as many random bytes, for the stand-ins of labels.
    """

    tokenizer: PreTrainedTokenizerBase
    ids: Specials
    prompts: Mapping[str, tuple[int, ...]]
    blind: Frame
    ordinary: np.ndarray
    max_tokens: int
    loss_on: str
    cells: tuple[tuple[tuple[int, ...], ...], ...] = ()
    entropy: Callable[[int], bytes] = os.urandom

    def prompt(self, label: str, cells: Sequence[int] = ()) -> list[int]:
        """`BOS label SEP`, or what the template makes of the label, and `fields SEP` for the cells of a record."""
        told = [token for own, at in zip(self.cells, cells, strict=False) for token in own[at]]
        return [*self.prompts[label], *told, *([self.ids.sep] if told else [])]

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt, the discriminator's included."""
        longest = max(self.prompts, key=lambda label: len(self.prompts[label]))
        return max(len(self._blinds([0])[0]), len(self.prompt(longest, self.longest_cells)))

    @property
    def longest_cells(self) -> tuple[int, ...]:
        """The cells of the longest words, one for each field."""
        return tuple(max(range(len(own)), key=lambda at: len(own[at])) for own in self.cells)

    @property
    def tried_cells(self) -> tuple[str, ...]:
        """Cells of the shortest words, then of longer ones field by field: with texts of all lengths, every width."""
        short = [min(range(len(own)), key=lambda at: len(own[at])) for own in self.cells]
        steps = range(len(short) + 1)
        return tuple(",".join(map(str, [*self.longest_cells[:step], *short[step:]])) for step in steps)

    def batch(self, rows: Sequence[Serialisable]) -> Batch:
        """The two views of every row.

        Each row's stand-in for the label is drawn from the operating system's entropy, independently of all other
        rows. A seeded stream would be read in the order of the batch: one record more would change the stand-ins of
        the records after it, and with them more than one record's gradient.

        A row whose label is not public has no counted token, so its losses are 0: raising would tell that it exists.
        """
        labels = [self._label(row) for row in rows]
        texts = self._texts(rows, labels)
        prompts = self._prompts(rows, labels)
        blinds = self._blinds(self._stand_ins(len(rows)))
        prompted, blinded = _join(prompts, texts), _join(blinds, texts)
        from_text = [self.loss_on == "text" or label is None for label in labels]
        without_end = [len(row) - (row[-1] == self.ids.eos) for row in blinded]
        names: list[str | None] = list(self.prompts)
        width = max(map(self._width, prompted, blinded), default=0)
        starts = [len(prompt) if later else 1 for prompt, later in zip(prompts, from_text, strict=True)]
        return Batch(
            prompted=pad_right(prompted, self.ids.pad, width),
            counted=_range_mask(starts, [len(row) for row in prompted], width),
            blinded=pad_right(blinded, self.ids.pad, width),
            text=_range_mask([len(blind) for blind in blinds], without_end, width),
            labels=torch.tensor([names.index(label) if label is not None else 0 for label in labels]),
        )

    def widths(self, rows: Sequence[Serialisable]) -> list[int]:
        """Return the width to which `batch` pads each row if no row beside it is wider: a function of that row only."""
        labels = [self._label(row) for row in rows]
        texts = self._texts(rows, labels)
        blinds = self._blinds([self.ids.pad] * len(texts))
        return list(map(self._width, _join(self._prompts(rows, labels), texts), _join(blinds, texts)))

    def _width(self, prompted: Sequence[int], blinded: Sequence[int]) -> int:
        """The bucket of one row in both views, but never wider than the longest possible row."""
        return bucket(max(len(prompted), len(blinded)), self.longest_prompt + self.max_tokens + 1)

    def _prompts(self, rows: Sequence[Serialisable], labels: Sequence[str | None]) -> list[list[int]]:
        return [
            [self.ids.bos, self.ids.sep] if label is None else self.prompt(label, self._cells_of(row))
            for row, label in zip(rows, labels, strict=True)
        ]

    def _cells_of(self, row: Serialisable) -> tuple[int, ...]:
        """Return a row's cells; none where it has not one of each field: public text, and what was drawn."""
        cells = decode_cells(row.fields) if isinstance(row.fields, str) else ()
        whole = len(cells) == len(self.cells) and all(at < len(own) for at, own in zip(cells, self.cells, strict=True))
        return cells if whole else ()

    def _texts(self, rows: Sequence[Serialisable], labels: Sequence[str | None]) -> list[list[int]]:
        """Token ids with EOS; a text that is cut has none, because it does not end there."""
        encoded = encode_texts(self.tokenizer, [row.text for row in rows], self.max_tokens + 1)
        ended = [text[:-1] if len(text) > self.max_tokens else [*text, self.ids.eos] for text in encoded]
        return [[] if label is None else text for text, label in zip(ended, labels, strict=True)]

    def _label(self, row: Serialisable) -> str | None:
        label = UNLABELLED if tuple(self.prompts) == (UNLABELLED,) else row.label
        return label if label in self.prompts else None

    def _blinds(self, stand_ins: Sequence[int]) -> list[list[int]]:
        return [[*self.blind.before, rand, *self.blind.after] for rand in stand_ins]

    def _stand_ins(self, count: int) -> list[int]:
        words = np.frombuffer(self.entropy(8 * count), dtype=np.uint64)
        return self.ordinary[words % len(self.ordinary)].tolist()


def serialiser(
    tokenizer: PreTrainedTokenizerBase,
    labels: Sequence[str] | Mapping[str, str],
    max_tokens: int,
    loss_on: str,
    template: str = BARE,
    fields: Mapping[str, Declared] = MappingProxyType({}),
) -> Serialiser:
    """Return a serialiser for public labels; an empty list is a task without labels.

    Args:
        labels: their names, or label -> public description, where the template tells it.
        template: the prompt template that comes before a text.
        fields: their public declarations, where records have any.

    Raises:
        ParamsError: the template names a slot that there is not, or {text}.
    """
    require_slots("training", template, 0)
    ids = specials(tokenizer)
    told = labels if isinstance(labels, Mapping) else dict.fromkeys(labels, "")
    prompts = heads_of(tokenizer, template, told or {UNLABELLED: ""})
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), [*ids.control, ids.sep])
    blind, cells = blind_of(tokenizer, template), tuple(_spell_cells(tokenizer, fields))
    return Serialiser(tokenizer, ids, prompts, blind, ordinary, max_tokens, loss_on, cells)


def _spell_cells(
    tokenizer: PreTrainedTokenizerBase, fields: Mapping[str, Declared]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the tokens of each field's cells, the one of values without a cell last."""
    for place, (name, domain) in enumerate(zip(fields, domains_of(fields), strict=True)):
        words = [*map(domain.describe, range(domain.size)), "-"]
        yield tuple(
            tuple(tokenizer.encode(f"{', ' if place else ''}{name}: {one}", add_special_tokens=False)) for one in words
        )


def _join(left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[*a, *b] for a, b in zip(left, right, strict=True)]


def _range_mask(starts: Sequence[int], ends: Sequence[int], width: int) -> torch.Tensor:
    """Bool (rows, width): row i is True from starts[i] up to ends[i]."""
    places = torch.arange(width)
    after = places >= torch.tensor(starts, dtype=torch.long)[:, None]
    return after & (places < torch.tensor(ends, dtype=torch.long)[:, None])
