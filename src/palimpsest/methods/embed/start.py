"""The first population: public texts near a label. It reads public text, and noisy class means if asked for."""

from collections.abc import Mapping, Sequence

import numpy as np

from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.privacy.means import unit_rows

_DRAWS = 4  # of `steps` are 1 to 3
_DECIMALS = 6  # of a cosine; what lies behind them depends on how many texts are compared at once


def distinct(candidates: Candidates) -> Candidates:
    """The different texts that are not blank and have a direction, each with its vector brought to length 1.

    Of equal texts the first counts. A vector that is zero or not finite has no direction and could not be decoded.
    """
    vectors = unit_rows(candidates.embeddings).astype(np.float32)
    usable = [bool(text.strip()) and own.any() for text, own in zip(candidates.texts, vectors, strict=True)]
    first = {text: index for index, text in reversed(list(enumerate(candidates.texts))) if usable[index]}
    kept = sorted(first.values())
    return Candidates([candidates.texts[index] for index in kept], vectors[kept])


def aimed(
    public: Candidates, sums: ClassSums, labels: Sequence[str], count: int, domain: float
) -> dict[str, list[int]]:
    """For each label the `count` public texts that noisy class sums point at, as indices, the best first.

    `choose` lets labels take turns, so it may leave one with too few; the texts nearest to its sum then fill its place,
    whoever else has them.

    Args:
        public: different texts, at least `count`.
        sums: noisy class sums.
        labels: labels of `sums` that have a population.
        count: texts of each label.
        domain: share of the texts that counts as in a label's domain.
    """
    place = {text: index for index, text in enumerate(public.texts)}
    chosen: dict[str, list[int]] = {label: [] for label in labels}
    for record in choose(public, sums, dict.fromkeys(labels, count), domain):
        chosen[record.label or ""].append(place[record.text])
    nearest = described(public, dict(zip(sums.labels, sums.sums, strict=True)), labels, len(public.texts))
    return {label: list(dict.fromkeys([*own, *nearest[label]]))[:count] for label, own in chosen.items()}


def described(
    public: Candidates, descriptions: Mapping[str, np.ndarray], labels: Sequence[str], count: int
) -> dict[str, list[int]]:
    """For each label the `count` public texts with the largest cosine to its public description, the nearest first."""
    found = {}
    for label in labels:
        cosines = public.embeddings @ unit_rows(descriptions[label][None, :])[0]
        found[label] = np.argsort(-cosines.round(_DECIMALS), kind="stable")[:count].tolist()
    return found


def anything(public: Candidates, labels: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """For each label `count` public texts at random."""
    draws = (np.random.default_rng((seed, _DRAWS, place)) for place in range(len(labels)))
    return {
        label: rng.permutation(len(public.texts))[:count].tolist() for label, rng in zip(labels, draws, strict=True)
    }
