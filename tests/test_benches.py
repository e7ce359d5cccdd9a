"""The benches keep up with the code: each imports, and methods take the settings that several of them share."""

import importlib
from pathlib import Path

import pytest

from bench.evolution_rounds import NONE
from palimpsest.methods.embed.declaration import EmbedSettings
from palimpsest.methods.evolve.declaration import EvolveSettings
from palimpsest.settings import Settings
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings

NAMES = sorted({path.stem for path in (Path(__file__).parents[1] / "bench").glob("*.py")} - {"peer_invink"})


@pytest.mark.parametrize("name", NAMES)
def test_a_bench_imports(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__


@pytest.mark.parametrize("settings", [EmbedSettings, EvolveSettings, FewShotSettings])
def test_the_filters_of_benches_are_those_that_the_method_takes(settings: type[Settings]) -> None:
    wanted = settings.model_fields["filters"].annotation
    assert wanted is not None
    assert isinstance(NONE, wanted)
