"""What workers of a cluster are asked to do in tests: importable, as the workers of a cluster need it."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palimpsest.errors import DataError
from palimpsest.shards import PROCESSES, RUNNER

LETTERS = 26
SECRET = "Anna Quastel of 4 Larch Row"


def doubled(number: int) -> int:
    return 2 * number


def refused(text: str) -> int:
    raise DataError("A column is missing.", "Name it.") if text == SECRET else ValueError(text)


def own(_: int) -> int:
    """What no two processes agree on."""
    return os.getpid()


def in_a_worker(_: int) -> bool:
    """What all workers agree on, and who asks them does not."""
    return os.environ[RUNNER] == PROCESSES


class Answering:
    """Repeats a text, or fails."""

    def __init__(self, text: str) -> None:
        self.text = text if text != SECRET else refused(text + "!")

    def tell(self, times: int) -> str:
        return str(self.text) * times

    def fail(self, text: str) -> None:
        refused(text + "!")


def letters(texts: list[str]) -> np.ndarray:
    """How many of each letter a text has."""
    return np.array([np.bincount([ord(letter) % LETTERS for letter in text], minlength=LETTERS) for text in texts])


@dataclass(frozen=True)
class Killing:
    """Notes each item that it is asked for, and at one of them, the first time, kills the worker."""

    folder: Path
    fatal: int

    def __call__(self, item: int) -> int:
        with (self.folder / str(item)).open("a") as notes:
            notes.write("x")
        if item == self.fatal and (self.folder / str(item)).stat().st_size == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * item
