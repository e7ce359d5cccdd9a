"""Vectors of texts of one zone never come from a memory of another: texts read together share their last bits."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from palimpsest.graph.stages import SPENDERS, STAGES
from palimpsest.workspace import PRIVATE, Zone
from stages.encoding import OF_MEASURED, OF_PAID, OF_PUBLIC, OF_ROWS, memory_of

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
