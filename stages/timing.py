"""Keeps how long a stage took, and its sizes, so that `palimpsest plan` can estimate the next run.

It is only informative, as all that lies beside it, in a folder that is closed to others. A size is a setting of
params.yaml, never a count of private rows. A time may depend on the rows: it is kept in whole seconds.
"""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.files import write_json
from palimpsest.params.file import RESOLVED
from palimpsest.workspace import SECONDS

PASSES = ("epochs", "rounds", "steps", "tokens")
RECORDS, ROWS = "n_public", "rows"


def note(program: str, name: str, seconds: float) -> None:
    """Keep the time of a stage that has just ended, in the working directory.

    Args:
        program: its module in `stages`.
        name: the value it is repeated for; empty where it is not repeated.
        seconds: how long it took, without starting Python.
    """
    write_json(place(program, name), {"seconds": math.ceil(seconds), "cores": os.cpu_count(), "sizes": sizes(Path())})


def place(program: str, name: str) -> Path:
    """Return the path of a stage's time, from the workspace."""
    return SECONDS / f"{program}@{name}.json"


def sizes(workspace: Path) -> dict[str, float]:
    """Return key, as params.yaml resolves it -> each setting that determines the amount of work."""
    values = YAML(typ="safe").load((workspace / RESOLVED).read_text(encoding="utf-8"))
    return dict(_numbers(values, ()))


def _numbers(value: Any, key: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from _numbers(inner, (*key, str(part)))
    elif isinstance(value, int | float) and key[-1] in (RECORDS, ROWS, *PASSES):
        yield ".".join(key), float(value)
