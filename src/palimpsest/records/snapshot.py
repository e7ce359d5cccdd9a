"""Noticing that an input file changed while it was being used."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import DataError


@dataclass(frozen=True)
class Snapshot:
    """A file's identity. Private zone: a plain hash of a guessable file tells who is in it.

    Attributes:
        size: bytes.
        mtime_ns: time of the last modification, nanoseconds since the epoch.
        inode: the file's number on its disk; a file replaced by another of the same content has a new one.
        sha256: of the content, in hexadecimal.
    """

    size: int
    mtime_ns: int
    inode: int
    sha256: str


def snapshot(path: Path | str) -> Snapshot:
    """The file's identity now; the content is hashed in pieces.

    Raises:
        DataError: the file cannot be read.
    """
    path = Path(path)
    taken = _taken(path)
    if taken is None:
        raise DataError(f"{path.name!r} cannot be read.", "Check that it is there and that this user may read it.")
    return taken


def _taken(path: Path) -> Snapshot | None:
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        status = path.stat()
    except OSError:
        return None
    return Snapshot(status.st_size, status.st_mtime_ns, status.st_ino, digest)


@contextmanager
def unchanged(path: Path | str) -> Iterator[Snapshot]:
    """Run the block, then check that the file is still the one it was before.

    Raises:
        DataError: the file cannot be read before the block, or is another one (or gone) after it.
    """
    path = Path(path)
    before = snapshot(path)
    yield before
    if _taken(path) != before:
        raise DataError(f"{path.name!r} changed while it was being read.", "Let nothing write to it, and run again.")
