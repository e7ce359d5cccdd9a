"""The public texts, as `preprocess` left them, and where a long training on them keeps its states."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palimpsest.records.write import read_public
from palimpsest.workspace import CHECKPOINTS, PUBLIC


def public_texts() -> list[str]:
    """Those that may be chosen from and trained on."""
    return [row.text for row in read_public(PUBLIC / "train.parquet")]


def heldout_texts() -> list[str]:
    """Those that measure what a model makes of public text."""
    return [row.text for row in read_public(PUBLIC / "heldout.parquet")]


@contextmanager
def half_trained(stage: str) -> Iterator[Path]:
    """The folder of the states that a stage's trainings on public text keep, removed once the stage is through."""
    folder = CHECKPOINTS / "public" / stage
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
