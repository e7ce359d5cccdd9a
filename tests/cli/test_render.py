"""What follows from params.yaml is written before anything runs, and nothing runs on what is stale."""

import pytest
from cli_place import Place

from palimpsest.errors import ParamsError
from palimpsest.params import load as loading
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import load
from palimpsest.work.context import render


def stale(place: Place, before: str) -> None:
    """Let the file with every value be of other settings."""
    (place.workspace / RESOLVED).write_text(before, encoding="utf-8")


def test_values_that_params_does_not_stand_for_are_refused(place: Place) -> None:
    before = (place.workspace / RESOLVED).read_text(encoding="utf-8")
    place.edit("audit", alpha=0.01)
    stale(place, before)
    with pytest.raises(ParamsError) as caught:
        load(place.workspace)
    assert "palimpsest render" in caught.value.remedy
    done = place.call("status")
    assert (done.exit_code, "palimpsest render" in done.stderr) == (1, True)
    (place.workspace / RESOLVED).unlink()
    assert place.call("status").exit_code == 1
    done = place.call("render")
    assert (done.exit_code, done.stdout.split()) == (0, ["written:", RESOLVED])
    assert load(place.workspace).audit.alpha == 0.01
    assert place.call("render").stdout == "up to date\n"


def test_a_changed_default_makes_the_values_stale(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_was = load(place.workspace)
    other = as_it_was.model_copy(update={"seed": as_it_was.seed + 1})
    monkeypatch.setattr(loading, "resolve_params", lambda file: other)
    with pytest.raises(ParamsError, match=RESOLVED):
        load(place.workspace)
    assert render(place.workspace) == [RESOLVED]
    assert load(place.workspace) == other


def test_the_plan_renders_first(place: Place) -> None:
    before = (place.workspace / RESOLVED).read_text(encoding="utf-8")
    place.edit("audit", alpha=0.01)
    stale(place, before)
    (place.workspace / "dvc.yaml").unlink()
    assert place.call("plan").exit_code == 0
    assert load(place.workspace).audit.alpha == 0.01
    assert (place.workspace / "dvc.yaml").is_file()


def test_nothing_is_rendered_for_another_version(place: Place) -> None:
    before = (place.workspace / RESOLVED).read_text(encoding="utf-8")
    place.edit(version="0.0.1")
    stale(place, before)
    done = place.call("plan")
    assert (done.exit_code, "version is '0.0.1'" in done.stderr) == (1, True)
    assert (place.workspace / RESOLVED).read_text(encoding="utf-8") == before
