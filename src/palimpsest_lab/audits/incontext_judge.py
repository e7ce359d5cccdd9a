"""The interface of a judge: a model that answers real test items behind demonstrations."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from palimpsest.records.record import Record


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
