"""A few rows of many, for a reader."""

import random
from collections.abc import Sequence

from palimpsest.records.record import Record


def pick_rows(records: Sequence[Record], count: int, *, by_label: bool, seed: int | None) -> list[Record]:
    """Draw `count` rows of each label, or of all, without replacement; they stay in their order within a label."""
    draw = random.Random(seed)
    labels = list(dict.fromkeys(record.label for record in records)) if by_label else [None]
    groups = [[record for record in records if not by_label or record.label == label] for label in labels]
    chosen = [sorted(draw.sample(range(len(group)), min(count, len(group)))) for group in groups]
    return [group[place] for group, places in zip(groups, chosen, strict=True) for place in places]
