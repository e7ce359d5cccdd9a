"""The baseline at epsilon 0: only public rows. A private method that does not beat it learnt nothing from the data."""

from collections.abc import Mapping, Sequence

import numpy as np

from palimpsest.records.record import Record


def select_public(
    embeddings: np.ndarray,
    description_embeddings: Mapping[str, np.ndarray],
    texts: Sequence[str],
    labels: Sequence[str | None] | None,
    counts: Mapping[str, int],
) -> list[Record]:
    """The public rows that stand for each label.

    Public rows that carry the label come first, in their order. The rest is filled with unlabelled public texts: each
    belongs to the label whose public description is nearest by cosine, and the nearest are taken first, so no text is
    used twice. A label gets fewer rows than asked where no more public texts belong to it.

    Guarantee: epsilon 0; every argument is public.

    Args:
        embeddings: of the texts, shape (n, d), L2 norm 1.
        description_embeddings: label -> embedding of its public description, shape (d,), L2 norm 1; the keys of
            `counts`.
        texts: n public texts.
        labels: their labels, None where one is missing; None where the public file has no labels.
        counts: label -> rows wanted, as for the synthetic set.

    Returns:
        Records, label by label in the order of `counts`.

    Raises:
        ValueError: the arguments do not describe the same texts, or a label has no description.
    """
    given = [None] * len(texts) if labels is None else list(labels)
    if not len(embeddings) == len(texts) == len(given):
        raise ValueError(f"got {len(texts)} texts, {len(embeddings)} embeddings and {len(given)} labels")
    if missing := set(counts) - set(description_embeddings):
        raise ValueError(f"{len(missing)} labels have no description embedding")
    similarity = embeddings @ np.stack([description_embeddings[label] for label in counts]).T  # (n, labels)
    chosen: list[Record] = []
    for column, (label, wanted) in enumerate(counts.items()):
        own = [index for index, known in enumerate(given) if known == label]
        rows = [*own, *_sort_nearest(similarity, column, given)][:wanted]
        chosen += [Record(texts[index], label) for index in rows]
    return chosen


def pick_evenly(rows: Sequence[Record], wanted: int) -> list[Record]:
    """At most so many of the public rows, evenly over their file, which may be sorted: for data without labels.

    Guarantee: epsilon 0; every argument is public.

    >>> [row.text for row in pick_evenly([Record(text, None) for text in "abcdefg"], 3)]
    ['a', 'c', 'e']
    """
    count = min(wanted, len(rows))
    return [rows[index * len(rows) // count] for index in range(count)]


def _sort_nearest(similarity: np.ndarray, column: int, given: Sequence[str | None]) -> list[int]:
    """Unlabelled texts that belong to the label of `column`, the most similar first."""
    unlabelled = np.array([label is None for label in given], dtype=bool)
    belongs = np.flatnonzero(unlabelled & (similarity.argmax(axis=1) == column))
    return belongs[np.argsort(-similarity[belongs, column], kind="stable")].tolist()
