"""An author without instructions: a public language model that continues beginnings and fills gaps.

It stands in for an instruction-following model where there is none. Its input is public or synthetic: a public
template, filled with public labels, public texts, and texts that noisy votes selected.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle, groupby, islice, takewhile
from operator import add, itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from palimpsest.devices import dtype_of, exact_device
from palimpsest.errors import ParamsError
from palimpsest.methods.evolve.author import Author, occurrences
from palimpsest.methods.evolve.authors import Base
from palimpsest.methods.shared.base import coins
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import Frame, encode_texts, frames, heads_of
from palimpsest.models.writing import Gap, Start, Writer, decode_texts
from palimpsest.progress import track
from palimpsest.records.record import Record

_SHORTEST, _LONGEST = 0.75, 1.5  # of the tokens that are cut from a text: from when its new end may close, and must
_SPARE = 8  # tokens that it may have beyond, so that a short one can finish its sentence
_LENGTHS = (0, 0, 1, -1)  # one proposal for a gap each: tokens that it has more than what was there
_POOL = 64  # public texts of a label that examples are drawn from
_BETWEEN, _BLANK = "\n\n", " _"  # behind an example, and in place of a masked word
_AFTER = 8  # tokens behind a gap that judge the proposals
_DRAWS = 8  # times that new texts are asked for, while some are empty or there already
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, eq=False)
class _Draft:
    """A text to write.

    Attributes:
        label: of the record to come.
        source: the text that it comes from; "" where there is none.
        head: tokens that come before the text.
        words: the source's words as tokens, as many as there is room for; None where there is no source.
        stream: its own random draws.
    """

    label: str | None
    source: str
    head: list[int]
    words: list[list[int]] | None
    stream: np.random.Generator

    @property
    def size(self) -> int:
        """Tokens of the source."""
        return sum(map(len, self.words or []))


@dataclass(frozen=True, eq=False)
class _Blanks:
    """A text with gaps that are filled from left to right.

    Attributes:
        runs: tokens of its words, alternately of a gap and of the words after it; the first gap may be empty.
        room: tokens that the text may have.
        left: tokens that are written so far.
    """

    draft: _Draft
    runs: list[list[int]]
    room: int
    left: list[int] = field(default_factory=list)


class BaseAuthor:
    """A public causal language model as it is, or one that was taught prompts by `models.lm.learn_prompts`.

    Guarantee: all that reaches the model is the settings, the labels with their descriptions, public texts, and the
    synthetic texts that `vary` was given. What it writes is post-processing of these, and free.
    """

    def __init__(
        self,
        settings: Base,
        folder: Path,
        seed: int,
        corpus: Author | None = None,
        labels: Mapping[str, str] = MappingProxyType({}),
        json_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Load the model and its tokenizer.

        With `start: prompt` every text follows `prompt`: `BOS label SEP`, which `learn_prompts` teaches, or words; with
        `start: corpus` it follows only BOS, and the model gets no label. `corpus` gives the texts whose first words new
        texts begin with, and the examples. `labels` has their public descriptions. With `json_schema` texts are its
        records, but where gaps are filled, or the kept words begin none.

        Raises:
            ModelError: the folder holds no causal language model.
            ParamsError: new texts are to begin with public ones or to be shown them, and there are none.
        """
        if settings.shows_public and corpus is None:
            raise ParamsError(
                "The author begins new texts with public ones, and there is no public file.",
                "Name a public file in dataset.public, or set start to prompt, and examples and shots to 0.",
            )
        model, self._tokenizer = load_lm(folder, dtype_of(settings.precision))
        model.to(exact_device())  # type: ignore[arg-type]
        self._writer = Writer(
            model, self._tokenizer, settings.temperature, settings.top_p, settings.ends == "line", json_schema
        )
        self._settings, self._seed, self._corpus, self._labels = settings, seed, corpus, labels
        self._pools: dict[str, list[list[int]]] = {}
        self._near: dict[str, list[str]] = {}

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        """New texts, label by label in the order of `counts`.

        Empty and repeated texts are dropped; after prompts others are drawn in their place. Where public texts are too
        few to begin with, each is used again.

        Raises:
            ModelError: a label leaves no room for a text.
        """
        if self._settings.start == "whole" and self._corpus is not None:
            return self._corpus.random(counts)
        if self._settings.start == "prompt" or self._corpus is None:
            return self._write_prompted(counts)
        drafts = self._drafts(_repeat_records(self._corpus.random(counts), counts), 1, "random")
        return list(dict.fromkeys(_select_usable(drafts, self._write_drafts(drafts, self._endings))))

    def _write_prompted(self, counts: Mapping[str, int]) -> list[Record]:
        """Write new texts after the prompts; while a label lacks some, ask again for the missing ones, a few times."""
        found: dict[str, dict[Record, None]] = {label: {} for label in counts}
        asked = dict.fromkeys(counts, 0)
        for _ in range(_DRAWS):
            numbers = {
                label: range(asked[label], asked[label] + count - len(found[label])) for label, count in counts.items()
            }
            asked = {label: own.stop for label, own in numbers.items()}
            if not any(numbers.values()):
                break
            for record in self.write(numbers):
                found[record.label or ""][record] = None
        return [record for own in found.values() for record in own]

    def write(self, numbers: Mapping[str, Sequence[int]]) -> list[Record]:
        """Write the new texts of these numbers of each label, after its prompt; a number's is the same each time.

        Empty ones are dropped, equal ones are not.

        Raises:
            ModelError: a label leaves no room for a text.
        """
        drafts = [
            _Draft(label or None, "", self._opening(label, number), None, coins(self._seed, "random", label, number))
            for label, own in numbers.items()
            for number in own
        ]
        return list(_select_usable(drafts, self._write_drafts(drafts, self._endings)))

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        """Variations of each record with its label; those that are empty or equal to another or to it are dropped.

        A record that occurs more than once gets other variations each time. A text that exceeds `max_tokens` or the
        model's context is cut at the end, at a word.

        Raises:
            ModelError: a label leaves no room for a text.
        """
        drafts = self._drafts(records, times, turn)
        write = self._fillings if self._settings.vary == "infill" else self._endings
        texts = self._write_drafts(drafts, write)
        groups = [slice(start, start + times) for start in range(0, len(drafts), times)] if times else []
        varied = [list(dict.fromkeys(_select_usable(drafts[group], texts[group]))) for group in groups]
        return varied or [[] for _ in records]

    def _drafts(self, records: Sequence[Record], times: int, turn: int | str) -> list[_Draft]:
        """`times` drafts for each record, one after another."""
        words = {text: self._words(text) for text in dict.fromkeys(record.text for record in records)}
        drafts = []
        for record, before in zip(records, occurrences(records), strict=True):
            for number in range(before * times, (before + 1) * times):
                stream = coins(self._seed, turn, record.label, record.text, number)
                drafts.append(self._draft(record, words[record.text], stream))
        return drafts

    def _draft(self, record: Record, words: Sequence[list[int]], stream: np.random.Generator) -> _Draft:
        """The text after its label's prompt, or after the prompt that shows it whole or with blanks."""
        label = record.label or ""
        template = self._shows
        if template is None:
            head = self._head(label)
            return _Draft(record.label, record.text, head, _cut_to_room(words, self._room(head)), stream)
        around = frames(self._tokenizer, template, self._describe_label(label))[label]
        worked = self._worked_examples(label, around, stream)
        room = self._room([*worked, *around.before, *around.after], parts=2)  # read, and written as long again
        kept = _cut_to_room(words, room)
        shown = self._blank_words(kept, stream) if self._settings.vary == "blanks" else kept
        before = [*worked, *around.before[1:]] if worked else around.before  # one BOS is enough
        head = [*before, *_flatten(shown), *around.after]
        return _Draft(record.label, record.text, head, kept, stream)

    def _worked_examples(self, label: str, around: Frame, stream: np.random.Generator) -> list[int]:
        """Public texts, each masked in the prompt and then whole, with a BOS in front; nothing where none is shown."""
        if not self._settings.shots:
            return []
        pool = self._public_texts(label)
        tokens: list[int] = []
        for place in stream.permutation(len(pool))[: self._settings.shots]:
            words = _cut_to_room(self._words(pool[place]), self._settings.max_tokens)
            masked = self._blank_words(words, stream)
            before = around.before[bool(tokens) :]  # one BOS is enough
            tokens += [*before, *_flatten(masked), *around.after, *_flatten(words), *self._between]
        return tokens

    @property
    def _shows(self) -> str | None:
        """The prompt for rewriting a whole text; None where the text's own words are kept."""
        return {"paraphrase": self._settings.paraphrase, "blanks": self._settings.blanks}.get(self._settings.vary)

    def _blank_words(self, words: Sequence[list[int]], stream: np.random.Generator) -> list[list[int]]:
        """The words with a blank for each that is masked."""
        blank = self._tokenizer.encode(_BLANK, add_special_tokens=False)
        masked = stream.random(len(words)) < self._settings.masked
        return [blank if hidden else word for hidden, word in zip(masked.tolist(), words, strict=True)]

    def _write_drafts(self, drafts: Sequence[_Draft], write: Callable[[list[_Draft]], list[list[int]]]) -> list[str]:
        """The text of each draft, "" from a source without words; those of similar length are written side by side."""
        texts, usable = [""] * len(drafts), [index for index, draft in enumerate(drafts) if draft.words != []]
        order = sorted(usable, key=lambda index: drafts[index].size)
        batches = [order[start : start + self._side_by_side] for start in range(0, len(order), self._side_by_side)]
        for batch in track(batches, name="write", total=len(batches), private=True):
            tokens = write([drafts[index] for index in batch])
            for index, text in zip(batch, decode_texts(self._tokenizer, tokens), strict=True):
                texts[index] = text
        return texts

    @property
    def _side_by_side(self) -> int:
        gaps = self._settings.vary == "infill"
        return max(1, self._settings.batch // len(_LENGTHS)) if gaps else self._settings.batch

    def _endings(self, drafts: list[_Draft]) -> list[list[int]]:
        """The first words of each draft and an end of about the same length; a text of any length without a source."""
        anew = self._shows is not None
        kept = [[] if anew else _first_words(draft, self._settings.kept) for draft in drafts]
        starts = [self._start(draft, first) for draft, first in zip(drafts, kept, strict=True)]
        return [[*first, *rest] for first, rest in zip(kept, self._writer.go_on(starts), strict=True)]

    def _start(self, draft: _Draft, first: list[int]) -> Start:
        if draft.words is None:
            return self._writer.start_text(draft.head, self._settings.max_tokens, draft.stream)
        tokens, room, cut = [*draft.head, *first], self._room(draft.head) - len(first), draft.size - len(first)
        most, due = min(room, math.ceil(_LONGEST * cut) + _SPARE), max(1, round(_SHORTEST * cut))
        return Start(tokens, due, due, draft.stream.random(most), len(first))

    def _fillings(self, drafts: list[_Draft]) -> list[list[int]]:
        """Each draft with some of its words written anew."""
        texts = [self._blanks(draft) for draft in drafts]
        while open_texts := [text for text in texts if text.runs]:
            self._fill_next(open_texts)
        return [text.left for text in texts]

    def _blanks(self, draft: _Draft) -> _Blanks:
        """A draft with at least one gap; adjacent gaps are merged. The end mark of the last sentence stays."""
        words = draft.words or []
        masked = draft.stream.random(len(words)) < self._settings.masked
        if not masked.any():
            masked[draft.stream.integers(len(words))] = True
        close = [words[-1][-1:]] if len(words[-1]) > 1 and words[-1][-1] in self._writer.ends else []
        open_words = [*words[:-1], words[-1][:-1]] if close else words
        runs = _runs([*open_words, *close], [*masked.tolist(), *[False for _ in close]])
        return _Blanks(draft, runs, self._room(draft.head))

    def _fill_next(self, texts: Sequence[_Blanks]) -> None:
        """Fill the first gap of each text, and append the words after it."""
        gaps = [text.runs.pop(0) for text in texts]
        after: list[list[int]] = [text.runs.pop(0) if text.runs else [] for text in texts]
        parts = zip(texts, gaps, after, strict=True)
        open_texts = [(text, self._gap(text, len(gap), right)) for text, gap, right in parts if gap]
        for (text, _), filling in zip(open_texts, self._writer.fill([gap for _, gap in open_texts]), strict=True):
            text.left.extend(filling)
        for text, right in zip(texts, after, strict=True):
            text.left.extend(right)

    def _gap(self, text: _Blanks, size: int, right: Sequence[int]) -> Gap:
        """A gap of so many tokens with these after it; no proposal grows beyond the text's room."""
        spare = text.room - len(text.left) - size - len(right) - sum(map(len, text.runs))
        lengths = [max(1, size + min(more, spare)) for more in _LENGTHS]
        before, after = [*text.draft.head, *text.left], right[:_AFTER] or [self._writer.ids.eos]
        return Gap(before, after, [text.draft.stream.random(length) for length in lengths])

    def _head(self, label: str) -> list[int]:
        """Return the tokens that come before a text of the label."""
        if self._settings.start != "prompt":
            return [self._writer.ids.bos]
        return list(heads_of(self._tokenizer, self._settings.prompt, self._describe_label(label))[label])

    def _opening(self, label: str, number: int) -> list[int]:
        """Return the tokens before a label's `number`-th new text: examples, each after its prompt, then the prompt.

        From the first example on that would leave the text less room than `max_tokens`, none is shown.
        """
        head, pool = self._head(label), self._pool(label) if self._settings.examples else []
        order = coins(self._seed, "examples", label, number).permutation(len(pool))[: self._settings.examples]
        shown = ([*pool[place], *self._between, *head[1:]] for place in order)  # one BOS is enough
        longer = accumulate(shown, add, initial=head)
        most = self._writer.context - 1 - self._settings.max_tokens
        return max(takewhile(lambda opening: len(opening) <= most, longer), key=len, default=head)

    def _pool(self, label: str) -> list[list[int]]:
        """Tokens of public texts near a label's description, at most `max_tokens` of each."""
        if label not in self._pools:
            self._pools[label] = encode_texts(self._tokenizer, self._public_texts(label), self._settings.max_tokens)
        return self._pools[label]

    def _public_texts(self, label: str) -> list[str]:
        """Public texts near a label's description."""
        if label not in self._near and self._corpus is not None:
            self._near[label] = [record.text for record in self._corpus.random({label: _POOL})]
        return self._near[label]

    @property
    def _between(self) -> list[int]:
        return self._tokenizer.encode(_BETWEEN, add_special_tokens=False)

    def _describe_label(self, label: str) -> dict[str, str]:
        return {label: self._labels.get(label, "")}

    def _room(self, head: Sequence[int], parts: int = 1) -> int:
        """Tokens that a text may have after its head, or each of so many texts."""
        return self._writer.room(head, self._settings.max_tokens, parts)

    def _words(self, text: str) -> list[list[int]]:
        """Tokens of each word; white space belongs to the word after it."""
        pieces = _WORD.findall(text.strip())
        split = self._split_tokens if self._tokenizer.is_fast else self._encode_alone
        words = ([token for token in word if token not in self._writer.ids.control] for word in split(pieces))
        return [word for word in words if word]

    def _split_tokens(self, pieces: Sequence[str]) -> list[list[int]]:
        """Tokens of the whole text, each with the piece that it ends in."""
        owner = [index for index, piece in enumerate(pieces) for _ in piece]
        words: list[list[int]] = [[] for _ in pieces]
        if pieces:
            encoded = self._tokenizer(
                "".join(pieces), add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            for token, (_, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
                words[owner[max(0, end - 1)]].append(token)
        return words

    def _encode_alone(self, pieces: Sequence[str]) -> list[list[int]]:
        """Tokens of each piece by itself: a tokenizer in Python does not say where in a text its tokens stand."""
        return [self._tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]


def _flatten(words: Sequence[Sequence[int]]) -> list[int]:
    return [token for word in words for token in word]


def _first_words(draft: _Draft, kept: tuple[float, float]) -> list[int]:
    """Tokens of a draft's first words: a randomly drawn share, at least one and never all; none of a single word."""
    words = draft.words or []
    if len(words) < 2:
        return []
    share = kept[0] + (kept[1] - kept[0]) * draft.stream.random()
    count = min(max(1, round(share * len(words))), len(words) - 1)
    return _flatten(words[:count])


def _cut_to_room(words: Sequence[list[int]], room: int) -> list[list[int]]:
    """The first words that have at most `room` tokens together."""
    sizes = np.cumsum([len(word) for word in words])
    return list(words[: int(np.searchsorted(sizes, room, side="right"))])


def _runs(words: Sequence[list[int]], masked: Sequence[bool]) -> list[list[int]]:
    """Tokens of gaps and of the words between them, alternately, a gap first; it is empty where no word is masked."""
    pairs = zip(masked, words, strict=True)
    grouped = [[token for _, word in group for token in word] for _, group in groupby(pairs, key=itemgetter(0))]
    return grouped if masked[0] else [[], *grouped]


def _select_usable(drafts: Sequence[_Draft], texts: Sequence[str]) -> Iterator[Record]:
    """Yield the records of the texts that are not empty and differ from their source."""
    for draft, text in zip(drafts, texts, strict=True):
        if text and text != draft.source.strip():
            yield Record(text, draft.label)


def _repeat_records(records: Sequence[Record], counts: Mapping[str, int]) -> list[Record]:
    """As many records of each label as it counts, again from the first where they run out."""
    repeated: list[Record] = []
    for label, count in counts.items():
        own = (record for record in records if (record.label or "") == label)
        repeated += islice(cycle(own), count)
    return repeated
