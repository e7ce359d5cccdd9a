"""Inputs that are small and unpack to more than a machine holds, or numbers that nobody has: refused, and cheaply."""

import gzip
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MOST = 512 << 20
ROWS = "text,label\n" + "".join(f"row {i} of words,{'ab'[i % 2]}\n" for i in range(40))
# It runs commands and says at the end how much memory they took, in KiB; `getrusage` would begin with the parent's.
WATCHED = """
import contextlib, io, json, os, re, sys
from pathlib import Path
from palimpsest.cli.main import app
def run(folder, command):
    os.chdir(folder)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code = app(command)
        except SystemExit as stop:
            code = stop.code
    return code, said.getvalue()
done = [run(*one) for one in json.load(sys.stdin)]
print(json.dumps([done, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])]))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALIMPSEST_LEDGER", f"sqlite:///{tmp_path}/ledger.db")
    Path("good.csv").write_text(ROWS)
    Path("public.csv").write_text("text\n" + "".join(f"public words {i}\n" for i in range(40)))
    return tmp_path


def packed(begins: bytes, ends: bytes) -> bytes:
    """A gzip file of 2 GiB and few bytes: one line without an end."""
    return gzip.compress(begins) + gzip.compress(b"a" * (1 << 24)) * 128 + gzip.compress(ends)


def told(*commands: list[str], folders: Sequence[Path] = ()) -> list[str]:
    """The two parts of the error that each command ends with, on one line; one process takes little memory for all."""
    where = [str(folder) for folder in folders or [Path.cwd()] * len(commands)]
    given = json.dumps(list(zip(where, commands, strict=True)))
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], input=given, capture_output=True, text=True, timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )  # fmt: skip
    assert done.returncode == 0, done
    ends, memory = json.loads(done.stdout.splitlines()[-1])
    said = [" ".join(words.split()) for _, words in ends]
    found = [
        (code, words.count("error: "), words.count("what to do: ")) for (code, _), words in zip(ends, said, strict=True)
    ]
    assert found == [(1, 1, 1)] * len(commands), said
    assert memory * 1024 < MOST
    return said


def init(data: str, workspace: str = "w", **options: object) -> list[str]:
    given = {"text": "text", "label": "label", "labels": "a,b", "public": "public.csv", "n-public": 40, "asset": "own"}
    pairs = (given | {name.replace("_", "-"): value for name, value in options.items()}).items()
    return ["init", data, "--workspace", workspace, *(f"--{name}={value}" for name, value in pairs)]


LINES = {"b.jsonl.gz": (b'{"label":"a","text":"', b'"}\n'), "b.csv.gz": (b'text,label\n"', b'",a\n')}


def test_a_line_without_end_is_refused_where_it_gets_too_long(home: Path):
    commands = []
    for name, parts in LINES.items():
        Path(name).write_bytes(packed(*parts))
        commands += [init(name, workspace=f"of {name}"), init("good.csv", public=name)]
    said = told(*commands)
    for name, rows, public in zip(LINES, said[::2], said[1::2], strict=True):
        assert "has records that a run would stop at" in rows
        assert "far too long" in Path(f"of {name}/data/private/check.json").read_text()
        assert name in public


def test_a_packed_parquet_file_is_held_only_up_to_a_size(home: Path):
    pq.write_table(pa.table({"text": ["a"], "label": ["a"]}), "small.parquet")
    Path("b.parquet.gz").write_bytes(packed(Path("small.parquet").read_bytes(), b""))
    (said,) = told(init("b.parquet.gz"))
    assert "unpacks to more than it may" in said


VALUES = {"depth": "[" * 100_000 + "]" * 100_000, "digits": "9" * 5000}


def test_a_line_that_no_reader_takes_is_no_row(home: Path):
    for name, value in VALUES.items():
        Path(f"{name}.jsonl").write_text(f'{{"label":"a","text":"b","n":{value}}}\n')
    for said in told(*(init(f"{name}.jsonl") for name in VALUES)):
        assert "no row that can be read" in said


def test_a_link_to_itself_leads_nowhere_and_numbers_that_nobody_has_are_refused(home: Path):
    Path("loop.csv").symlink_to("loop.csv")
    numbers: dict[str, object] = {"epsilon": "1e308", "budget": "1e308", "n_public": 10**30}
    loop, *said = told(init("loop.csv"), *(init("good.csv", **{name: value}) for name, value in numbers.items()))
    assert "leads nowhere" in loop
    assert [words for words in said if "allowed is" not in words] == []


SETTINGS = {
    "digits": "seed: " + "9" * 5000,
    "depth": "a: " + "[" * 20_000,
    "size": "a: " + "b" * (1 << 21),
    "code": "!!python/object/apply:os.system [exit]",
    "aliases": "x0: &x0 [a]\n" + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 10)),
    "epsilon": "privacy: {budget: {epsilon: 1.0e+308}}",
    "records": "dataset: {n_public: 1" + "0" * 30 + "}",
    "nothing": "\0",
}


def test_settings_that_are_no_settings_are_refused(home: Path):
    folders = [home / name for name in SETTINGS]
    for folder, text in zip(folders, SETTINGS.values(), strict=True):
        folder.mkdir()
        (folder / "params.yaml").write_text(text)
    said = told(*[["plan"]] * len(folders), folders=folders)
    assert [words for words in said if "params.yaml" not in words] == []
