"""Entries that are put into the text of a params.yaml."""

import pytest
from ruamel.yaml import YAML

from palimpsest.params.text import insert_entries

TEXT = """# A head.
variants:  # rows
    a: &one {rows: 1}
    # Another.
    b:
        <<: *one
        epsilon: 2.0

# What leaves.
release: {title: t}
"""


def test_other_lines_stay_and_the_entry_stands_behind_the_last() -> None:
    made = insert_entries(TEXT, {"variants": {"c": {"rows": 3, "chain": ["u", "v"]}}, "lms": {}})
    lines = made.splitlines()
    assert lines[7] == "    c: {rows: 3, chain: [u, v]}"
    assert lines[:7] + lines[8:] == TEXT.splitlines()


@pytest.mark.parametrize("text", [TEXT, "variants:\n", "a: 1"])
def test_what_is_written_reads_back(text: str) -> None:
    long = {"words": "w" * 130, "prior": {"a": 0.5, "b": 0.5}, "epsilon": 1.0}
    made = YAML(typ="safe", pure=True).load(
        insert_entries(text, {"variants": {"c": long}, "sweeps": {"c": {"of": "a"}}})
    )
    assert made["variants"]["c"] == long
    assert made["sweeps"] == {"c": {"of": "a"}}
