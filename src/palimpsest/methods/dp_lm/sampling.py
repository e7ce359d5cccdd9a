"""Drawing synthetic rows from a fitted model: steered, the best of a few, filtered, until each label has its count.

Post-processing of the fitted model and of public models: it reads no private row and costs no privacy. Rows are drawn
in shards; a finished shard is kept, so a stopped run continues after it and ends with the same rows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from palimpsest.devices import exact_device
from palimpsest.errors import ModelError
from palimpsest.files import read_json, write_json
from palimpsest.methods.dp_lm.decoding import PlainWalk, Walk, uniforms, write
from palimpsest.methods.dp_lm.guidance import FudgeWalk, PplmWalk, StateWalk
from palimpsest.methods.dp_lm.likelihood import Encode, Judge, judge_of
from palimpsest.methods.dp_lm.model import ConditionalLm, DpLmArtifact, require_context
from palimpsest.methods.dp_lm.serialise import Serialiser
from palimpsest.methods.dp_lm.settings import VARIANTS, DpLmGenerate
from palimpsest.methods.shared.base import coins
from palimpsest.methods.shared.postprocess import Candidate, FilterChain
from palimpsest.methods.shared.tables import draw_values
from palimpsest.models.grammar import Grammar
from palimpsest.models.tokens import Specials
from palimpsest.progress import counter
from palimpsest.records.fields import Declared
from palimpsest.records.record import Record
from palimpsest.shards import map_items

_MOST_AHEAD = 4.0  # a label that loses nearly all to the filters is asked for so many times what it lacks


@dataclass(frozen=True)
class _Slot:
    """One row to draw: the `number`-th of its label, with the cells of its fields."""

    label: str
    number: int
    cells: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sampler:
    """Draws rows of every label.

    Attributes:
        variant: the paper's row, which says how tokens are steered.
        seed: numbers the texts' streams; nothing private comes from it.
        chain: the filters; a new chain for every sample.
        encode: the sentence encoder, where the discriminator reads one.
        shards: the folder of finished shards; none keeps nothing.
        json_schema: what each text is a record of; None where texts are plain.
    """

    settings: DpLmGenerate
    variant: str
    seed: int
    chain: FilterChain
    encode: Encode | None = None
    shards: Path | None = None
    json_schema: Mapping[str, Any] | None = None

    def sample(self, artifact: DpLmArtifact, counts: Mapping[str, int]) -> Iterator[Record]:
        """Draw exactly `counts[label]` records of each label, in that order.

        The rows depend on the seed, the artifact, the settings and the counts; not on the batch size, except for
        rounding, and not on where a run was stopped.

        Raises:
            ModelError: the filters leave a label short of its count after `settings.draws` draws per row, or a text
                may be longer than the model can read.
        """
        writer = _Writer(self, artifact)
        cells = {label: artifact.draw_cells(label, count, self.seed) for label, count in counts.items()}
        kept: dict[str, list[Record]] = {label: [] for label in counts}
        asked = dict.fromkeys(counts, 0)
        shown = counter(name="generate", total=sum(counts.values()), private=True)  # it also serves references
        shard = 0
        while missing := _count_missing(counts, kept):
            slots = [
                replace(slot, cells=tuple(cells[label][slot.number % counts[label]].tolist()))
                for label, lack in missing.items()
                for slot in self._ask(label, lack, kept, asked, counts)
            ]
            size = max(1, self.settings.batch // self.settings.best_of)
            parts = [slots[start : start + size] for start in range(0, len(slots), size)]
            for drawn in self._draw_shards(shard, parts, writer, artifact.fields):
                for candidate in self.chain.apply(drawn):
                    kept[candidate.record.label or ""].append(candidate.record)
                shown(sum(min(len(kept[label]), count) for label, count in counts.items()))
            shard += len(parts)
        for label, count in counts.items():
            yield from kept[label][:count]

    def _ask(
        self,
        label: str,
        lack: int,
        kept: Mapping[str, Sequence[Record]],
        asked: dict[str, int],
        counts: Mapping[str, int],
    ) -> list[_Slot]:
        """Return the next slots of a label: the missing rows, and more to make up for what the filters remove."""
        first, most = asked[label], counts[label] * self.settings.draws
        if first >= most:
            removed = self.chain.removed
            raise ModelError(  # without a count: the rows may be a reference's
                f"The filters leave too few rows of label {label!r} after {self.settings.draws} draws for each; "
                f"most are removed by {max(removed, key=removed.__getitem__)!r}.",
                "Loosen that filter (generate.filters), raise generate.best_of, or raise generate.draws. Drawing again "
                "costs no budget.",
            )
        ahead = min(_MOST_AHEAD, first / max(1, len(kept[label]))) if first else 1.0
        asked[label] = min(most, first + math.ceil(lack * max(1.0, ahead)))
        return [_Slot(label, number) for number in range(first, asked[label])]

    def _draw_shards(
        self, first: int, parts: Sequence[Sequence[_Slot]], writer: "_Writer", fields: Mapping[str, Declared]
    ) -> Iterator[list[Candidate]]:
        """Yield the shards from this number on; those that an earlier attempt drew are read, not drawn again."""
        paths = [self.shards / f"{first + index}.json" if self.shards else None for index in range(len(parts))]
        done = [path is not None and path.is_file() for path in paths]
        new = writer.draw([slots for slots, there in zip(parts, done, strict=True) if not there])
        for path, there, slots in zip(paths, done, parts, strict=True):
            rows = read_json(path) if path is not None and there else next(new)
            if path is not None and not there:
                write_json(path, rows)
            yield [
                Candidate(self._record(text, slot, fields), math.nan if probability is None else probability)
                for (text, probability), slot in zip(rows, slots, strict=True)
            ]

    def _record(self, text: str, slot: _Slot, fields: Mapping[str, Declared]) -> Record:
        told = draw_values(fields, slot.cells, coins(self.seed, slot.label, slot.number)) if fields else ()
        return Record(text, slot.label or None, told)


def _count_missing(counts: Mapping[str, int], kept: Mapping[str, Sequence[Record]]) -> dict[str, int]:
    lacks = {label: count - len(kept[label]) for label, count in counts.items()}
    return {label: lack for label, lack in lacks.items() if lack > 0}


class _Writer:
    """Writes texts for slots and keeps the best of each slot's."""

    def __init__(self, sampler: Sampler, artifact: DpLmArtifact) -> None:
        settings = sampler.settings
        model = artifact.model.to(exact_device())
        rows = replace(artifact.serialiser(), max_tokens=settings.max_tokens, loss_on="text")
        require_context(model, rows.longest_prompt + settings.max_tokens + 1 + settings.horizon)
        names = tuple(artifact.shares)
        wanted, width = sampler.json_schema, len(model.embedding)
        grammar = None if wanted is None else Grammar(artifact.tokenizer, wanted, width)
        self._pen = _Pen(settings, sampler.variant, sampler.seed, model, artifact.tokenizer, rows, names, grammar)
        judged = settings.best_of > 1 or "label" in settings.filters.chain
        judging = artifact.judging.to(exact_device())
        self._judge = judge_of(judging, rows, sampler.encode) if judged else None

    def draw(self, parts: Sequence[Sequence[_Slot]]) -> Iterator[list[tuple[str, float | None]]]:
        """For each part, a text for each slot with the probability of its label; None where nobody judges."""
        best_of = self._pen.settings.best_of
        repeated = [[slot for slot in slots for _ in range(best_of)] for slots in parts]
        for slots, texts in zip(repeated, map_items(self._pen, repeated), strict=True):
            if self._judge is None:
                yield [(text, None) for text in texts]
            else:
                yield _pick_best(texts, self._own_probabilities(self._judge, texts, slots), best_of)

    def _own_probabilities(self, judge: Judge, texts: Sequence[str], slots: Sequence[_Slot]) -> np.ndarray:
        """The probability of each text's own label; 0 for a text without a word."""
        likely = judge(texts)[range(len(texts)), [self._pen.names.index(slot.label) for slot in slots]]
        return np.where([bool(text) for text in texts], likely, 0.0)


