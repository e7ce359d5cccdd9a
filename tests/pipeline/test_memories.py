"""Vectors of texts of one zone never come from a memory of another: texts read together share their last bits."""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from palimpsest.graph.stages import SPENDERS, STAGES
from palimpsest.params.load import parse
from palimpsest.workspace import PRIVATE, Zone
from stages import tools
from stages.spenders import spender
from stages.tools import (
    OF_MEASURED,
    OF_OTHER_ASKS,
    OF_PAID,
    OF_PAID_ASKS,
    OF_PUBLIC,
    OF_ROWS,
    Artifacts,
    EncodingTools,
    encoders,
    measuring_encoder,
    memory_of,
)
from tests.settings_file import demo

ALLOWED = {Zone.PUBLIC: {"OF_PUBLIC"}, Zone.DP: {"OF_PAID", "memory_of("}, Zone.PRIVATE: set()}


def test_memories_are_apart_and_those_of_the_private_zone_lie_in_it() -> None:
    folders = [OF_ROWS, OF_MEASURED, OF_PAID, OF_PUBLIC]
    assert not any(one in (other, *other.parents) for one in folders for other in folders if one is not other)
    assert [PRIVATE in folder.parents for folder in folders] == [True, True, False, False]


def test_what_is_written_without_noise_meets_nothing_that_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by vectors nor by answers: what is asked or read together shares its last bits."""
    assert [memory_of(leaves=leaves) for leaves in (True, False)] == [OF_PAID, OF_MEASURED]
    body = demo()
    exact = {**body["variants"]["evolve3"], "purpose": "reference", "epsilon": math.inf}
    body |= {"variants": {**body["variants"], "exact": exact}}
    body["run"] = {**body["run"], "private_evolve": {**body["run"]["private_evolve"], "exact": "base"}}
    body["run"] |= {key: [*body["run"][key], "exact"] for key in ("evaluate", "audit")}
    memories = []
    monkeypatch.setattr(tools, "encoders", lambda _params, _batch, memory: memories.append(memory))
    for name, seed, paid in (("evolve3", None, True), ("evolve3", 7, False), ("exact", None, False)):
        params = parse(body | {"testing": {"noise_seed": seed}})
        own = EncodingTools(params, spender(params, name))
        assert (PRIVATE in own.answers.parents) is not paid
        own.encoders(1)
        assert memories.pop() == (OF_PAID if paid else OF_MEASURED)
    public = Artifacts(params, spender(params, "evolve3")).answers
    assert public.parent not in {OF_PAID_ASKS, OF_OTHER_ASKS}


@pytest.mark.parametrize(
    "stage", [stage for stage in STAGES if stage.name not in SPENDERS], ids=lambda stage: stage.name
)
def test_a_stage_reads_the_memory_of_its_zone(stage) -> None:  # type: ignore[no-untyped-def]
    spec = find_spec(stage.code)
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
    own = {"Encoder": Reader, "resolve_vouched": lambda *_: tmp_path, "fingerprint_of": lambda _: "one"}
    for name, value in own.items():
        monkeypatch.setattr(tools, name, value)
    monkeypatch.setattr(tools, "has_bfloat16", lambda: True)
    params = parse(demo() | {"compute": {"precision": "bf16"}})
    for first, second in ("ab", "ba"):  # whichever comes first
        found = {}
        for who in (first, second):
            own = measuring_encoder(params) if who == "a" else encoders(params, 1)
            found[who] = [float(encode([first])[0, 0]) for encode in (own.rows, own.others)]
        assert found == {"a": [0.5, 0.5], "b": [1.0, 1.0]}
    monkeypatch.setattr(tools, "has_bfloat16", lambda: False)
    assert measuring_encoder(params).rows(["c"])[0, 0] == 1.0, "no such instructions: as ever"
