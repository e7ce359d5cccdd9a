"""Writes the sample browser, a page of the private zone, from what finished stages left.

It is started like a stage, so that no library and no error quotes a row. It is no stage: the page holds private rows,
and a file that is no stage's output lies in no cache, is pushed to no remote and is linked from no flow.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from palimpsest.audit.beside import Nearest, longest_runs, mark_runs, pair_nearest
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_text
from palimpsest.methods.registry import method
from palimpsest.methods.shared.base import GenerationCounts
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.postprocess import read_noted
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.privacy.receipt import read_receipt
from palimpsest.progress import track
from palimpsest.records.duplicates import SHINGLE
from palimpsest.records.evolved import EvolvedRound, read_evolved
from palimpsest.records.fields import Declared, describe_cells
from palimpsest.records.picked import pick_rows
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record, list_fields
from palimpsest.records.write import read_rounds, read_split
from palimpsest.report.formats import at_most
from palimpsest.report.page import ROLE_WORDS
from palimpsest.report.samples import Browsed, Near, Removal, Round, Sizes, Written, render_samples
from palimpsest.workspace import EVOLVED, METRICS, PRIVATE, PUBLIC_LM, PUBLIC_ONLY, RECEIPTS, SAMPLES, SYNTHETIC
from stages.audited import written
from stages.common import start
from stages.encode_public import public_vectors
from stages.public import public_texts
from stages.tools import StoredEncoders, measuring_encoder

AT_EPSILON_0 = (PUBLIC_ONLY, PUBLIC_LM)
TEXTS = ".parquet"  # of rounds that select texts
_AT_ONCE = 2048  # texts that are encoded and compared between two lines of progress
_PERSON = 8  # digits of a keyed id that are shown


def run(most: str, *names: str) -> None:
    """data/synthetic, data/private, data/evolved, reports/metrics -> reports/samples.html.

    Args:
        most: rows shown of a variant, drawn at random where it has more.
        names: variants and rows at epsilon 0; none means all that have rows.

    Raises:
        ParamsError: params.yaml has no such variant.
        DataError: one has no rows yet.
    """
    params = load()
    shown = select_variants(params, names)
    reader = Reader.of(params)
    variants = [reader.browse(name, int(most)) for name in shown]
    sizes = Sizes(len(reader.train.rows), len(reader.holdout.rows), SHINGLE)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    write_text(SAMPLES, render_samples(params.dataset.asset, variants, sizes, created))


def select_variants(params: Params, names: Sequence[str]) -> list[str]:
    """Return the named variants, or all that have rows."""
    known = (*params.run.evaluate, *AT_EPSILON_0)
    if wrong := next((name for name in names if name not in known), None):
        raise ParamsError(
            f"VARIANT is {wrong!r}, which params.yaml does not have.", f"Name some of {', '.join(known)}, or none."
        )
    there = [name for name in known if (SYNTHETIC / f"{name}.parquet").is_file()]
    if not there or not {*names} <= {*there}:
        raise DataError(
            f"There are no rows yet of {', '.join(name for name in names or known if name not in there)}.",
            "Make them with `palimpsest run`.",
        )
    return list(dict.fromkeys(names)) or there


@dataclass(frozen=True, eq=False)
class Side:
    """A private split and its vectors, (rows, d)."""

    rows: Sequence[SplitRow]
    vectors: np.ndarray


@dataclass(frozen=True, eq=False)
class Reader:
    """Inputs that are read once for all variants."""

    params: Params
    encode: StoredEncoders
    train: Side  # the rows that methods read
    holdout: Side  # rows that nothing was fitted to

    @classmethod
    def of(cls, params: Params) -> "Reader":
        """Read the private splits, and encode those of their texts that no stage has encoded."""
        encode = measuring_encoder(params)
        train, holdout = (read_split(PRIVATE / f"{part}.parquet") for part in ("train", "holdout"))
        parts = [encode.rows(texts) for texts in batches([row.text for row in (*train, *holdout)], "private rows")]
        own, others = np.split(np.concatenate(parts), [len(train)])
        return cls(params, encode, Side(train, own), Side(holdout, others))

    def browse(self, name: str, most: int) -> Browsed:
        """Read one variant, with all that is left of it."""
        rows = written(self.params, name)
        some = pick_rows(rows, most, by_label=False, seed=self.params.seed)
        beside, removed, (rounds, stands) = (
            self._compare_rows(some, name),
            removals(self.params, name),
            self._rounds(name),
        )
        return Browsed(name, role_of(name), len(rows), beside, removed, rounds, stands)

    def _compare_rows(self, rows: Sequence[Record], name: str) -> tuple[Written, ...]:
        texts = [row.text for row in rows]
        near, unread = self._find_nearest(texts, name)
        others = [None if place < 0 else self.train.rows[place] for place in near.places]
        longest = longest_runs(texts, [row.text for row in self.train.rows])
        found = zip(rows, others, near.cosines.tolist(), unread.cosines.tolist(), longest.tolist(), strict=True)
        return tuple(_written_row(*one, SHINGLE, self.params.dataset.fields) for one in found)

    def _find_nearest(self, texts: Sequence[str], name: str) -> Iterator[Nearest]:
        """Find the nearest among the rows that were read, and among those that were not."""
        found: list[list[Nearest]] = []
        for some in batches(texts, f"samples of {name}"):
            vectors = self.encode.others(some)
            found.append([pair_nearest(vectors, side.vectors) for side in (self.train, self.holdout)])
        for parts in zip(*found, strict=True):
            places, cosines = zip(*((part.places, part.cosines) for part in parts), strict=True)
            yield Nearest(np.concatenate(places), np.concatenate(cosines))

    def _rounds(self, name: str) -> tuple[tuple[Round, ...], bool]:
        """Return what each round selected, and whether public texts stand for embeddings there."""
        kind = method(self.params.variants[name].method).rounds if name in self.params.variants else ""
        path = EVOLVED / f"{name}{kind}"
        if not kind or not path.is_file():
            return (), False
        if kind == TEXTS:
            selected = [_count_records(records) for records in read_rounds(path)]
            return tuple(Round(before, after) for before, after in pairwise([(), *selected])), False
        rounds = read_evolved(path)
        told = track(rounds, name=f"rounds of {name}", total=len(rounds), private=True)
        return tuple(map(self._stand_in_round, told)), True

    def _stand_in_round(self, one: EvolvedRound) -> Round:
        """Return the public texts that stand for the embeddings of a round, which have length 1."""
        texts, vectors = self._public
        before: list[Record] = []
        after: list[Record] = []
        for label, population in one.population.items():
            places = pair_nearest(population, vectors).places
            own = [Record(texts[place], label or None) for place in places]
            before += own
            after += [own[place] for place in one.parents[label]]
        return Round(_count_records(before), _count_records(after))

    @cached_property
    def _public(self) -> tuple[list[str], np.ndarray]:
        texts = public_texts()
        return texts, public_vectors(self.params, texts, self.encode.others)


def batches(texts: Sequence[str], name: str) -> Iterator[Sequence[str]]:
    """Yield the texts in parts; the first may be empty."""
    parts = [texts[start : start + _AT_ONCE] for start in range(0, max(1, len(texts)), _AT_ONCE)]
    return track(parts, name=name, total=len(parts), private=True)


def role_of(name: str) -> str:
    """Describe a variant by the receipt that came with its rows: params.yaml may name another purpose since."""
    if name in AT_EPSILON_0:
        return ROLE_WORDS[name]
    receipt = read_receipt(RECEIPTS / f"{name}.json")
    epsilon = "" if receipt.epsilon is None else f" at epsilon {at_most(receipt.epsilon)}"
    return f"{receipt.method}{epsilon}, {ROLE_WORDS[receipt.purpose]}"


def removals(params: Params, name: str) -> tuple[Removal, ...]:
    """Return what the filters of a variant removed, with what is left of it; filters that removed none are left out."""
    path = METRICS / name / "generation.json"
    if not path.is_file():
        return ()
    document = read_json(path)
    counts = GenerationCounts.from_json(document)
    unreadable = [Record(row.text, row.label) for row in counts.unreadable_samples or ()]
    some = {"unreadable": unreadable, **read_noted(document), **_filter_again(params, name)}
    return tuple(Removal(one, count, tuple(some.get(one, ()))) for one, count in counts.removed.items() if count)


def _filter_again(params: Params, name: str) -> Mapping[str, Sequence[Record]]:
    """Return what the filters removed of a method's last round of texts: applied again, they remove the same."""
    path = EVOLVED / f"{name}{TEXTS}"
    if name not in params.run.private_evolve or not path.is_file():
        return {}
    settings: Any = params.variants[name].settings
    removing = build_filters(settings.filters)
    apply_filters(removing, read_rounds(path)[-1])
    return removing.noted


def _written_row(
    row: Record, other: SplitRow | None, cosine: float, unread: float, longest: int, words: int,
    fields: Mapping[str, Declared],
) -> Written:  # fmt: skip
    pieces = mark_runs(row.text, "" if other is None else other.text, words)
    near = None if other is None else _near(other, row.text, cosine, words, describe_cells(other.fields, fields))
    seen = None if math.isnan(unread) else unread
    return Written(pieces, row.label or "", longest, near, seen, list_fields(row.fields))


def _near(other: SplitRow, text: str, cosine: float, words: int, fields: str) -> Near:
    person = None if other.person is None else other.person[:_PERSON]
    return Near(mark_runs(other.text, text, words), other.label or "", cosine, person, fields)


def _count_records(records: Iterable[Record]) -> tuple[tuple[Record, int], ...]:
    return tuple(Counter(records).items())


if __name__ == "__main__":
    start(run)