@dataclass(frozen=True, eq=False)
class _Pen:
    """Writes a text for each of some slots, which name a slot `best_of` times."""

    settings: DpLmGenerate
    variant: str
    seed: int
    model: ConditionalLm
    tokenizer: PreTrainedTokenizerBase
    rows: Serialiser
    names: tuple[str, ...]
    grammar: Grammar | None

    def __call__(self, slots: Sequence[_Slot]) -> list[str]:
        settings, places = self.settings, [self.names.index(slot.label) for slot in slots]
        streams = _streams(slots, settings.best_of)
        coins = [uniforms(self.seed, *stream, settings.max_tokens) for stream in zip(places, streams, strict=True)]
        prompts = [self.rows.prompt(slot.label, slot.cells) for slot in slots]
        walk = walk_of(self.variant, self.model, prompts, places, self.rows.ids, settings)
        tokens = write(walk, self.rows.ids, settings, np.stack(coins), self.grammar)
        return [text.strip() for text in self.tokenizer.batch_decode(tokens)]


def walk_of(
    variant: str,
    model: ConditionalLm,
    prompts: Sequence[Sequence[int]],
    targets: Sequence[int],
    ids: Specials,
    settings: DpLmGenerate,
) -> Walk:
    """Return texts after their prompts, steered as the variant says: `targets` are the indices of their labels."""
    steering = VARIANTS[variant].steering
    if steering == "plain":
        return PlainWalk(model, prompts, ids.pad, settings.temperature)
    if steering == "pplm":
        return PplmWalk(model, prompts, targets, ids.pad, settings)
    return (FudgeWalk if steering == "fudge" else StateWalk)(model, prompts, targets, ids, settings)


def _streams(slots: Sequence[_Slot], best_of: int) -> list[int]:
    """The number of each draw's stream among its label's: `best_of` of them belong to one slot."""
    return [slot.number * best_of + index % best_of for index, slot in enumerate(slots)]


def _pick_best(texts: Sequence[str], probabilities: np.ndarray, best_of: int) -> list[tuple[str, float | None]]:
    """Return the text with the highest probability of each group of `best_of`; ties to the first."""
    choices = probabilities.reshape(-1, best_of).argmax(axis=1) + best_of * np.arange(len(texts) // best_of)
    return [(texts[choice], float(probabilities[choice])) for choice in choices]
