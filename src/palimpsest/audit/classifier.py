"""Scores a classifier that was itself trained with DP-SGD on real test rows, without synthetic text in between.

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text", the baseline DP-FT-Downstream.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.audit.utility import Evaluation, Scored, evaluate, label_indices
from palimpsest.plain import PlainFile
from palimpsest.progress import track

_BATCH = 100  # texts


@dataclass(frozen=True)
class ClassifierAudit(PlainFile):
    """Private zone: the scores of one classifier.

    Attributes:
        epsilon: proven epsilon of the classifier and the language model charged before it together; None without noise.
        beside: the evaluator with whose baselines it is compared; None where no evaluator predicts labels.
    """

    test_rows: int
    epsilon: float | None
    beside: str | None
    scored: Scored


def score_classifier(
    judge: Callable[[Sequence[str]], np.ndarray], texts: Sequence[str], targets: Sequence[str], labels: Sequence[str]
) -> Evaluation:
    """Score a classifier on test rows.

    Args:
        judge: texts -> probabilities of the labels, (texts, labels).
        texts, targets: the test rows and their labels.
        labels: the labels in the order of the probabilities.

    Raises:
        DataError: there are no test rows, or one has a label that is not in `labels`.
    """
    truth = label_indices(targets, labels)
    starts = range(0, len(texts), _BATCH)
    shown = track(starts, name="classifier", total=len(starts), private=True)
    found = np.concatenate([judge(texts[start : start + _BATCH]) for start in shown])
    return evaluate(found[None], truth, labels)
