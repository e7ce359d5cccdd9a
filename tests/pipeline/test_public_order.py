"""Public vectors belong to labels by their names, whatever order the settings have today."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import write_public
from palimpsest.workspace import EMBEDDINGS, PUBLIC
from stages import encode_public, public_only
from stages.pretrain import guessed_labels
from stages.public import public_embeddings
from tests.settings_file import demo, write_settings

TEXTS = ("a lamp", "a bill")
WORDS = {"lamps": "a lamp", "money": "a bill"}


@pytest.fixture
def encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose public texts are each the description of a label, and whose labels are then turned round."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(encode_public, "encoders", lambda *_, **__: SimpleNamespace(others=_vectors))
    write_public(PUBLIC / "train.parquet", [Record(text) for text in TEXTS])
    write_settings(tmp_path, _with(WORDS))
    encode_public.run()
    write_settings(tmp_path, _with(dict(reversed(WORDS.items()))))
    return tmp_path


def _vectors(texts: Sequence[str]) -> np.ndarray:
    return np.array([[float("lamp" in text), float("bill" in text)] for text in texts], dtype=np.float32)


def _with(labels: dict[str, str]) -> dict[str, object]:
    body = demo()
    return body | {"dataset": body["dataset"] | {"labels": labels}}


def test_a_file_of_before_gives_every_label_its_own_vector(encoded: Path) -> None:
    assert EMBEDDINGS.is_file()
    kept = public_embeddings(["money", "lamps"])
    np.testing.assert_array_equal(kept["descriptions"], [[0.0, 1.0], [1.0, 0.0]])


def test_public_rows_and_guesses_have_the_labels_that_they_had(encoded: Path) -> None:
    params = load()
    assert list(params.dataset.labels) == ["money", "lamps"]
    rows = [Record(text) for text in TEXTS]
    assert guessed_labels(params, rows) == ["lamps", "money"]
    chosen = {row.text: row.label for row in public_only.choose_per_label(params, rows)}
    assert chosen == {"a lamp": "lamps", "a bill": "money"}
