"""Reads public texts and files, once it is checked that these are not the workspace's own private ones."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from palimpsest.params.schema import Params
from palimpsest.records.faults import POLICIES
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.write import read_public
from palimpsest.workspace import CHECKPOINTS, EMBEDDINGS, PUBLIC
from stages.vouching import named_sources, resolve_vouched, written_path


def public_texts() -> list[str]:
    """Read the public texts that may be chosen from and trained on."""
    return [row.text for row in read_public(PUBLIC / "train.parquet")]


def heldout_texts() -> list[str]:
    """Read the public texts that measure a model."""
    return [row.text for row in read_public(PUBLIC / "heldout.parquet")]


def public_embeddings(labels: Iterable[str]) -> dict[str, np.ndarray]:
    """Read texts (n, d) of the public texts, descriptions (labels, d) of these labels in their order.

    Labels are found by name: DVC ignores the order of settings, so a file stays where only the order of labels changed.
    """
    with np.load(EMBEDDINGS) as kept:
        places = {name: place for place, name in enumerate(kept["labels"].tolist())}
        return {"texts": kept["texts"], "descriptions": kept["descriptions"][[places[name] for name in labels]]}


@contextmanager
def open_checkpoints(stage: str) -> Iterator[Path]:
    """Yield the folder of the states of a stage's trainings on public text; remove it once the stage is through."""
    folder = CHECKPOINTS / "public" / stage
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def public_rows(params: Params, key: str, columns: ColumnNames) -> Sequence[RawRow]:
    """Read the rows of the file that params.yaml names at `key`, for which `vouched` holds when they are read.

    Raises:
        DataError: it does not hold, the file changed meanwhile, or it cannot be read.
    """
    data, path = params.dataset, written_path(named_sources(params)[key])
    labels, bad = tuple(data.labels) or None, POLICIES[data.bad_rows]
    return read_rows(path, columns, data.max_length, labels, check=partial(resolve_vouched, params, key), bad=bad)
