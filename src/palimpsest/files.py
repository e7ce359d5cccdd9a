"""Writes files whole, to a temporary path beside the target that is then renamed, for only their owner to open.

DVC's copies of them are for only the owner too: its cache is found by its own settings.
"""

import glob
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configobj import ConfigObj, ConfigObjError
from platformdirs import site_config_dir, user_config_dir

from palimpsest.errors import DataError
from palimpsest.workspace import CLOSED, DVC, GRAPH, PARAMS

OWNER_UMASK = 0o077
_FILE, _FOLDER = 0o600, 0o700
_ADDRESS = re.compile(r"\w+://")


@contextmanager
def atomic_path(target: Path | str) -> Iterator[Path]:
    """A temporary path that becomes `target`, a file or a folder, when the block ends well.

    A killed process leaves either the old target or none, never half of one.

    Guarantee: none but the owner can read it, from the first byte and whatever the umask is: the path lies in a folder
    that is closed to others, and is closed itself before it leaves that. Folders that are missing are made closed.
    """
    target = Path(target)
    make_folder(target.parent)
    room = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.part"
    room.mkdir(mode=_FOLDER)
    try:
        draft = room / target.name
        yield draft
        for path in (*draft.rglob("*"), draft):
            path.chmod(_FOLDER if path.is_dir() else _FILE)
        _replace(draft, target)
    finally:
        shutil.rmtree(room)


def remove(path: Path) -> None:
    """Remove a file that `atomic_path` wrote, if it is there, and what processes left that were killed while at it."""
    path.unlink(missing_ok=True)
    for room in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        shutil.rmtree(room, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, only for the owner; one that exists stays as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER, exist_ok=True)


@contextmanager
def restrict_to_owner() -> Iterator[None]:
    """Let only the owner open what this process and its children make meanwhile."""
    before = os.umask(OWNER_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def close_workspace(workspace: Path) -> None:
    """Close the places of a workspace that hold private data to all but its owner, where they exist.

    DVC gives files that it copies into its cache, and back, modes of its own: the folders around them are what
    protects. A cache outside the workspace may be shared, so it is refused here instead of closed.

    Guarantee: once this has returned, nothing that DVC copies by the settings of now can be read by others.

    Raises:
        DataError: others than the owner can go on reading a folder, or DVC's cache.
    """
    for path in (workspace / name for name in CLOSED):
        try:
            mode = path.stat().st_mode
            if mode & OWNER_UMASK:
                path.chmod(mode & _FOLDER)
        except FileNotFoundError:
            continue
        except OSError:
            raise DataError(
                f"Others than its owner may read {str(path)!r}, which holds private data, and that cannot be changed.",
                "Keep the workspace in a folder of your own, on a file system that has owners and modes.",
            ) from None
    _require_closed_cache(workspace)


@dataclass(frozen=True)
class _CachePlace:
    """The place of DVC's cache."""

    folder: Path  # absolute; it may be missing as yet
    # the file of settings that names it; None where none does, and it is in the project's own folder
    said_by: Path | None


def find_cache(workspace: Path) -> _CachePlace | None:
    """The cache that DVC uses in a workspace; None where there is no DVC project, and so no cache.

    DVC's settings are read without DVC, which takes seconds to import. There are the system's, the user's, the
    project's and its clone's; the last of them that names a folder counts.

    Raises:
        DataError: a file of settings cannot be read, or the cache is no folder.
    """
    project = _project(workspace)
    if project is None:
        return None
    found = _CachePlace(project / "cache", None)
    for path in _settings_files(project):
        said = _read_cache_settings(path)
        if "local" in said:
            raise DataError(
                f"{str(path)!r} has DVC's setting cache.local, which is obsolete and keeps the cache in a remote.",
                "Remove it from that file.",
            )
        if "dir" in said:
            found = _CachePlace(_cache_folder(path, said["dir"]), path)
    return found


def write_json(path: Path | str, value: Any) -> None:
    """Write one JSON document, whole or not at all; NaN and infinity become null."""
    write_text(path, json.dumps(_replace_nonfinite(value), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path | str, text: str) -> None:
    """Write one text, whole or not at all."""
    with atomic_path(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_json(path: Path | str) -> Any:
    """Read one JSON document."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def workspace_of(path: Path) -> Path | None:
    """The workspace that a path lies in: the nearest folder above it with params.yaml and dvc.yaml."""
    folders = path.resolve().parents
    return next((each for each in folders if all((each / name).is_file() for name in (PARAMS, GRAPH))), None)


def _require_closed_cache(workspace: Path) -> None:
    cache = find_cache(workspace)
    if cache is None or _is_closed(cache.folder):
        return
    place, said = str(cache.folder), "" if cache.said_by is None else f", as {str(cache.said_by)!r} says"
    raise DataError(
        f"DVC keeps copies of private data in {place!r}{said}, where others than their owner may read them.",
        "Give the workspace a cache of its own: run `dvc cache dir --local .dvc/cache` in it. One elsewhere must be a "
        "folder that is yours alone, made by `mkdir -m 700`.",
    )


def _is_closed(folder: Path) -> bool:
    """Whether only its owner can reach what is, or will be, in a folder: it, or one around it, is closed."""
    real = folder.resolve()
    return any(each.is_dir() and not each.stat().st_mode & OWNER_UMASK for each in (real, *real.parents))


def _project(workspace: Path) -> Path | None:
    """Return the folder `.dvc` that DVC finds from the workspace upwards."""
    here = Path(os.path.abspath(workspace))
    return next((folder / DVC for folder in (here, *here.parents) if (folder / DVC).is_dir()), None)


def _settings_files(project: Path) -> Iterator[Path]:
    """Yield the files of settings; a later one overrides an earlier one."""
    yield Path(os.environ.get("DVC_SYSTEM_CONFIG_DIR") or site_config_dir("dvc", "iterative"), "config")
    yield Path(os.environ.get("DVC_GLOBAL_CONFIG_DIR") or user_config_dir("dvc", "iterative"), "config")
    yield project / "config"
    yield project / "config.local"


def _read_cache_settings(path: Path) -> Mapping[str, Any]:
    """Return what a file of settings says of the cache."""
    try:
        with path.open(encoding="utf-8") as lines:
            settings = ConfigObj(lines).dict()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, ConfigObjError) as error:
        raise DataError(
            f"DVC's settings in {str(path)!r} cannot be read ({type(error).__name__}).", "Correct the file."
        ) from None
    said = {name.lower(): values for name, values in settings.items()}.get("cache")
    return {name.lower(): value for name, value in said.items()} if isinstance(said, dict) else {}


def _cache_folder(path: Path, named: object) -> Path:
    """Return the cache folder that a file of settings names; a relative path counts from that file."""
    if not isinstance(named, str) or _ADDRESS.match(named):
        raise DataError(f"cache.dir is {named!r} in {str(path)!r}, which is no folder.", "Name a folder there.")
    return Path(os.path.abspath(path.parent / os.path.expanduser(named)))


def _replace(draft: Path, target: Path) -> None:
    if target.is_dir():
        target.unlink() if target.is_symlink() else shutil.rmtree(target)
    os.replace(draft, target)


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nonfinite(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return None
    return value
