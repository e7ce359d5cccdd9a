"""Processes that train together, forked from a test: nothing is imported again."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable

import torch

from palimpsest.devices import MEETING

_FORK = multiprocessing.get_context("fork")
_SECONDS = 120  # far more than any of them needs


def together(work: Callable[[int], object], size: int = 2) -> list[int | None]:
    """Have so many processes do `work(rank)`, which find themselves a team: how each ended, None if it did not."""
    with tempfile.TemporaryDirectory() as folder:
        told = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), MEETING: f"{folder}/meeting"}
        members = [_FORK.Process(target=_take_part, args=(work, rank, told)) for rank in range(size)]
        for each in members:
            each.start()
        for each in members:
            each.join(_SECONDS)
    codes = [each.exitcode for each in members]
    for each in members:
        each.kill()
    return codes


def _take_part(work: Callable[[int], object], rank: int, told: dict[str, str]) -> None:
    os.environ.update({**told, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    torch.set_num_threads(1)
    work(rank)
