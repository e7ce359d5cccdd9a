"""Public rows: cut into a part to train on and a part to measure on."""

from collections.abc import Sequence

import numpy as np

from palimpsest.records.record import Record

_HELDOUT_SHARE = 0.05
_HELDOUT_MOST = 2000


def split_public(rows: Sequence[Record], seed: int) -> tuple[list[Record], list[Record]]:
    """(train, held-out) of public rows: one row in twenty, at most 2,000, is held out. Empty texts are dropped."""
    kept = [row for row in rows if row.text.strip()]
    order = np.random.default_rng(seed).permutation(len(kept))
    heldout = set(order[: min(_HELDOUT_MOST, int(len(kept) * _HELDOUT_SHARE) + 1)].tolist())
    train = [row for index, row in enumerate(kept) if index not in heldout]
    return train, [row for index, row in enumerate(kept) if index in heldout]
