"""What a judge is: a model that answers real test items behind demonstrations."""

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
        """Positions of the model."""

    @abstractmethod
    def needs(self, shots: int) -> int:
        """Positions of the longest prompt and answer that the settings allow: the same for all rows and all draws."""

    @abstractmethod
    def cut(self, texts: Sequence[str]) -> int:
        """How many of the texts to answer are longer than the settings allow."""

    @abstractmethod
    def judged(self, shown: Sequence[Record], asked: Sequence[Record]) -> np.ndarray:
        """Which items are answered right behind these demonstrations, bool (asked,)."""
