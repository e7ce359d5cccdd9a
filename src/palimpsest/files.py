"""Writing files whole: to a temporary path beside the target, then renamed."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WORKSPACE = ("params.yaml", "dvc.yaml")


@contextmanager
def atomic_path(target: Path | str) -> Iterator[Path]:
    """A temporary path that becomes `target`, a file or a folder, when the block ends well.

    A killed process leaves either the old target or none, never half of one.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        yield draft
        _replace(draft, target)
    finally:
        _remove(draft)


def write_json(path: Path | str, value: Any) -> None:
    """Write one JSON document, whole or not at all; NaN and infinity become null."""
    with atomic_path(path) as draft:
        draft.write_text(json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path | str) -> Any:
    """Read one JSON document."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def workspace_of(path: Path) -> Path | None:
    """The workspace that a path lies in: the nearest folder above it with params.yaml and dvc.yaml."""
    folders = path.resolve().parents
    return next((each for each in folders if all((each / name).is_file() for name in _WORKSPACE)), None)


def _replace(draft: Path, target: Path) -> None:
    if target.is_dir():
        _remove(target)
    os.replace(draft, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return None
    return value
