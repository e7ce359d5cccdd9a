"""In-context evaluation: how well a judge, a language model, answers real items behind demonstrations from the rows.

Tang et al. 2024 judge differentially private demonstrations this way. Answers are calibrated as in Zhao et al. 2021:
each answer's probability is divided by its probability, behind the same demonstrations, for an input without content.
Nothing is trained. A model that real demonstrations do not help cannot judge others, and the result says so.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.stats import t as student

from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio
from palimpsest.audit.utility import label_indices
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest_lab.audits.incontext_settings import InContext

Lack: TypeAlias = Literal["context", "demonstrations"]

_JUDGES = "Real demonstrations beat no demonstrations at some number of shots: this model can judge demonstrations."
_CANNOT_JUDGE = (
    "Real demonstrations do not beat no demonstrations at any number of shots: this model cannot judge demonstrations, "
    "and these figures say nothing about the rows."
)


class Judge(ABC):
    """A model that answers items behind demonstrations, calibrated (Zhao et al. 2021) unless the settings say no."""

    balanced: ClassVar[bool]  # whether demonstrations are drawn evenly over the labels

    @property
    @abstractmethod
    def context(self) -> int:
        """The model's positions."""

    @abstractmethod
    def needs(self, shots: int) -> int:
        """Count positions of the longest prompt and answer that the settings allow: equal for all rows and draws."""

    @abstractmethod
    def count_cut(self, texts: Sequence[str]) -> int:
        """Count the texts to answer that are longer than the settings allow."""

    @abstractmethod
    def judge_items(self, shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        """Tell which items are answered right behind these demonstrations, bool (asked,)."""


@dataclass(frozen=True)
class Answered(Plain):
    """The results for one number of demonstrations."""

    keys: ClassVar = ("shots", "fits", "lacks", "needs", "accuracy", "per_draw", "deviation", "gain")
    shots: int  # how many demonstrations
    needs: int  # positions of the longest prompt and answer that the settings allow
    lacks: Lack | None  # what is too small for so many; None if nothing is
    accuracy: Estimate | None  # mean over draws, with the interval over items; None where nothing was measured
    per_draw: tuple[float, ...]  # of each draw
    deviation: float | None  # between draws; None where there are not two
    gain: Estimate | None  # gain over no demonstrations, item by item; None where nothing compares

    @property
    def fits(self) -> bool:
        return self.lacks is None


@dataclass(frozen=True)
class InContextAnswers(PlainFile):
    """Private zone: the results of the answers behind demonstrations from one set of rows."""

    keys: ClassVar = ("task", "rows", "items", "cut", "context", "judges", "note", "zero_shot", "shots")
    task: Literal["classify", "span"]  # "classify" chooses among the labels, "span" writes a free label
    rows: int  # demonstrations that could be drawn
    items: int  # test items that were answered
    cut: Annotated[int, At("items_cut")]  # how many of their texts were longer than allowed
    context: int  # positions of the model
    # whether some number of demonstrations beats none, beyond the chance of items and draws (`helps`). For real rows
    # this says whether the model can judge demonstrations at all, and the files of all other rows repeat it.
    judges: bool
    zero_shot: Answered  # without demonstrations
    shots: tuple[Answered, ...]  # ascending numbers of demonstrations

    @property
    def note(self) -> str:
        """Return what the answers are worth, in a sentence."""
        return _JUDGES if self.judges else _CANNOT_JUDGE


def audit_in_context(
    judge: Judge,
    rows: Sequence[Record],
    test: Sequence[Record],
    labels: Sequence[str],
    settings: InContext,
    bootstrap: Bootstrap,
    seed: int,
) -> InContextAnswers:
    """Let a judge answer test items behind demonstrations.

    Args:
        rows: the rows that demonstrations are drawn from.
        test: the rows that are asked about, all of them. A row without a label is left out where labels are free text.
        labels: all public labels; empty where labels are free text, which is then written and not chosen.
        seed: which items are asked and which rows are drawn. The items depend only on it and on the number of labelled
            rows of `test`, so that results of different rows are paired.

    Raises:
        DataError: there are no rows or no test rows with a label, or one of `labels` is missing or unknown.
    """
    rows, test = _select_labelled(rows, labels), _select_labelled(test, labels)
    asked = [test[index] for index in chosen_items(len(test), settings.items, seed)]
    needs = {shots: judge.needs(shots) for shots in settings.shots}
    lacks = {shots: _find_lack(shots, needs[shots], len(rows), judge.context) for shots in settings.shots}
    fit = [shots for shots in settings.shots if lacks[shots] is None]
    correct = dict.fromkeys(settings.shots, np.zeros((0, len(asked)), dtype=bool))
    correct |= correct_answers(judge, rows, asked, fit, settings.draws, seed)
    zero, *others = (
        summarise_answers(shots, needs[shots], lacks[shots], correct[shots], correct[0], bootstrap)
        for shots in settings.shots
    )
    return InContextAnswers(
        task="classify" if labels else "span",
        rows=len(rows),
        items=len(asked),
        cut=judge.count_cut([row.text for row in asked]),
        context=judge.context,
        judges=any(helps(correct[shots], correct[0], len(others)) for shots in settings.shots if shots > 0),
        zero_shot=zero,
        shots=tuple(others),
    )


def summarise_answers(
    shots: int, needs: int, lacks: Lack | None, correct: np.ndarray, zero: np.ndarray, bootstrap: Bootstrap
) -> Answered:
    """Sum up the answers behind one number of demonstrations; intervals are over items.

    Args:
        correct: which items each draw answered right, bool (draws, items); no draws where anything lacks.
        zero: the same without demonstrations.
    """
    per_draw, compared = correct.mean(axis=1), shots > 0 and len(correct) and len(zero)
    return Answered(
        shots=shots,
        needs=needs,
        lacks=lacks,
        accuracy=_mean(correct.mean(axis=0), bootstrap) if len(correct) else None,
        per_draw=tuple(per_draw.tolist()),
        deviation=float(per_draw.std(ddof=1)) if len(correct) > 1 else None,
        gain=_mean(correct.mean(axis=0) - zero.mean(axis=0), bootstrap) if compared else None,
    )


def helps(correct: np.ndarray, zero: np.ndarray, looks: int) -> bool:
    """Tell whether this number of demonstrations beats none, where `looks` numbers of them are examined.

    The mean gain over its standard error is compared with Student's upper quantile at .025 / looks. A draw of
    demonstrations moves all items together, so the error is of items and of draws, with Welch's degrees of freedom.

    Args:
        correct: which items each draw answered right, bool (draws, items).
        zero: the same without demonstrations.
    """
    if not len(correct) or not len(zero):
        return False
    gain = correct - zero.mean(axis=0)
    means = [gain.mean(axis=axis) for axis in range(2) if gain.shape[1 - axis] > 1]
    parts = [(values.var(ddof=1) / len(values), len(values) - 1) for values in means if len(values) > 1]
    error = sum(part for part, _ in parts)
    if error == 0.0:
        return bool(gain.mean() > 0.0)
    freedom = error**2 / sum(part**2 / left for part, left in parts)
    return bool(gain.mean() > student.ppf(1.0 - 0.025 / looks, freedom) * math.sqrt(error))


def _mean(values: np.ndarray, bootstrap: Bootstrap) -> Estimate:
    return Estimate(float(values.mean()), *bootstrap_ratio(values, np.ones_like(values), bootstrap))


def chosen_items(count: int, limit: int, seed: int) -> list[int]:
    """Draw at most `limit` of `count` indices without replacement, ascending."""
    return sorted(np.random.default_rng(seed).permutation(count)[:limit].tolist())


def draw_rows(labels: Sequence[str], shots: int, balanced: bool, seed: int, draw: int) -> list[int]:
    """Draw the indices of one draw's demonstrations, in random order.

    Args:
        labels: of all rows.
        shots: how many to draw, at most as many as there are rows.
        balanced: whether the labels share the draw evenly, as far as there are rows of each and as `shots` allows;
            which labels get one more is random.
    """
    rng = np.random.default_rng([seed, shots, draw])
    order = rng.permutation(len(labels))
    if balanced:
        order = order[_rounds([labels[index] for index in order], rng)]
    return rng.permutation(order[:shots]).tolist()


def correct_answers(
    judge: Judge, rows: Sequence[Record], asked: Sequence[Record], numbers: Sequence[int], draws: int, seed: int
) -> dict[int, np.ndarray]:
    """Return number of shots -> which items each draw answered right: bool (draws, items); zero-shot has one draw."""
    labels, correct = [row.label or "" for row in rows], dict[int, list[np.ndarray]]()
    jobs = [(shots, draw) for shots in numbers for draw in range(draws if shots else 1)]
    for shots, draw in track(jobs, name="in-context", total=len(jobs), private=True):
        shown = [rows[index] for index in draw_rows(labels, shots, judge.balanced, seed, draw)]
        correct.setdefault(shots, []).append(judge.judge_items(shown, asked))
    return {shots: np.array(found, dtype=bool) for shots, found in correct.items()}


def _rounds(labels: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Order the rows so that every label comes once, then every label with rows left once more, and so on."""
    names = sorted(set(labels))
    places = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    seen: Counter[str] = Counter()
    rounds = []
    for label in labels:
        rounds.append(seen[label])
        seen[label] += 1
    return np.lexsort(([places[label] for label in labels], rounds))


def _find_lack(shots: int, needs: int, rows: int, context: int) -> Lack | None:
    if needs > context:
        return "context"
    return "demonstrations" if shots > rows else None


def _select_labelled(rows: Sequence[Record], labels: Sequence[str]) -> Sequence[Record]:
    if labels:
        label_indices([row.label or "" for row in rows], labels)
        return rows
    if not any(row.label for row in rows):
        raise DataError(
            "There are no rows with a label to show or to ask about.",
            "Generate some, enlarge the test share, or set utility.in_context to null.",
        )
    return [row for row in rows if row.label]
