"""Groups of rows that public patterns tell apart: how often they are written, and how well classifiers do on them.

Noise and clipping cost small groups most (Bagdasaryan, Poursaeed & Shmatikov 2019), and an accuracy over all rows hides
it. What is compared is the gap between a group and all other rows: that of real rows and of public ones says what there
was before any noise.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.audit.statistics import Estimate, Rate, difference, wilson
from palimpsest.plain import Plain


@dataclass(frozen=True)
class GroupAccuracy(Plain):
    """How one classifier does on the test rows of a group, on all others, and inside minus outside."""

    inside: Estimate
    outside: Estimate
    gap: Estimate


@dataclass(frozen=True)
class GroupScores(Plain):
    """Private zone: one group in the rows of a variant.

    Attributes:
        rows: those of the variant that are in the group.
        test: real test rows that are.
        accuracy: classifier -> its accuracy; none where the group has no test row, or all of them.
    """

    rows: Rate
    test: Rate
    accuracy: Mapping[str, GroupAccuracy]


def group_scores(
    patterns: Mapping[str, str], texts: Sequence[str], test_texts: Sequence[str], correct: Mapping[str, np.ndarray]
) -> dict[str, GroupScores]:
    """Every group by its name.

    Intervals: Wilson, 95 %; inside and outside are different rows, so those of their difference are independent.

    Args:
        patterns: name -> regular expression; a row is in the group where it matches anywhere, whatever the case.
        texts: those of the variant.
        test_texts: of real test rows.
        correct: classifier -> the share of seeds that got each test row right, shape (test rows,).
    """
    found = {}
    for name, pattern in patterns.items():
        own, test = (_members(pattern, some) for some in (texts, test_texts))
        both = {one: _accuracy(right, test) for one, right in correct.items()} if 0 < test.sum() < len(test) else {}
        found[name] = GroupScores(_rate(own), _rate(test), both)
    return found


def _members(pattern: str, texts: Sequence[str]) -> np.ndarray:
    """Which texts are in the group, bool (n,)."""
    search = re.compile(pattern, re.IGNORECASE).search
    return np.array([search(text) is not None for text in texts], dtype=bool)


def _rate(members: np.ndarray) -> Rate:
    return Rate.wilson(int(members.sum()), len(members))


def _accuracy(correct: np.ndarray, members: np.ndarray) -> GroupAccuracy:
    inside, outside = (_mean(correct[side]) for side in (members, ~members))
    return GroupAccuracy(inside, outside, difference(inside, outside))


def _mean(correct: np.ndarray) -> Estimate:
    """With Wilson's interval over rows, which is conservative for shares of seeds."""
    return Estimate(float(correct.mean()), *wilson(float(correct.sum()), len(correct)))
