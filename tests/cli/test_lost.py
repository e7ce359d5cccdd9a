"""A run that would pay for noise is refused before anything is charged, unless somebody wants it all the same."""

from pathlib import Path

import pytest
from cli_place import Place, init, write_files

from palimpsest.errors import ParamsError
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.work.before import check_budget
from palimpsest.work.context import open_workspace
from palimpsest.work.plan import price_all


@pytest.fixture
def faint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A workspace whose records are too few for its epsilon."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    place = Place(write_files(tmp_path))
    done = init(place.home, place.workspace, "--no-check", n_public=40, method="select", epsilon=0.1, budget=1)
    assert done.exit_code == 0, done.output
    return place


def test_plan_says_so_and_run_is_refused(faint: Place) -> None:
    assert ", lost;" in " ".join(faint.call("plan").stdout.split())
    refused = faint.call("run")
    assert refused.exit_code == 1
    said = " ".join(refused.stderr.split())
    assert "select0_1 would pay for noise: signal of a label of 20 records" in said
    assert "public_only, at epsilon 0, does as well" in said
    assert "add --anyway" in said
    assert not (faint.workspace / "data/private/train.parquet").exists()


def test_with_the_word_it_goes_on(faint: Place) -> None:
    context = open_workspace(faint.workspace)
    due = price_all(context, only_pending=True)
    with pytest.raises(ParamsError, match="would pay for noise"):
        check_budget(context, due)
    check_budget(context, due, anyway=True)
