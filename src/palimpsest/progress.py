"""The progress of a long loop: a bar on a terminal, plain lines everywhere else, only shares of a private loop.

The plain lines have two fixed shapes, which the Prefect flow turns into a progress artifact:

    progress <name> <done>/<total> <rate> <unit>/s eta <h:mm:ss>
    progress <name> <percent>% eta <h:mm:ss>

Guarantee: a private loop prints the same four lines of the second shape, on a terminal too, whatever there is to loop
over. All else that they reveal is time: when they come, and the time left, rounded. No line stands for one item: a loop
over few items prints only at its end.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

LINE = re.compile(r"^progress (?P<name>.+) (?:(?P<done>\d+)/(?P<total>\d+)|(?P<percent>\d+)%) ")
_SECONDS_BETWEEN_LINES = 2.0
_PERCENTS = (25, 50, 75, 100)
_FEWEST = 2 * len(_PERCENTS)  # the least number of private items that print lines before the end
_ETA_STEP = 10  # seconds


def track(items: Iterable[Item], *, name: str, total: int, private: bool, unit: str = "it") -> Iterator[Item]:
    """Yield the items, showing how many are done, the rate and the time left; of private ones, share and time left.

    Args:
        items: what to loop over.
        name: the loop's name as the user sees it; never anything private.
        total: the number of items expected.
        private: whether `total`, or how far the loop is, depends on a private row in any way but by a charged answer.
            Rows of a reference run are private; code that serves them and others passes True.
        unit: what one item is, in the singular; not shown for private ones.
    """
    shown = _make_display(name, total, private, unit)
    for done, item in enumerate(items, start=1):
        yield item
        shown.show(done)
    shown.end()


def counter(*, name: str, total: int, private: bool, unit: str = "it") -> Callable[[int], None]:
    """Return a function that shows progress as `track` does, for uneven steps: it takes how many are done so far."""
    return _make_display(name, total, private, unit).show


def _make_display(name: str, total: int, private: bool, unit: str) -> "_Shares | _Bar | _Lines":
    if private:
        return _Shares(name, total)
    return _Bar(name, total, unit) if sys.stderr.isatty() else _Lines(name, total, unit)


class _Bar:
    """The bar of a terminal."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._bar = tqdm(desc=name, total=total, unit=unit)

    def show(self, done: int) -> None:
        self._bar.update(done - self._bar.n)

    def end(self) -> None:
        self._bar.close()


class _Lines:
    """Prints a line when the last one is old enough, and at the end."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._start = self._last = time.monotonic()
        self._done, self._told = 0, -1

    def show(self, done: int) -> None:
        self._done, now = done, time.monotonic()
        if done >= self._total or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            self.end()

    def end(self) -> None:
        if self._told != self._done:
            self._told = self._done
            rate = self._done / max(time.monotonic() - self._start, 1e-9)
            left = round(max(self._total - self._done, 0) / rate) if rate else 0
            _print(f"{self._name} {self._done}/{self._total} {rate:.2f} {self._unit}/s", left)


class _Shares:
    """Prints the same lines whatever the total is."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._start = time.monotonic()
        self._left = list(_PERCENTS)

    def show(self, done: int) -> None:
        if done >= self._total:
            self.end()
        while self._total >= _FEWEST and self._left and 100 * done >= self._left[0] * self._total:
            percent = self._left.pop(0)
            left = (time.monotonic() - self._start) * (100 - percent) / percent
            _print(f"{self._name} {percent}%", _ETA_STEP * round(left / _ETA_STEP))

    def end(self) -> None:
        while self._left:
            _print(f"{self._name} {self._left.pop(0)}%", 0)


def _print(told: str, seconds_left: int) -> None:
    print(f"progress {told} eta {timedelta(seconds=seconds_left)}", file=sys.stderr, flush=True)
