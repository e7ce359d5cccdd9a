"""A run that would pay for noise is refused before anything is charged, unless somebody wants it all the same."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from cli_place import Place, init, write_files

from palimpsest.errors import ParamsError
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.work.before import check_budget
from palimpsest.work.context import open_workspace
from palimpsest.work.plan import price_all
from palimpsest.work.run import hold_unattended


@pytest.fixture
def faint(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A workspace whose records are too few for its epsilon; a test may name its method."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    place = Place(write_files(tmp_path))
    method = getattr(request, "param", "select")
    done = init(place.home, place.workspace, "--no-check", n_public=40, method=method, epsilon=0.1, budget=1)
    assert done.exit_code == 0, done.output
    return place


@pytest.mark.parametrize("faint", ["select", "predict"], indirect=True)
def test_plan_says_so_and_run_is_refused(faint: Place) -> None:
    assert ", lost;" in " ".join(faint.call("plan").stdout.split())
    refused = faint.call("run")
    assert refused.exit_code == 1
    said = " ".join(refused.stderr.split())
    assert "0_1 would pay for noise: signal of a label of 20 records" in said
    assert "public_only, at epsilon 0, does as well; " in said
    assert "add --anyway" in said
    assert not (faint.workspace / "data/private/train.parquet").exists()


def test_with_the_word_it_goes_on(faint: Place) -> None:
    context = open_workspace(faint.workspace)
    due = price_all(context, only_pending=True)
    with pytest.raises(ParamsError, match="would pay for noise"):
        check_budget(context, due)
    check_budget(context, due, anyway=True)


def test_a_run_that_nobody_watches_is_refused_unless_its_schedule_has_the_word(faint: Place) -> None:
    with pytest.raises(ParamsError, match="would pay for noise"), hold_unattended(faint.workspace, ()):
        pytest.fail("it runs")
    with hold_unattended(faint.workspace, (), anyway=True) as run:
        assert run.targets == ()


@pytest.mark.parametrize("words", [[], ["--anyway"]])
def test_serve_hands_the_word_on_to_every_run(faint: Place, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr("flows.environment.apply_environment", lambda _: None)
    from flows import serve, ui
    from flows.__main__ import main

    commands, deployed = list[list[str]](), list[dict[str, object]]()
    monkeypatch.setattr(ui, "_api", lambda _: nullcontext(({ui.URL: ""}, False)))
    monkeypatch.setattr(ui, "_run", lambda command, *_: commands.append(command) or 0)
    assert faint.call("serve", *words).exit_code == 0
    monkeypatch.setattr(sys, "argv", commands[0][commands[0].index("flows") :])
    monkeypatch.setattr("flows.__main__.apply_environment", lambda _: None)
    monkeypatch.setattr(serve, "require_own", lambda *_: None)
    monkeypatch.setattr(serve.scheduled, "serve", lambda **given: deployed.append(given["parameters"]))
    main()
    assert [one["anyway"] for one in deployed] == [bool(words)]
