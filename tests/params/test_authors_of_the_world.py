"""The demo on a world of authors: what docs/world.md says to change is enough, and a person is then the unit."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.params.load import loads
from palimpsest.params.text import to_yaml
from tools.world.generate import CUSTOMER
from tools.world.pack import WORLDS

ROOT = Path(__file__).parents[2]


def read(text: str) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load(text))


def update(content: Any, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            update(content[key], value)
        else:
            content[key] = value


def test_the_documented_changes_make_the_person_the_unit():
    content = read((ROOT / "params.full.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "world.md").read_text(encoding="utf-8")
    (changes,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    update(content, read(changes))
    params = loads(to_yaml(content))
    assert params.world == "customers"
    assert (params.schema_of_data.unit, params.schema_of_data.unit_column) == ("person", CUSTOMER)
    assert params.schema_of_data.n_units == WORLDS[params.world].authors
