"""The longest runs that two corpora share are those of a plain search, however long they are."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.audit.beside import longest_runs
from palimpsest.audit.runs import Places, match_lengths


def places(runs: list[list[int]]) -> Places:
    """Runs of n-grams, each apart from the next."""
    starts = np.cumsum([0, *(len(run) + 1 for run in runs[:-1])])
    position = [int(start) + at for start, run in zip(starts, runs, strict=bool(runs)) for at in range(len(run))]
    return Places(np.array(position, dtype=np.int64), np.array([gram for run in runs for gram in run], dtype=np.int64))


def plain(run: list[int], start: int, others: list[list[int]]) -> int:
    """The most n-grams from `start` on that follow each other in one of the others."""
    sizes = range(len(run) - start, 0, -1)
    windows = ((size, other[at : at + size]) for size in sizes for other in others for at in range(len(other)))
    return next((size for size, window in windows if window == run[start : start + size]), 0)


RUNS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4)


@settings(deadline=None)
@given(RUNS, RUNS)
def test_lengths_are_those_of_a_plain_search(first: list[list[int]], second: list[list[int]]) -> None:
    found = match_lengths(places(first), places(second)).tolist()
    assert found == [plain(run, start, second) for run in first for start in range(len(run))]


def test_joined_parts_are_numbered_apart_and_sorted() -> None:
    odd, even = (Places(np.arange(start, 6, 2), np.array([0, 1, 0])) for start in (1, 0))
    joined = Places.join([odd, even])
    assert joined.position.tolist() == list(range(6))
    assert joined.gram.tolist() == [2, 0, 3, 1, 2, 0]


def test_a_run_of_a_whole_book_is_found() -> None:
    rng = np.random.default_rng(0)
    book = [f"w{number}" for number in rng.integers(50, size=60_000)]
    texts = [" ".join(book), " ".join(book[100:40_000]), " ".join(book[::-1])]
    assert longest_runs(texts, [" ".join(["first", *book])]).tolist()[:2] == [60_000, 39_900]
