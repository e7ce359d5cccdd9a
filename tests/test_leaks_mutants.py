"""Private text leaves through no side door: no log, error, public file or filter; and no seed reaches noise."""

import ast
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stages.preprocess
from palimpsest.params.load import load
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import read_public, write_public, write_split
from stages.common import start
from stages.filters import heldout_limit
from stages.tools import encoders
from tests.prediction.world import ROWS, VECTOR, Counted, wave

ROOT = Path(__file__).parents[1]
SECRET = "8812-XK"
PUBLIC = ["How do I reset it?", "Where is my parcel?", "The lamp hums.", "It leaks."]


def noise_keys(code: str) -> list[str]:
    """What each noise source of some code is made from; "" is the operating system's entropy."""
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    made = [call for call in calls if "NoiseSource" in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))]
    return [", ".join(ast.unparse(part) for part in (*call.args, *call.keywords)) for call in made]


def test_no_seed_but_the_testing_one_reaches_noise():
    files = [path for folder in ("src", "stages", "flows") for path in (ROOT / folder).rglob("*.py")]
    found = {path: noise_keys(text) for path in files if "NoiseSource" in (text := path.read_text())}
    assert {key for keys in found.values() for key in keys} <= {"", "params.testing.noise_seed"}
    assert [path.name for path, keys in found.items() if keys and path.parent.name == "stages"] == ["spending.py"]


@pytest.mark.parametrize("code", ["NoiseSource(params.seed)", "entropy.NoiseSource(seed=7)", "NoiseSource(int(seed))"])
def test_a_seed_would_be_found(code: str):
    assert noise_keys(code) not in ([], [""], ["params.testing.noise_seed"])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a public and a private zone, whose texts differ."""
    monkeypatch.chdir(tmp_path)
    write_public(tmp_path / "data" / "public" / "heldout.parquet", [Record(text) for text in PUBLIC])
    for part in ("train", "holdout", "test"):
        write_split(tmp_path / "data" / "private" / f"{part}.parquet", [SplitRow(f"{SECRET} {part}", "a")])
    for name, texts in (("private", [f"{SECRET} {number}" for number in range(9)]), ("public", PUBLIC)):
        path = tmp_path / "data" / "raw" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps({"text": text, "label": "returns"}) + "\n" for text in texts))
    return tmp_path


def test_what_filters_say_follows_from_public_text(workspace: Path):
    asked: list[str] = []

    def losses(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([float(len(text)) for text in texts])

    assert heldout_limit(losses, 0.9) <= max(map(len, PUBLIC))
    assert asked == PUBLIC


def test_public_files_come_from_the_public_file(workspace: Path):
    stages.preprocess.write_public_rows(load(ROOT))
    written = [row.text for part in ("train", "heldout") for row in read_public(f"data/public/{part}.parquet")]
    assert sorted(written) == sorted(PUBLIC)


@pytest.mark.parametrize("changes", [{}, {"vector": VECTOR}], ids=["plain", "sparse vector"])
def test_what_writing_tells_has_no_private_text(capfd: pytest.CaptureFixture[str], changes: dict[str, Any]):
    rows = [replace(row, text=f"{SECRET} {row.text}") for row in ROWS]
    query = wave(tokens=2, **changes)
    query.run_steps(rows, NoiseSource(), Counted(query.steps))
    told = capfd.readouterr()
    assert told.err.startswith(f"progress {query.name} ")
    assert SECRET not in told.out + told.err


def test_encoding_private_rows_counts_none_aloud(workspace: Path, capfd: pytest.CaptureFixture[str]):
    encode = encoders(load(ROOT), 2)
    assert encode.rows([SECRET, "another", "a third"]).shape == (3, encode.dimension)
    assert "progress" not in capfd.readouterr().err


def test_a_stage_that_fails_unexpectedly_shows_no_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def stage() -> None:
        raise RuntimeError(f"cannot read {PrivateRow(SECRET).text!r}")

    monkeypatch.setattr("sys.argv", ["stage"])
    with pytest.raises(SystemExit) as stop:
        start(stage)
    told = capsys.readouterr()
    assert stop.value.code == 1
    assert "RuntimeError" in told.err
    assert SECRET not in told.out + told.err


def test_what_libraries_say_in_a_stage_is_not_shown(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def stage() -> None:
        warnings.simplefilter("always")  # as libraries do
        warnings.warn(f"the least populated class has 7 members, {SECRET}", stacklevel=1)
        logging.getLogger("transformers").error("sequence of 1237 tokens, %s", SECRET)

    monkeypatch.setattr("sys.argv", ["stage"])
    with warnings.catch_warnings(record=True) as seen:
        start(stage)
        assert (seen, caplog.records, capfd.readouterr()) == ([], [], ("", ""))
        warnings.warn("said again behind it", stacklevel=1)
        logging.getLogger("transformers").error("and this")
    assert (len(seen), len(caplog.records)) == (1, 1)
