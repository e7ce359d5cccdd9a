import hashlib
import os
from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest.records.snapshot import snapshot, unchanged

CONTENT = b"text\nsecret words\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_bytes(CONTENT)
    return tmp_path / "rows.csv"


def test_an_untouched_file_passes(path: Path) -> None:
    with unchanged(path) as taken:
        path.read_bytes()
    assert taken == snapshot(path)
    assert (taken.size, taken.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def append(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"x")


def same_size_and_time(path: Path) -> None:
    times = path.stat()
    path.write_bytes(CONTENT.upper())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced_by_an_equal_file(path: Path) -> None:
    times = path.stat()
    twin = path.with_name("twin")
    twin.write_bytes(CONTENT)
    os.utime(twin, ns=(times.st_atime_ns, times.st_mtime_ns))
    twin.replace(path)


def touch(path: Path) -> None:
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("change", [append, same_size_and_time, replaced_by_an_equal_file, touch, Path.unlink])
def test_a_change_during_the_block_is_an_error(path: Path, change) -> None:
    with pytest.raises(DataError, match=r"rows\.csv.*changed") as caught, unchanged(path):
        change(path)
    assert "secret" not in str(caught.value)


def test_an_error_in_the_block_is_not_hidden(path: Path) -> None:
    with pytest.raises(KeyError), unchanged(path):
        raise KeyError


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"), unchanged(tmp_path / "none.csv"):
        pass
    with pytest.raises(DataError, match="cannot be read"):
        snapshot(tmp_path)
