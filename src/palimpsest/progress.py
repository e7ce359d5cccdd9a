"""One progress bar for every long loop: a bar on a terminal, plain lines everywhere else.

The plain lines have one fixed shape, which the Prefect flow turns into a progress artifact:

    progress <name> <done>/<total> <rate> <unit>/s eta <h:mm:ss>
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

LINE = re.compile(r"^progress (?P<name>.+) (?P<done>\d+)/(?P<total>\d+) ")
_SECONDS_BETWEEN_LINES = 2.0


def track(items: Iterable[Item], *, name: str, total: int, unit: str = "it") -> Iterator[Item]:
    """Yield the items, showing how many are done, the rate and the time left.

    Args:
        items: what to loop over.
        name: the loop's name as the user sees it; never anything private.
        total: the public number of items expected.
        unit: what one item is, in the singular.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, desc=name, total=total, unit=unit)
    else:
        yield from _lines(items, name, total, unit)


def counter(*, name: str, total: int, unit: str = "it") -> Callable[[int], None]:
    """A bar for a loop that advances by uneven steps: a function to be told how many are done so far.

    Args:
        name: the loop's name as the user sees it; never anything private.
        total: the public number of items expected.
        unit: what one item is, in the singular.
    """
    if sys.stderr.isatty():
        bar = tqdm(desc=name, total=total, unit=unit)
        return lambda done: bar.update(done - bar.n) and None
    return _Lines(name, total, unit).show


def _lines(items: Iterable[Item], name: str, total: int, unit: str) -> Iterator[Item]:
    start = last = time.monotonic()
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            print(_line(name, done, total, unit, now - start), file=sys.stderr, flush=True)
    print(_line(name, done, total, unit, time.monotonic() - start), file=sys.stderr, flush=True)


class _Lines:
    """Prints a line when the last one is old enough, and at the end."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._start = self._last = time.monotonic()

    def show(self, done: int) -> None:
        """Tell how many are done."""
        now = time.monotonic()
        if done >= self._total or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            line = _line(self._name, done, self._total, self._unit, now - self._start)
            print(line, file=sys.stderr, flush=True)


def _line(name: str, done: int, total: int, unit: str, seconds: float) -> str:
    rate = done / max(seconds, 1e-9)
    left = timedelta(seconds=round(max(total - done, 0) / rate)) if rate else timedelta()
    return f"progress {name} {done}/{total} {rate:.2f} {unit}/s eta {left}"
