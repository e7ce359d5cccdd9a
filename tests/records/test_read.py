"""Every way an input file can be wrong, on real files, and that no message ever shows what is in a row."""

import csv
import gzip
import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.records import formats
from palimpsest.records.faults import Kind, RecordError, drop
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, iter_rows, read_rows

SECRET = "ZANZIBAR-7731"
COLUMNS = ColumnNames("text", "label")
LABELS = ("a", "b")
PLAIN = (".csv", ".tsv", ".jsonl", ".parquet")
SUFFIXES = (*PLAIN, *(suffix + ".gz" for suffix in PLAIN))
Rows = list[dict[str, object]]


def delimited(delimiter: str) -> Callable[[Path, Rows], None]:
    def write(path: Path, rows: Rows) -> None:
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)

    return write


def jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS = {".csv": delimited(","), ".tsv": delimited("\t"), ".jsonl": jsonl, ".parquet": parquet}


def write(path: Path, rows: Rows) -> Path:
    """Write the rows in the format that the file's name asks for."""
    zipped = path.suffix == ".gz"
    plain = path.with_suffix("") if zipped else path
    WRITERS[plain.suffix](plain, rows)
    if zipped:
        path.write_bytes(gzip.compress(plain.read_bytes(), 1))
        plain.unlink()
    return path


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Callable[..., DataError]:
    """Read a file that must be refused; the error, its chain, the log and the terminal must not show the secret."""

    def check(path: Path, columns: ColumnNames = COLUMNS, labels: tuple[str, ...] | None = LABELS) -> DataError:
        with caplog.at_level(0), pytest.raises(DataError) as caught:
            read_rows(path, columns, 1000, labels)
        error = caught.value
        assert path.name in error.problem
        assert error.remedy
        shown = "".join(traceback.format_exception(error)) + caplog.text + "".join(capfd.readouterr())
        shown += "".join(f"{link!r} {link.args} {vars(link)}" for link in chain(error))
        assert SECRET not in shown
        assert str(path.parent) not in str(error)
        return error

    return check


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    texts = ["plain", 'a "quoted", cell\twith\nnew lines\r\nof both kinds', "ünïcödé 🦑", "  spaces  ", "null", ""]
    rows: Rows = [{"id": 1, "label": LABELS[i % 2], "text": text, "who": f"p{i}"} for i, text in enumerate(texts)]
    path = write(tmp_path / f"rows{suffix}", rows)
    expected = [RawRow(text, LABELS[i % 2], f"p{i}") for i, text in enumerate(texts)]
    assert read_rows(path, ColumnNames("text", "label", "who"), 1000, LABELS) == expected
    assert read_rows(path, ColumnNames("text"), 1000, None) == [RawRow(text) for text in texts]


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_text_survives_every_format(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows: Rows = [{"text": text, "label": "a"} for text in [*texts, "last"]]
    for suffix in PLAIN:
        path = write(folder / f"rows{suffix}", rows)
        assert [row.text for row in iter_rows(path, COLUMNS, 1000, LABELS)] == [*texts, "last"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_ten_megabyte_row_is_cut_and_marked(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"text": "x" * 10_000_000, "label": "a"}, {"text": "y", "label": "b"}])
    assert read_rows(path, COLUMNS, 50, LABELS) == [RawRow("x" * 50, "a", cut=True), RawRow("y", "b")]


@pytest.mark.parametrize("suffix", PLAIN)
def test_a_text_of_exactly_the_longest_length_is_not_cut(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"text": "é" * 10, "label": "a"}, {"text": "é" * 11, "label": "a"}])
    assert [row.cut for row in read_rows(path, COLUMNS, 10, LABELS)] == [False, True]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_null_text_is_empty_and_integers_are_names(tmp_path: Path, suffix: str) -> None:
    rows: Rows = [{"text": None, "label": 0, "who": 7}, {"text": "t", "label": 1, "who": 8}]
    path = write(tmp_path / f"rows{suffix}", rows)
    expected = [RawRow("", "0", "7"), RawRow("t", "1", "8")]
    assert read_rows(path, ColumnNames("text", "label", "who"), 10, ("0", "1")) == expected


