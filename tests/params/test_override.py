"""What a run may set of params.yaml, and what is its owner's alone."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.params.file import File
from palimpsest.params.load import SETTABLE, override_values
from palimpsest.params.schema import Params
from tests.settings_file import FULL

TEXT = FULL.read_text(encoding="utf-8")
BODY = YAML(typ="safe").load(TEXT)
VARIANT = next(iter(BODY["variants"]))
ENDPOINT = {"kind": "endpoint", "url": "http://elsewhere/v1", "model": "m", "key": "PALIMPSEST_LEDGER"}


def test_a_run_may_set_how_rows_are_made() -> None:
    written = override_values(TEXT, {f"variants.{VARIANT}.rows": 120, "compute.device": "cpu"})
    found = YAML(typ="safe").load(written)
    assert (found["variants"][VARIANT]["rows"], found["compute"]["device"]) == (120, "cpu")


def test_what_it_may_not_set_are_all_other_sections() -> None:
    sections = {*Params.model_fields, *File.model_fields}
    assert sections > {*SETTABLE}
    for section in sections - {*SETTABLE}:
        with pytest.raises(ParamsError, match="may not set"):
            override_values(TEXT, {f"{section}.any": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authors.x", ENDPOINT),  # its server would be sent the value of that variable
        ("stores.private", "shared"),
        ("models.judge", {**ENDPOINT, "may_read_private_rows": True}),
        ("runs.in_context", [VARIANT]),
        ("release.variants", [VARIANT]),
        ("privacy.budget.epsilon", 100),
        ("variants", {}),
    ],
)
def test_a_run_says_not_where_anything_is_sent_nor_what_is_protected(key: str, value: Any) -> None:
    with pytest.raises(ParamsError, match="may not set"):
        override_values(TEXT, {key: value})


@pytest.mark.parametrize("key", [f"variants.{VARIANT}.method.x", f"variants.{VARIANT}.no_key"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ParamsError):
        override_values(TEXT, {key: 1})
