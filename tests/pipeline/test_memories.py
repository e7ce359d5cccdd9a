"""Vectors of texts of one zone never come from a memory of another: texts read together share their last bits."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from palimpsest.graph.stages import SPENDERS, STAGES
from palimpsest.params.load import parse
from palimpsest.workspace import PRIVATE, Zone
from stages import encoding
from stages.encoding import OF_MEASURED, OF_PAID, OF_PUBLIC, OF_ROWS, encoders, measuring, memory_of
from tests.settings_file import demo

ALLOWED = {Zone.PUBLIC: {"OF_PUBLIC"}, Zone.DP: {"OF_PAID", "memory_of("}, Zone.PRIVATE: set()}


def test_memories_are_apart_and_those_of_the_private_zone_lie_in_it() -> None:
    folders = [OF_ROWS, OF_MEASURED, OF_PAID, OF_PUBLIC]
    assert not any(one in (other, *other.parents) for one in folders for other in folders if one is not other)
    assert [PRIVATE in folder.parents for folder in folders] == [True, True, False, False]


@pytest.mark.parametrize(("purpose", "memory"), [("release", OF_PAID), ("reference", OF_MEASURED)])
def test_what_is_written_without_noise_meets_nothing_that_may_leave(purpose: str, memory: Path) -> None:
    assert memory_of(purpose) == memory


@pytest.mark.parametrize(
    "stage", [stage for stage in STAGES if stage.name not in SPENDERS], ids=lambda stage: stage.name
)
def test_a_stage_reads_the_memory_of_its_zone(stage) -> None:  # type: ignore[no-untyped-def]
    spec = find_spec(f"stages.{stage.code}")
    assert spec is not None and spec.origin is not None  # noqa: PT018
    source = Path(spec.origin).read_text(encoding="utf-8")
    named = {name for name in ("OF_PUBLIC", "OF_PAID", "memory_of(") if name in source}
    assert named <= ALLOWED[stage.zone]
    if "encoders(" in source and stage.zone is not Zone.PRIVATE:
        assert named


class Reader:
    """An encoder whose vectors say in which precision a text was read."""

    dimension = 1

    def __init__(self, _folder: Path, half: bool = False) -> None:
        self.value = 0.5 if half else 1.0

    def encode_batch(self, texts: Sequence[str]) -> np.ndarray:
        return np.full((len(texts), 1), self.value, dtype=np.float32)


def test_what_is_charged_never_takes_a_vector_in_half_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"Encoder": Reader, "vouched": lambda *_: tmp_path, "fingerprint_of": lambda _: "one"}.items():
        monkeypatch.setattr(encoding, name, value)
    monkeypatch.setattr(encoding, "halves", lambda: True)
    params = parse(demo() | {"compute": {"precision": "bf16"}})
    for first, second in ("ab", "ba"):  # whichever comes first
        found = {}
        for who in (first, second):
            own = measuring(params) if who == "a" else encoders(params, 1)
            found[who] = [float(encode([first])[0, 0]) for encode in (own.rows, own.others)]
        assert found == {"a": [0.5, 0.5], "b": [1.0, 1.0]}
    monkeypatch.setattr(encoding, "halves", lambda: False)
    assert measuring(params).rows(["c"])[0, 0] == 1.0, "no such instructions: as ever"
