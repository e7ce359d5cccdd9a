"""Repeatable draws: the same seed and stream give the same values on every machine and Python version."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Draw:
    """A named stream of random values.

    Only `Random.random` is used: its sequence is the one part of the module that Python promises to keep.
    """

    def __init__(self, seed: int, stream: str) -> None:
        self._random = random.Random(f"palimpsest world/{seed}/{stream}")

    def below(self, high: int) -> int:
        """An integer in [0, high)."""
        return int(self._random.random() * high)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, each equally likely."""
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[Item], weights: Sequence[float]) -> Item:
        """One of the items, each as likely as its share of the weights."""
        left = self._random.random() * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            left -= weight
            if left < 0:
                return item
        return items[-1]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in random order (Fisher-Yates)."""
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order