@pytest.mark.parametrize("column", ["label", "who"])
def test_one_empty_cell_that_changes_a_whole_column_stops_and_drops_nothing(tmp_path: Path, column: str) -> None:
    """pandas writes whole numbers beside an empty cell as fractions: then no record can be left out by itself."""
    table = {"text": ["t", "u"], "label": ["0", "1"], "who": ["a", "b"]} | {column: [1.0, None]}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=f"Column '{column}' .* holds numbers with a point"):
        read_rows(tmp_path / "rows.parquet", ColumnNames("text", "label", "who"), 10, ("0", "1"), bad=drop)


def test_a_file_of_which_no_record_is_kept_is_refused_like_one_without_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", b"text,label\nt,A\nu,B\n")
    with pytest.raises(DataError, match=r"All records of 'rows\.csv' are left out"):
        read_rows(path, COLUMNS, 10, LABELS, bad=drop)
    path = written(tmp_path / "rows.csv", b"text,label\nt,A\nu,b\n")
    assert read_rows(path, COLUMNS, 10, LABELS, bad=drop) == [RawRow("u", "b")]


def test_all_texts_null_and_categories_in_parquet(tmp_path: Path) -> None:
    table = pa.table({"text": pa.nulls(2), "label": pa.array(["a", "b"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet", COLUMNS, 10, LABELS) == [RawRow("", "a"), RawRow("", "b")]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_parquet_compressions(tmp_path: Path, compression: str) -> None:
    pq.write_table(pa.table({"text": ["t"], "label": ["a"]}), tmp_path / "rows.parquet", compression=compression)
    assert read_rows(tmp_path / "rows.parquet", COLUMNS, 10, LABELS) == [RawRow("t", "a")]


def test_large_strings_and_dotted_names_in_parquet(tmp_path: Path) -> None:
    table = pa.table({"a.text": pa.array(["t"], pa.large_string()), "a": ["other"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet", ColumnNames("a.text"), 10) == [RawRow("t")]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".CSV"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_bom_blank_lines_and_windows_newlines(tmp_path: Path, suffix: str, newline: bytes) -> None:
    lines = [b"\xef\xbb\xbftext,label", b'"one', b'more",a', b"", b"two,b"]
    path = written(tmp_path / f"rows{suffix}", newline.join(lines))
    expected = [RawRow("one" + newline.decode() + "more", "a"), RawRow("two", "b")]
    assert read_rows(path, COLUMNS, 100, LABELS) == expected


def test_bom_and_blank_lines_in_jsonl(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"text": "one", "label": "a"}\r\n\r\n{"text": "\\ud83e\\udd91", "label": "b"}'
    path = written(tmp_path / "rows.jsonl", content)
    assert read_rows(path, COLUMNS, 100, LABELS) == [RawRow("one", "a"), RawRow("🦑", "b")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_file(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    assert "does not exist" in refused(tmp_path / f"rows{suffix}").problem


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_path_below_a_file_and_folder_instead_of_a_file(
    tmp_path: Path, suffix: str, refused: Callable[..., DataError]
) -> None:
    (tmp_path / "file").write_text(SECRET)
    assert "does not exist" in refused(tmp_path / "file" / f"rows{suffix}").problem
    (tmp_path / f"folder{suffix}").mkdir()
    assert "regular file" in refused(tmp_path / f"folder{suffix}").problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_file_without_permission(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"text": SECRET, "label": "a"}])
    path.chmod(0)
    assert "may not be read" in refused(path).problem


def test_other_disk_errors_are_explained(tmp_path: Path, refused: Callable[..., DataError]) -> None:
    # A name longer than the file system allows: an OSError of no special kind, for root too.
    assert "cannot be read" in refused(tmp_path / ("x" * 300 + ".csv")).problem


@pytest.mark.parametrize("name", ["rows.txt", "rows", "rows.gz", "rows.xlsx", ".csv"])
def test_unknown_format(tmp_path: Path, name: str, refused: Callable[..., DataError]) -> None:
    written(tmp_path / name, SECRET.encode())
    assert "format" in refused(tmp_path / name).problem


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_file(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    refused(written(tmp_path / f"rows{suffix}", b""))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".csv.gz"])
def test_header_without_rows(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.schema([("text", pa.string()), ("label", pa.string())]).empty_table(), path)
    else:
        written(path, b"text,label\n" if "csv" in suffix else b"text\tlabel\n")
    assert "no row that can be read" in refused(path).problem


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("missing", ["text", "label"])
def test_missing_column_is_named_and_the_others_are_not(
    tmp_path: Path, suffix: str, missing: str, refused: Callable[..., DataError]
) -> None:
    present = {"text": "label", "label": "text"}[missing]
    path = write(tmp_path / f"rows{suffix}", [{SECRET: "x", present: "a", "third": "y"}])
    problem = refused(path).problem
    assert repr(missing) in problem
    assert "third" not in problem
    assert "jsonl" in suffix or "3 columns" in problem


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_file_without_a_header_does_not_show_its_first_row(
    tmp_path: Path, suffix: str, refused: Callable[..., DataError]
) -> None:
    cells = [SECRET, "a"]
    content = ("," if suffix == ".csv" else "\t").join(cells).encode() + b"\n"
    assert "2 columns" in refused(written(tmp_path / f"rows{suffix}", content)).problem


@pytest.mark.parametrize("suffix", PLAIN)
def test_duplicate_header(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    path = tmp_path / f"rows{suffix}"
    contents = {
        ".csv": f"text,label,text\n{SECRET},a,x\n",
        ".tsv": f"text\tlabel\ttext\n{SECRET}\ta\tx\n",
        ".jsonl": f'{{"text": "{SECRET}", "label": "a", "text": "x"}}\n',
    }
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_arrays([pa.array([SECRET])] * 3, ["text", "label", "text"]), path)
    else:
        written(path, contents[suffix].encode())
    problem = refused(path).problem
    assert "2 columns named 'text'" in problem or "occurs twice" in problem


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_unknown_label_names_the_row(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    rows: Rows = [{"text": SECRET, "label": label} for label in ("a", "b", SECRET, "a")]
    path = write(tmp_path / f"rows{suffix}", rows)
    problem = refused(path).problem
    assert "row 3" in problem
    assert "'label'" in problem
    assert len(read_rows(path, COLUMNS, 100, None)) == 4


@pytest.mark.parametrize("suffix", PLAIN)
@pytest.mark.parametrize("label", ["", "A", " a", "a\n"])
def test_labels_are_compared_exactly(
    tmp_path: Path, suffix: str, label: str, refused: Callable[..., DataError]
) -> None:
    assert "row 1" in refused(write(tmp_path / f"rows{suffix}", [{"text": SECRET, "label": label}])).problem


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_null_label_is_none_only_where_labels_are_free(
    tmp_path: Path, suffix: str, refused: Callable[..., DataError]
) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"text": SECRET, "label": "a"}, {"text": SECRET, "label": None}])
    assert "row 2" in refused(path).problem
    assert read_rows(path, COLUMNS, 5, None)[1] == RawRow(SECRET[:5], None, cut=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", ["text", "label", "who"])
def test_nul_character(tmp_path: Path, suffix: str, column: str, refused: Callable[..., DataError]) -> None:
    good: dict[str, object] = {"text": SECRET, "label": "a", "who": "p"}
    path = write(tmp_path / f"rows{suffix}", [good, good | {column: f"{SECRET}\0"}])
    problem = refused(path, ColumnNames("text", "label", "who"), None).problem
    assert "row 2" in problem
    assert "NUL" in problem
    assert repr(column) in problem


def broken_utf8(path: Path) -> Path:
    """Two good rows and a third whose text has a byte that is not UTF-8."""
    plain = path.name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        texts = pa.array([b"one", b"two", SECRET.encode() + b"\xff"]).view(pa.string())
        pq.write_table(pa.table({"text": texts, "label": ["a", "a", "a"]}), path.parent / plain)
        return written(path, (path.parent / plain).read_bytes())
    write(path.parent / plain, [{"text": text, "label": "a"} for text in ("one", "two", SECRET + "#")])
    return written(path, (path.parent / plain).read_bytes().replace(b"#", b"\xff"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_invalid_utf8_names_the_row(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    problem = refused(broken_utf8(tmp_path / f"rows{suffix}")).problem
    assert "row 3" in problem
    assert "UTF-8" in problem


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_other_encodings(tmp_path: Path, suffix: str, encoding: str, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"text": SECRET, "label": "a"}])
    text = path.read_text().replace(SECRET, SECRET + "é")
    problem = refused(written(path, text.encode(encoding))).problem
    assert {"utf-16": "is UTF-16", "latin-1": "not valid UTF-8"}.get(encoding, "") in problem


def test_half_of_a_surrogate_pair_in_json(tmp_path: Path, refused: Callable[..., DataError]) -> None:
    content = f'{{"text": "{SECRET}\\ud83e", "label": "a"}}'.encode()
    assert "row 1" in refused(written(tmp_path / "rows.jsonl", content)).problem


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f'{{"text": "{SECRET}", "label": ', "not valid JSON"),
        (f"{SECRET}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (f'{{"text": {"9" * 5000}, "label": "a"}}', "not valid JSON"),
        (f'["{SECRET}", "a"]', "not a JSON object"),
        (f'"{SECRET}"', "not a JSON object"),
        ("null", "not a JSON object"),
        (f'{{"text": "{SECRET}"}}', "no key 'label'"),
        (f'{{"text": ["{SECRET}"], "label": "a"}}', "'text' is not a string"),
        ('{"text": 12, "label": "a"}', "'text' is not a string"),
        (f'{{"text": "x", "label": ["{SECRET}"]}}', "'label' is neither"),
        ('{"text": "x", "label": true}', "'label' is neither"),
        ('{"text": "x", "label": 0.5}', "'label' is neither"),
    ],
)
def test_broken_json_line(tmp_path: Path, line: str, problem: str, refused: Callable[..., DataError]) -> None:
    good = '{"text": "fine", "label": "a"}'
    error = refused(written(tmp_path / "rows.jsonl", f"{good}\n\n{line}\n{good}\n".encode()))
    assert "row 3" in error.problem
    assert problem in error.problem


@pytest.mark.parametrize("texts", [[1, 2], [True, False], [[SECRET], [SECRET]], [{SECRET: 1}, {SECRET: 2}]])
def test_parquet_text_that_is_not_a_string(
    tmp_path: Path, texts: list[object], refused: Callable[..., DataError]
) -> None:
    path = write(tmp_path / "rows.parquet", [{"text": text, "label": "a"} for text in texts])
    assert "row 1: column 'text' is not a string" in refused(path).problem


@pytest.mark.parametrize(
    "row",
    [
        f"{SECRET},a,more",
        f"{SECRET}",
        f'{SECRET},"never closed\nnext,a\n',
        f'"{SECRET}"{SECRET},a',
        f"{SECRET}\r{SECRET},a",
    ],
)
def test_broken_csv_row(tmp_path: Path, row: str, refused: Callable[..., DataError]) -> None:
    path = written(tmp_path / "rows.csv", f"text,label\nfine,a\n{row}\nfine,a\n".encode())
    assert "row 2" in refused(path).problem


@pytest.mark.parametrize("content", [f"text,label\r{SECRET},a\r", f"text,label\nfine,a\n{SECRET}\r{SECRET},a\n"])
def test_a_carriage_return_alone_is_called_by_its_name(
    tmp_path: Path, content: str, refused: Callable[..., DataError]
) -> None:
    error = refused(written(tmp_path / "rows.csv", content.encode()))
    assert "a carriage return stands alone" in error.problem
    assert error.remedy == "Save it with line ends of Unix or Windows."


BYTES = pa.array([b"fine", b"\xff" + SECRET.encode(), None], pa.binary())
ENCODINGS = {
    "text": lambda: BYTES.cast(pa.string(), safe=False),
    "large": lambda: BYTES.cast(pa.large_string(), safe=False),
    "view": lambda: BYTES.cast(pa.binary_view()).cast(pa.string_view(), safe=False),
    "categories": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.int32()), BYTES[:2].cast(pa.string(), safe=False), safe=False
    ),
}


@pytest.mark.parametrize("kind", ENCODINGS)
def test_a_text_of_parquet_that_is_no_utf_8_is_one_records_fault(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ENCODINGS[kind]()}), path)
    found: list[RecordError] = []
    assert [row.text for row in iter_rows(path, ColumnNames("text"), 9, bad=lambda fault: not found.append(fault))] == [
        "fine"
    ]
    assert [fault.kind for fault in found] == [Kind.CODING, Kind.EMPTY]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 1 << 30, None], pa.int32()).view(pa.date32()),
        pa.array([1, 1 << 60, None], pa.int64()).view(pa.timestamp("us")),
        pa.array([1, 2, None], pa.int64()).view(pa.timestamp("s", "Nowhere/Land")),
        pa.StructArray.from_arrays([BYTES.cast(pa.string(), safe=False)], ["a"]),
    ],
    ids=["date", "timestamp", "zone", "struct"],
)
def test_a_cell_that_no_value_stands_for_is_one_records_fault(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"], "who": column}), path)
    found: list[RecordError] = []
    columns = ColumnNames("text", unit="who", nobody=True)
    for _ in iter_rows(path, columns, 9, bad=lambda fault: not found.append(fault)):
        pass
    assert Kind.TYPE in {fault.kind for fault in found}
    assert {fault.kind for fault in found} <= {Kind.TYPE, Kind.NESTED}


def test_giant_csv_field(tmp_path: Path, refused: Callable[..., DataError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FIELD_LIMIT", 1000)
    path = written(tmp_path / "rows.csv", f"text,label\nfine,a\n{SECRET * 200},a\n".encode())
    problem = refused(path).problem
    assert "row 2" in problem
    assert "1000" in problem


@pytest.mark.parametrize("suffix", PLAIN)
@pytest.mark.parametrize("damage", ["cut", "header", "middle", "not gzip"])
def test_damaged_gzip(tmp_path: Path, suffix: str, damage: str, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / f"rows{suffix}.gz", [{"text": SECRET + str(i), "label": "a"} for i in range(2000)])
    whole = path.read_bytes()
    half = len(whole) // 2
    contents = {
        "cut": whole[:half],
        "header": whole[:5],
        "middle": whole[:half] + bytes(50) + whole[half + 50 :],
        "not gzip": SECRET.encode() * 100,
    }
    path.write_bytes(contents[damage])
    refused(path)


@pytest.mark.parametrize("damage", ["cut", "middle", "text"])
def test_damaged_parquet(tmp_path: Path, damage: str, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / "rows.parquet", [{"text": SECRET + str(i), "label": "a"} for i in range(2000)])
    whole = path.read_bytes()
    contents = {"cut": whole[:-100], "middle": whole[:50] + bytes(3000) + whole[3050:], "text": SECRET.encode() * 100}
    path.write_bytes(contents[damage])
    refused(path)


@pytest.mark.parametrize("suffix", PLAIN)
def test_row_without_a_person(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    rows: Rows = [{"text": SECRET, "label": "a", "who": "p"}, {"text": SECRET, "label": "a", "who": ""}]
    problem = refused(write(tmp_path / f"rows{suffix}", rows), ColumnNames("text", "label", "who")).problem
    assert "column 'who' is empty" in problem
    assert "row 2" in problem


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_free_label_is_part_of_the_record(tmp_path: Path, suffix: str) -> None:
    labels = ["a span", "", "any other", "x" * 30]
    path = write(tmp_path / f"rows{suffix}", [{"text": "t", "label": label} for label in labels])
    found = read_rows(path, COLUMNS, 20, None)
    assert [(row.label, row.cut) for row in found] == [
        ("a span", False), ("", False), ("any other", False), ("x" * 20, True),
    ]  # fmt: skip


def test_a_public_label_is_never_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"text": "t", "label": "x" * 30}])
    assert read_rows(path, COLUMNS, 20, ("x" * 30,)) == [RawRow("t", "x" * 30)]


def test_a_free_label_may_be_missing_but_not_from_every_row(tmp_path: Path, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / "rows.jsonl", [{"text": "t"}, {"text": SECRET, "label": "a"}, {"text": "t", "label": None}])
    assert [row.label for row in read_rows(path, COLUMNS, 20, None)] == [None, "a", None]
    assert "row 1: no key 'label'" in refused(path).problem
    problem = refused(path, ColumnNames("text", "lable"), None).problem
    assert "no row has the key 'lable'" in problem
    assert "row 1: no key 'txt'" in refused(path, ColumnNames("txt", "label"), None).problem
    assert "no row that can be read" in refused(written(tmp_path / "none.jsonl", b"\n"), labels=None).problem


KEYS = ("year", "title")
RECORD = '{"year": 1998, "title": "Été"}'
OTHERWISE: Rows = [{"title": "Été", "id": 1, "year": 1998}, {"id": 2, "year": 1998, "title": "Été"}]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_line_is_a_record(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", [*OTHERWISE, {"id": 3, "title": None}])
    expected = [RawRow(RECORD, unit="1"), RawRow(RECORD, unit="2"), RawRow('{"title": null}', unit="3")]
    assert read_rows(path, ColumnNames("*", unit="id", keys=KEYS), 1000) == expected
    assert read_rows(path, ColumnNames("*", keys=KEYS), 10)[0] == RawRow(RECORD[:10], cut=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_holds_the_text_of_records(tmp_path: Path, suffix: str) -> None:
    rows: Rows = [{"body": json.dumps(row, indent=1), "n": 1} for row in OTHERWISE]
    path = write(tmp_path / f"rows{suffix}", rows)
    assert read_rows(path, ColumnNames("body", keys=KEYS), 1000) == [RawRow(RECORD)] * 2


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_column_holds_records(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"body": OTHERWISE[0]}, {"body": None}])
    assert read_rows(path, ColumnNames("body", keys=KEYS), 1000) == [RawRow(RECORD), RawRow("")]


@pytest.mark.parametrize("cell", [SECRET, f'["{SECRET}"]', f'{{"a": "{SECRET}"', 3, ["x"], f'{{"a":1,"a":"{SECRET}"}}'])
def test_what_is_no_record_names_the_row(tmp_path: Path, cell: object, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / "rows.jsonl", [{"body": RECORD}, {"body": cell}])
    problem = refused(path, ColumnNames("body", keys=KEYS), None).problem
    assert "row 2: column 'body' is not a JSON object" in problem


@pytest.mark.parametrize("line", [f'{{"title": "{SECRET}", "year": NaN}}', f'{{"title": "{SECRET}\\ud800"}}', "[1]"])
def test_a_line_that_is_no_record_names_the_row(tmp_path: Path, line: str, refused: Callable[..., DataError]) -> None:
    path = written(tmp_path / "rows.jsonl", f"{RECORD}\n{line}\n".encode())
    assert "row 2" in refused(path, ColumnNames("*", keys=KEYS), None).problem


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_only_in_jsonl_is_a_row_a_record(tmp_path: Path, suffix: str, refused: Callable[..., DataError]) -> None:
    path = write(tmp_path / f"rows{suffix}", [{"year": 1, "title": SECRET}])
    assert "not JSONL" in refused(path, ColumnNames("*", keys=KEYS), None).problem


def test_a_column_may_be_called_like_the_whole_row(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [{"*": "plain", "label": "a"}])
    assert read_rows(path, ColumnNames("*"), 1000) == [RawRow("plain")]


def test_a_public_file_may_hold_records_or_plain_text(tmp_path: Path, refused: Callable[..., DataError]) -> None:
    lines = write(tmp_path / "rows.jsonl", [{"text": "plain", "id": 3}, OTHERWISE[0]])
    cells = write(tmp_path / "rows.csv", [{"body": "plain"}, {"body": json.dumps(OTHERWISE[0])}])
    for path, column in ((lines, "*"), (cells, "body")):
        assert read_rows(path, ColumnNames(column, keys=KEYS, plain=True), 99) == [RawRow("plain"), RawRow(RECORD)]
    assert "row 1" in refused(cells, ColumnNames("body", keys=KEYS), None).problem


def test_rows_do_not_show_their_text() -> None:
    assert SECRET not in repr(RawRow(SECRET, SECRET, SECRET))


def test_max_length_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_length"):
        read_rows(tmp_path / "rows.csv", COLUMNS, 0)
