"""The settings of every twin's invented workspace can be written as a person would."""

from pathlib import Path

import pytest

from palimpsest.params.load import loads
from palimpsest.params.resolve import shorten
from palimpsest.params.text import to_yaml
from palimpsest_lab.twins.scenes import SCENES
from palimpsest_lab.twins.settings import invented_params


@pytest.mark.parametrize("method", SCENES)
def test_invented_settings_are_what_their_short_form_stands_for(method: str) -> None:
    invented = invented_params(7, SCENES[method](7).sections, Path("/encoder"))
    assert loads(to_yaml(shorten(invented))) == invented
