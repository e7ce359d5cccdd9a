"""A cache of text vectors: each is computed once and kept in a folder by the text's content, for all callers."""

import hashlib
import os
import struct
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from palimpsest import validate
from palimpsest.errors import ModelError
from palimpsest.files import atomic_path
from palimpsest.shards import map_items

_SEGMENT = 4096  # texts in a file: what a stopped encode loses at most
_PART = 64  # texts that are worth sending to a worker
_PUBLIC = [["a"], ["The parcel came late, and nobody could say where it had been for a week."], ["word " * 100]]
_SMALL_FILES = 32  # with fewer texts, side by side: more of them become one
_MAGIC = b"palimpsestvec/1\n"
_HEADER = struct.Struct("<16s16s16sQQ")  # magic, whose vectors, checksum of the keys, dimension, texts
_KEY = np.dtype("S16")  # the zeros that numpy strips are the same as those it compares with: no two keys become one


class KeptVectors:
    """Maps texts to vectors, and encodes each distinct text only once.

    A text is found by a hash of 128 bits of it and of the encoder's fingerprint. Vectors are stored in `folder`, in
    files that are written whole and never changed, so that processes may share it, and a stopped encode continues where
    it was. A file that is incomplete, of another encoder, of another dimension or of unknown origin is ignored; a
    changed number inside a vector is not noticed. Where two files have a text, the older one counts.

    Small files that are consecutive in time are merged into one, which takes the place of the first: it is written
    before they are deleted, so a process that is stopped, or reads meanwhile, finds each vector in one file or in both.

    The folder reveals as much about the texts as their vectors do: keep it where the texts may be; only its owner can
    read it. Nothing is printed while texts are encoded, not even whether any is new.

    With `batch` 1 each text is encoded by itself, and vectors that were encoded together are not taken from the folder:
    no vector depends on another text. With more, padding may move the last bits of a vector, and the vector of the
    batch it was first encoded in stays; vectors that were encoded alone are taken, too. With `takes_together` and
    `batch` 1 new texts are encoded alone, and vectors that were encoded together are taken: for uses where the last
    bits do not matter.

    A call that encodes anything writes at least one file: pass many texts at once.

    Attributes:
        dimension: length d of a vector.
        fingerprint: fingerprint of the encoder.
    """

    def __init__(
        self,
        encode_batch: Callable[[list[str]], np.ndarray],
        dimension: int,
        folder: Path,
        fingerprint: str,
        batch: int,
        *,
        takes_together: bool = False,
    ) -> None:
        """Initialise the cache without reading or writing anything.

        Args:
            folder: where vectors are kept, made with mode 0700.
            batch: texts encoded at once, those of similar length together.
            takes_together: whether vectors that were encoded together are taken though `batch` is 1.
        """
        validate.require_positive(dimension=dimension, batch=batch)
        self._encode_batch, self._batch = encode_batch, batch
        self._folder, self.dimension, self.fingerprint = Path(folder), dimension, fingerprint
        self._secret = hashlib.blake2b(f"windows {fingerprint}".encode(), digest_size=32).digest()
        alone, together = (self._hash_mark(name) for name in (b"mark alone", b"mark"))
        self._mark = alone if batch == 1 else together
        self._known = {alone} if batch == 1 and not takes_together else {alone, together}
        self._seen: set[str] = set()  # names of files
        self._segments: list[np.ndarray] = []  # each (n, dimension), memory-mapped
        self._starts = np.zeros(1, dtype=np.int64)  # place of each segment's first vector, and of the next to come
        self._keys = np.empty(0, dtype=_KEY)  # sorted
        self._places = np.empty(0, dtype=np.int64)  # of each key, in all segments one after another

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors in the order of `texts`: float32 (n, dimension).

        A vector with a number that is not finite is returned as NaN throughout and not kept: its text is encoded again
        next time.

        Raises:
            ModelError: the encoder does not return one vector of `dimension` numbers per text.
        """
        if not len(texts):
            return np.empty((0, self.dimension), dtype=np.float32)
        keys, first, inverse = np.unique(self._hash_texts(texts), return_index=True, return_inverse=True)
        places = self._find(keys)
        if (places < 0).any():
            self._load()
            missing = np.flatnonzero(self._find(keys) < 0)
            missing = missing[np.argsort(first[missing])]  # as they come, not as they are hashed
            self._encode([texts[index] for index in first[missing]], keys[missing])
            places = self._find(keys)
        return self._read(places[inverse])

    def _hash_mark(self, name: bytes) -> bytes:
        return hashlib.blake2b(name, digest_size=16, key=self._secret).digest()

    def _hash_texts(self, texts: Sequence[str]) -> np.ndarray:
        hashes = (
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret) for text in texts
        )
        return np.frombuffer(b"".join(hash.digest() for hash in hashes), dtype=_KEY)

    def _find(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key's vector, or -1: int64 (n,)."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        near = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[near] == keys, self._places[near], -1)

    def _read(self, places: np.ndarray) -> np.ndarray:
        vectors = np.full((len(places), self.dimension), np.nan, dtype=np.float32)  # of those without a place
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], self._starts)
        for index in np.flatnonzero(np.diff(cuts)):
            rows = order[cuts[index] : cuts[index + 1]]
            vectors[rows] = self._segments[index][places[rows] - self._starts[index]]
        return vectors

    def _encode(self, texts: list[str], keys: np.ndarray) -> None:
        """Encode and keep texts that are not kept yet, given with their keys."""
        waiting: list[tuple[np.ndarray, np.ndarray]] = []
        batches = batch_by_length(list(map(len, texts)), self._batch)
        spelt = ([texts[index] for index in batch] for batch in batches)
        vectors = map_items(self._encode_batch, spelt, max(1, _PART // self._batch), _PUBLIC)
        for batch, own in zip(batches, vectors, strict=True):
            waiting.append((keys[batch], self._check(own, len(batch))))
            if len(waiting) * self._batch >= _SEGMENT:
                self._keep(waiting)
                waiting = []
        self._keep(waiting)
        self._load()
        self._merge()

    def _check(self, vectors: np.ndarray, count: int) -> np.ndarray:
        vectors = np.asarray(vectors, dtype=np.float32)
        if vectors.shape != (count, self.dimension):
            raise ModelError(
                f"The encoder does not return one vector of {self.dimension} numbers per text.",
                "Name the encoder that the dimension was read from.",
            )
        return vectors

    def _keep(self, waiting: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Write one file with the finite vectors."""
        if not waiting:
            return
        keys, vectors = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        usable = np.isfinite(vectors).all(axis=1)
        if usable.any():
            _write(self._folder / _name(f"{time.time_ns():020d}"), self._mark, keys[usable], vectors[usable])

    def _merge(self) -> None:
        """Merge each long run of small files into one; what this process has read does not change."""
        whole = _HEADER.size + _SEGMENT * (_KEY.itemsize + 4 * self.dimension)  # bytes
        for small, run in groupby(self._files(), key=lambda path: _size(path) < whole):
            paths = list(run)
            if small and len(paths) > _SMALL_FILES:
                opened = [(path, _open_file(path, {self._mark}, self.dimension)) for path in paths]
                for _, own in groupby(opened, key=lambda one: one[1] is not None):  # no other's lies between
                    self._merge_run([(path, part) for path, part in own if part is not None])

    def _merge_run(self, parts: Sequence[tuple[Path, tuple[np.ndarray, np.ndarray]]]) -> None:
        if len(parts) < 2:
            return
        keys, first = np.unique(np.concatenate([keys for _, (keys, _) in parts]), return_index=True)  # the oldest
        vectors = np.concatenate([vectors for _, (_, vectors) in parts])[first]
        merged = self._folder / _name(parts[0][0].name.partition("-")[0])
        _write(merged, self._mark, keys, vectors)
        self._seen.add(merged.name)
        for path, _ in parts:
            path.unlink(missing_ok=True)  # another process may have merged the same files

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.vectors"))

    def _load(self) -> None:
        """Read the files that are new in the folder; entries found before do not change."""
        new = [path for path in self._files() if path.name not in self._seen]
        self._seen.update(path.name for path in new)
        parts = [part for path in new if (part := _open_file(path, self._known, self.dimension))]
        if any(not path.exists() for path in new):  # merged meanwhile, into a file that was not there yet
            self._load()
        if not parts:
            return
        begin = self._starts[-1]
        self._segments += [vectors for _, vectors in parts]
        self._starts = np.cumsum([0, *map(len, self._segments)])
        keys = np.concatenate([self._keys, *(keys for keys, _ in parts)])
        places = np.concatenate([self._places, np.arange(begin, begin + len(keys) - len(self._keys))])
        self._keys, first = np.unique(keys, return_index=True)
        self._places = places[first]


