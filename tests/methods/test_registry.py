"""What the documents say of all methods at once."""

import re
from collections import defaultdict
from pathlib import Path

from palimpsest.methods.registry import METHODS

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_document_names_the_stage_of_each_method() -> None:
    stages = defaultdict(list)
    for method in METHODS:
        stages[method.stage].append(method.name)
    rows = re.findall(r"^\| `(\w+)` \| (`.+`) \|$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {stage: re.findall(r"`(\w+)`", names) for stage, names in rows} == stages
