"""Where DVC keeps its cache of a workspace: by DVC's own settings, read without DVC, which takes seconds to import."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configobj import ConfigObj, ConfigObjError
from platformdirs import site_config_dir, user_config_dir

from palimpsest.errors import DataError
from palimpsest.workspace import DVC

_ADDRESS = re.compile(r"\w+://")


@dataclass(frozen=True)
class CachePlace:
    """Where the cache lies.

    Attributes:
        folder: absolute; it may be missing as yet.
        said_by: the file of settings that names it; None where none does, and it is in the project's own folder.
    """

    folder: Path
    said_by: Path | None


def find_cache(workspace: Path) -> CachePlace | None:
    """The cache that DVC uses in a workspace; None where there is no DVC project, and so no cache.

    Of the settings of the system, the user, the project and its clone, the last that names a folder counts.

    Raises:
        DataError: a file of settings cannot be read, or the cache is no folder.
    """
    project = _project(workspace)
    if project is None:
        return None
    found = CachePlace(project / "cache", None)
    for path in _files(project):
        said = _section(path)
        if "local" in said:
            raise DataError(
                f"{str(path)!r} has DVC's setting cache.local, which is obsolete and keeps the cache in a remote.",
                "Remove it from that file.",
            )
        if "dir" in said:
            found = CachePlace(_folder(path, said["dir"]), path)
    return found


def _project(workspace: Path) -> Path | None:
    """The folder `.dvc` that DVC finds from there, upwards."""
    here = Path(os.path.abspath(workspace))
    return next((folder / DVC for folder in (here, *here.parents) if (folder / DVC).is_dir()), None)


def _files(project: Path) -> Iterator[Path]:
    """The files of settings, the later before the earlier in force."""
    yield Path(os.environ.get("DVC_SYSTEM_CONFIG_DIR") or site_config_dir("dvc", "iterative"), "config")
    yield Path(os.environ.get("DVC_GLOBAL_CONFIG_DIR") or user_config_dir("dvc", "iterative"), "config")
    yield project / "config"
    yield project / "config.local"


def _section(path: Path) -> Mapping[str, Any]:
    """What a file of settings says of the cache."""
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


def _folder(path: Path, named: object) -> Path:
    """A relative one counts from the file that names it."""
    if not isinstance(named, str) or _ADDRESS.match(named):
        raise DataError(f"cache.dir is {named!r} in {str(path)!r}, which is no folder.", "Name a folder there.")
    return Path(os.path.abspath(path.parent / os.path.expanduser(named)))
