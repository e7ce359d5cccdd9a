"""Public sources count as public on their owner's word; what a workspace holds or made of private rows never does."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palimpsest.errors import DataError, ModelError
from palimpsest.workspace import FACTS, MADE, MODELS, OWN, PUBLIC_MODELS

EMBEDDED = "embedded"  # a model of the project's own, as params.yaml names it

_WEIGHTS = ".safetensors"
_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model", ".jinja"}  # what a model's answers depend on


@dataclass(frozen=True)
class PublicSource:
    """Something that params.yaml names as public.

    Attributes:
        key: the setting that names it, such as `models.lm`.
        kind: a text file, a model, an endpoint's model, or words of params.yaml that models are told.
        name: the name as written: a path, a hub name; for words, the words.
        used: whether anything that runs reads it.
    """

    key: str
    kind: Literal["text", "model", "endpoint", "prompts"]
    name: str
    used: bool = True

    @property
    def embedded(self) -> bool:
        """Whether it is the project's own encoder, whose weights are known by their hash."""
        return self.kind == "model" and self.name == EMBEDDED

    @property
    def on_disk(self) -> bool:
        """Whether its name may be that of a file or folder."""
        return self.kind in ("text", "model") and not self.embedded


@dataclass(frozen=True)
class Own:
    """The parts of a workspace that are not public.

    Attributes:
        home: the workspace.
        inputs: the private files that it was given.
        fitted: the hash of every file of weights that was ever fitted here; the files may be gone.
    """

    home: Path
    inputs: tuple[Path, ...]
    fitted: frozenset[str] = frozenset()

    def holds(self, path: Path) -> bool:
        """Return whether a path is, is in or contains one of the workspace's own files, by its name or by its links."""
        own = [name for one in (*OWN, *self.inputs) for name in _names(self.home / one)]
        return any(name.is_relative_to(one) or one.is_relative_to(name) for name in _names(path) for one in own)

    def secrets(self) -> Iterator[Path]:
        """Yield its private files, and the weights of its models; a tokenizer belongs to the public model beneath."""
        yield from (path for name in (FACTS, *self.inputs) if (path := self.home / name).is_file())
        public = [self.home / name for name in PUBLIC_MODELS]
        for path in (path for name in MADE for path in files_of(self.home / name)):
            model = path.is_relative_to(self.home / MODELS)
            if not model or (path.suffix == _WEIGHTS and not any(path.is_relative_to(one) for one in public)):
                yield path


def require_public(source: PublicSource, place: Path, own: Own) -> None:
    """Refuse a source that is the workspace's own, or a copy of its own, however it is named and wherever it lies.

    Guarantee: no file of `place` is one of the workspace's own outputs or private inputs, through links or otherwise,
    and none has the content of one that is there now: of a private file, of rows, of a fitted model's weights. A file
    of weights that were once fitted here is found though the model is gone. What it cannot see: a private model that
    was trained further, merged or converted, rows in another format or with a byte changed, and copies of rows that are
    here no more. That such things are not among what is named public is the owner's word, and the privacy statement
    says so.

    Args:
        source: what params.yaml names.
        place: its file or folder; where there is none, only its name is checked.
        own: what the workspace has.

    Raises:
        DataError: it is not public.
    """
    if own.holds(place) or any(own.holds(path) for path in files_of(place)):
        raise DataError(
            f"{source.key} in params.yaml points at private rows or at what this workspace made of them.",
            "Name something public that lies outside the workspace's data, models and reports.",
        )
    files = list(files_of(place))
    if _copies(files, own.secrets()) or any(sha256(path) in own.fitted for path in weights_of(files) if own.fitted):
        raise DataError(
            f"{source.key} in params.yaml points at a copy of private rows, or of a model that was fitted to them.",
            "Name something public, which neither holds nor was made from these rows.",
        )


def _copies(files: Sequence[Path], secret: Iterable[Path]) -> bool:
    """Return whether a file has a secret one's content. Only files of equal length are read; empty ones never count."""
    lengths = {_length(path) for path in files} - {0}
    alike = [path for path in secret if _length(path) in lengths]
    shared, known = {_length(path) for path in alike}, {sha256(path) for path in alike}
    return any(_length(path) in shared and sha256(path) in known for path in files)


def files_of(place: Path) -> Iterator[Path]:
    """Yield a file itself, or all files below a folder, through links too; none where there is nothing."""
    if place.is_file():
        yield place
    seen: set[str] = set()
    for folder, below, names in os.walk(place, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:  # a link to a folder above
            below.clear()
            continue
        below.sort()  # of two links to one folder the same is entered everywhere
        seen.add(real)
        yield from (path for name in sorted(names) if (path := Path(folder, name)).is_file())


def weights(folder: Path) -> str:
    """Return a digest of the weights in a folder, which a fitted model's receipt has."""
    digest = hashlib.sha256()
    for path in sorted(weights_of(files_of(folder))):
        digest.update(bytes.fromhex(sha256(path)))
    return digest.hexdigest()


def weights_of(files: Iterable[Path]) -> Iterator[Path]:
    """Return the files that hold weights: no loader takes weights from another kind of file."""
    return (path for path in files if path.suffix == _WEIGHTS)


def fingerprint_of(folder: Path) -> str:
    """Return a digest of a model's weights, configuration and templates, the same in any place: 64 hexadecimal digits.

    Raises:
        ModelError: there are none.
    """
    files = sorted(path for path in files_of(Path(folder)) if path.suffix in _SUFFIXES)
    if not files:
        raise ModelError(
            f"The folder {str(folder)!r} holds no model.", "Name a folder with its weights and configuration."
        )
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.relative_to(folder).as_posix()}\n{sha256(path)}\n".encode())
    return whole.hexdigest()


def contents_of(folder: Path) -> str:
    """Return a digest of every file in a folder with its name: 64 hexadecimal digits."""
    files = sorted(files_of(folder))
    lines = (f"{path.relative_to(folder).as_posix()} {sha256(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces: 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _length(path: Path) -> int:
    """Return a file's length in bytes; 0 where another process has just removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _names(path: Path) -> list[Path]:
    """Return a path made absolute as written, and with its links resolved."""
    return [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
