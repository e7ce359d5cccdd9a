"""Inputs that are small and unpack to more than a machine holds, or numbers that nobody has: refused, and cheaply."""

import gzip
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MOST = 512 << 20
ROWS = "text,label\n" + "".join(f"row {i} of words,{'ab'[i % 2]}\n" for i in range(40))
# It runs a command and says at the end how much memory that took, in KiB; `getrusage` would begin with the parent's.
WATCHED = """
import re, sys
from pathlib import Path
from palimpsest.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], flush=True)
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


def told(*command: str) -> str:
    """The two parts of the error that a command ends with, on one line; it takes little memory."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *command], capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )  # fmt: skip
    said = " ".join(done.stderr.split())
    assert (done.returncode, said.count("error: "), said.count("what to do: ")) == (1, 1, 1), done
    assert int(done.stdout.splitlines()[-1]) * 1024 < MOST
    return said


def init(data: str, **options: object) -> str:
    given = {"text": "text", "label": "label", "labels": "a,b", "public": "public.csv", "n-public": 40, "asset": "own"}
    pairs = (given | {name.replace("_", "-"): value for name, value in options.items()}).items()
    return told("init", data, "--workspace", "w", *(f"--{name}={value}" for name, value in pairs))


LINES = {"b.jsonl.gz": (b'{"label":"a","text":"', b'"}\n'), "b.csv.gz": (b'text,label\n"', b'",a\n')}


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_end_is_refused_where_it_gets_too_long(home: Path, name: str):
    Path(name).write_bytes(packed(*LINES[name]))
    assert "has records that a run would stop at" in init(name)
    assert "far too long" in Path("w/data/private/check.json").read_text()
    assert name in init("good.csv", public=name)


def test_a_packed_parquet_file_is_held_only_up_to_a_size(home: Path):
    pq.write_table(pa.table({"text": ["a"], "label": ["a"]}), "small.parquet")
    Path("b.parquet.gz").write_bytes(packed(Path("small.parquet").read_bytes(), b""))
    assert "unpacks to more than it may" in init("b.parquet.gz")


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, "9" * 5000], ids=["depth", "digits"])
def test_a_line_that_no_reader_takes_is_no_row(home: Path, value: str):
    Path("d.jsonl").write_text(f'{{"label":"a","text":"b","n":{value}}}\n')
    assert "no row that can be read" in init("d.jsonl")


def test_a_link_to_itself_leads_nowhere(home: Path):
    Path("loop.csv").symlink_to("loop.csv")
    assert "leads nowhere" in init("loop.csv")


@pytest.mark.parametrize(("option", "value"), [("epsilon", "1e308"), ("budget", "1e308"), ("n_public", 10**30)])
def test_numbers_that_nobody_has_are_refused(home: Path, option: str, value: object):
    assert "allowed is" in init("good.csv", **{option: value})


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


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_no_settings_are_refused(home: Path, name: str):
    Path("params.yaml").write_text(SETTINGS[name])
    assert "params.yaml" in told("plan")
