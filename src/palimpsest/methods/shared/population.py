"""From noisy counts to the next population: post-processing, all of it."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from palimpsest.methods.shared.settings import Votes
from palimpsest.privacy.votes import Round
from palimpsest.records.record import Record


def selected(one: Round, counts: Mapping[str, int], votes: Votes, rng: np.random.Generator) -> list[Record]:
    """The candidates of a round that go on, label by label, those with the most noisy votes first.

    h~ = max(h + noise, H) - H in whole votes of a unit (Xie et al. 2024, Algorithm 1). `rank` takes the
    `counts[label]` best, ties to the earlier candidate. `sample` draws as many with p ~ h~, so one may be drawn more
    than once; where no count is above H all are equally likely.

    Args:
        one: a finished round.
        counts: label -> candidates that go on.
        rng: for `sample`; its draws are not private, because the counts are noisy already.
    """
    chosen = []
    for label, wanted in counts.items():
        noisy = np.asarray(one.counts[label], dtype=np.float64) / math.sqrt(votes.neighbours)
        weights = np.maximum(noisy, votes.threshold) - votes.threshold
        chosen += [Record(one.texts[label][index], label or None) for index in _picked(weights, wanted, votes, rng)]
    return chosen


def _picked(weights: np.ndarray, wanted: int, votes: Votes, rng: np.random.Generator) -> list[int]:
    if votes.selection == "rank":
        return np.argsort(-weights, kind="stable")[:wanted].tolist()
    total = weights.sum()
    likely = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return np.sort(rng.choice(len(weights), size=wanted, p=likely)).tolist()


def by_label(records: Sequence[Record], labels: Sequence[str]) -> dict[str, list[str]]:
    """The different texts of each label, in their order; "" is the label of records without one."""
    found: dict[str, dict[str, None]] = {label: {} for label in labels}
    for record in records:
        found[record.label or ""][record.text] = None
    return {label: list(texts) for label, texts in found.items()}
