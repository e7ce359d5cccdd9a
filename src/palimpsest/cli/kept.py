"""Results that commands worked out before, kept in the workspace so that they answer at once.

They are only for display. What runs, and what is reserved, charged, verified or released, reads none of them. A file
here that somebody edited changes what is shown, until the ledger, the settings or the code change.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palimpsest.files import read_json, write_text
from palimpsest.workspace import SEEN

_OURS, _LIBRARIES = ("palimpsest", "stages"), ("dp_accounting", "numpy", "scipy")


def kept(workspace: Path, name: str, about: object, compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns, made of JSON values; the last result if `about` and the code are unchanged.

    Args:
        workspace: the folder that keeps it.
        name: one file is kept for each.
        about: all that the result depends on but the code, as JSON values.
    """
    key = hashlib.sha256(json.dumps([_code_stamp(), about], sort_keys=True, default=str).encode()).hexdigest()
    path = workspace / SEEN / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = read_json(path)
        if body["key"] == key:
            return body["value"]
    value = compute()
    with suppress(OSError):  # a workspace that cannot be written can be looked at
        write_text(path, json.dumps({"key": key, "value": value}))  # a cost may be infinite, which `write_json` loses
    return value


@cache
def _code_stamp() -> str:
    """Return a stamp that changes with every file of the project's code, and with the accounting libraries."""
    homes = [Path(str(spec.origin)).parent for spec in map(find_spec, _OURS) if spec is not None]
    libraries = [Path(str(spec.origin)) for spec in map(find_spec, _LIBRARIES) if spec is not None]
    return stamp(*homes, *libraries)


def stamp(*paths: Path) -> str:
    """Return a stamp of files, and of those in folders, by their sizes and times: it changes when one is written."""
    seen = sorted((str(path), each.st_size, each.st_mtime_ns) for path, each in _files(paths))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _files(paths: tuple[Path, ...]) -> Iterator[tuple[str, os.stat_result]]:
    for path in paths:
        if path.is_file():
            yield str(path), path.stat()
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from ((os.path.join(folder, name), os.stat(os.path.join(folder, name))) for name in names)
