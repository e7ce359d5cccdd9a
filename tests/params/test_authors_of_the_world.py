"""The demo on a world of authors: what docs/world.md says to change is enough, and a person is then the unit."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.params.load import loads
from palimpsest.params.text import to_yaml

ROOT = Path(__file__).parents[2]


def read(text: str) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load(text))


def update(content: Any, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            update(content[key], value)
        else:
            content[key] = value


def documented() -> dict[str, Any]:
    """The full demo's settings with the changes that docs/world.md names."""
    content = read((ROOT / "params.full.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "world.md").read_text(encoding="utf-8")
    (changes,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    update(content, read(changes))
    return content


def test_the_documented_changes_make_the_person_the_unit():
    params = loads(to_yaml(documented()))
    assert params.world is not None
    assert (params.schema_of_data.unit, params.schema_of_data.unit_column) == ("person", "customer")
    assert params.world.authors == params.schema_of_data.n_units == 2500


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"dataset": {"unit": {"column": None, "max_rows": 1, "persons": None}}},
            "dataset.unit.column must then be customer",
        ),
        ({"dataset": {"unit": {"column": "label"}}}, "dataset.unit.column must then be customer"),
        ({"world": {"authors": 10001}}, "allowed is at most world.private_rows"),
        ({"world": {"authors": 9}}, "world.authors"),
    ],
)
def test_a_world_of_authors_that_does_not_fit_the_unit_is_refused(changes: dict[str, Any], told: str):
    content = documented()
    update(content, changes)
    with pytest.raises(ParamsError) as caught:
        loads(to_yaml(content))
    assert told in caught.value.problem
