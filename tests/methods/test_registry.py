"""What the documents say of all methods at once."""

import re
from collections import defaultdict
from pathlib import Path

from palimpsest.methods.registry import METHODS

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_document_names_each_stage_that_is_not_called_as_its_method() -> None:
    stages = defaultdict(list)
    for method in METHODS:
        stages[method.stage].append(method.name)
    named = re.findall(r"`(\w+)`\s\((`\w+`(?:,\s`\w+`)*)\)", ARCHITECTURE.read_text(encoding="utf-8"))
    wanted = {stage: names for stage, names in stages.items() if names != [stage]}
    assert {stage: re.findall(r"`(\w+)`", names) for stage, names in named if stage in stages} == wanted
