"""Groups of rows defined by public patterns, and texts that fit their labels: shares, with classifiers to judge both.

A group has a share of the written rows, and classifiers an accuracy on it. Noise and clipping cost small groups most
(Bagdasaryan, Poursaeed & Shmatikov 2019), and an accuracy over all rows hides it. The audit compares the gap between a
group and all other rows: the gap of real rows and of public ones shows how large it was before any noise.

Whether texts fit the labels that they were written for is told by a classifier that learned from real rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.audit.statistics import Estimate, Rate, difference, wilson
from palimpsest.plain import Plain


@dataclass(frozen=True)
class GroupAccuracy(Plain):
    """The accuracy of one classifier on a group's test rows and on all others, and the gap, inside minus outside."""

    inside: Estimate
    outside: Estimate
    gap: Estimate


@dataclass(frozen=True)
class GroupScores(Plain):
    """Private zone: one group in the rows of a variant."""

    rows: Rate  # the variant's rows in the group
    test: Rate  # the real test rows in the group
    # classifier -> its accuracy; none where the group has no test row, or all of them
    accuracy: Mapping[str, GroupAccuracy]


def group_scores(
    patterns: Mapping[str, str], texts: Sequence[str], test_texts: Sequence[str], correct: Mapping[str, np.ndarray]
) -> dict[str, GroupScores]:
    """Score every group; returns name -> scores.

    Intervals: Wilson, 95 %; inside and outside are different rows, so those of their difference are independent.

    Args:
        patterns: name -> regular expression; a row is in the group where it matches anywhere, whatever the case.
        texts: the texts of the variant.
        test_texts: the texts of real test rows.
        correct: classifier -> the share of seeds that got each test row right, shape (test rows,).
    """
    found = {}
    for name, pattern in patterns.items():
        own, test = (_members(pattern, some) for some in (texts, test_texts))
        both = {one: _accuracy(right, test) for one, right in correct.items()} if 0 < test.sum() < len(test) else {}
        found[name] = GroupScores(_rate(own), _rate(test), both)
    return found


def _members(pattern: str, texts: Sequence[str]) -> np.ndarray:
    """Return which texts are in the group, bool (n,)."""
    search = re.compile(pattern, re.IGNORECASE).search
    return np.array([search(text) is not None for text in texts], dtype=bool)


def _rate(members: np.ndarray) -> Rate:
    return Rate.wilson(int(members.sum()), len(members))


def _accuracy(correct: np.ndarray, members: np.ndarray) -> GroupAccuracy:
    inside, outside = (_mean(correct[side]) for side in (members, ~members))
    return GroupAccuracy(inside, outside, difference(inside, outside))


def _mean(correct: np.ndarray) -> Estimate:
    """Return the mean with Wilson's interval over rows, which is conservative for shares of seeds."""
    return Estimate(float(correct.mean()), *wilson(float(correct.sum()), len(correct)))


@dataclass(frozen=True)
class LabelFit(Plain):
    """Private zone: the share of rows to which the classifier gives the rows' own label.

    The classifier is not perfect, so synthetic rows can be expected to reach the share of real test rows. A share above
    it says that rows are more typical of their label than real ones are.
    """

    synthetic: Estimate  # the share of a variant's rows
    real: Estimate  # the share of real test rows, none of which the classifier has read

    @classmethod
    def of(cls, agreed: np.ndarray, synthetic: int) -> "LabelFit":
        """Compute both from the share of seeds that gave each row its own label, (rows,), synthetic rows first."""
        return cls(_mean(agreed[:synthetic]), _mean(agreed[synthetic:]))