def batch_by_length(lengths: Sequence[int], batch: int) -> list[list[int]]:
    """Indices in batches of similar length, shortest first, so that little is spent on padding."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def _name(time: str) -> str:
    return f"{time}-{uuid.uuid4().hex}.vectors"  # sorted by name is sorted by time


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # merged by another process
        return sys.maxsize


def _write(path: Path, mark: bytes, keys: np.ndarray, vectors: np.ndarray) -> None:
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, mark, _checksum(keys), vectors.shape[1], len(keys)))
        file.write(keys.tobytes())
        file.write(vectors.astype("<f4").tobytes())
        file.flush()
        os.fsync(file.fileno())  # a name without its content would count as kept


def _open_file(path: Path, marks: set[bytes], dimension: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Keys (n,) and vectors (n, dimension) of a file, or None for one that is incomplete or not of this encoder."""
    try:
        content = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError):  # gone by now, or empty
        return None
    if len(content) < _HEADER.size:
        return None
    magic, owner, checksum, width, count = _HEADER.unpack(content[: _HEADER.size].tobytes())
    after = _HEADER.size + _KEY.itemsize * count
    if owner not in marks or (magic, width, len(content)) != (_MAGIC, dimension, after + 4 * dimension * count):
        return None
    keys = np.frombuffer(content[_HEADER.size : after].tobytes(), dtype=_KEY)
    if _checksum(keys) != checksum:
        return None
    return keys, content[after:].view("<f4").reshape(count, dimension)


def _checksum(keys: np.ndarray) -> bytes:
    return hashlib.blake2b(keys.tobytes(), digest_size=16).digest()
