"""A file that changes while its rows are read is refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest.records import read
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, read_rows

CONTENT = b"text\nsecret words\n"
ROWS = [RawRow("secret words")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_bytes(CONTENT)
    return tmp_path / "rows.csv"


def test_an_untouched_file_passes(path: Path) -> None:
    assert read_rows(path, ColumnNames("text"), 100) == ROWS


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
def test_a_change_during_the_reading_is_an_error(path: Path, change, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed_meanwhile(*_arguments: object) -> Iterator[RawRow]:
        change(path)
        yield from ROWS

    monkeypatch.setattr(read, "iter_rows", changed_meanwhile)
    with pytest.raises(DataError, match=r"rows\.csv.*changed") as caught:
        read_rows(path, ColumnNames("text"), 100)
    assert "secret" not in str(caught.value)


def test_what_is_checked_of_a_file_is_checked_of_what_is_read(path: Path) -> None:
    checked: list[bytes] = []

    def swapped_behind_the_check() -> None:
        checked.append(path.read_bytes())
        path.write_bytes(CONTENT.upper())

    with pytest.raises(DataError, match=r"rows\.csv.*changed"):
        read_rows(path, ColumnNames("TEXT"), 100, check=swapped_behind_the_check)
    assert checked == [CONTENT]
