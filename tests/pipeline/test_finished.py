"""A fitted model that was paid for is put back whenever its stage runs again, and only that."""

from collections.abc import Callable
from pathlib import Path

import dp_accounting as dpa
import pytest

from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Reservation, Run
from palimpsest.privacy.planned import PlannedQuery
from stages import resuming

PLAN = [PlannedQuery("first", dpa.GaussianDpEvent(20.0)), PlannedQuery("second", dpa.GaussianDpEvent(20.0))]
RUN = Run(stage="fit", variant="a", purpose="release", fingerprint="f", plan="p")
ROWS, MODEL = Path("data/synthetic/a.jsonl"), Path("models/a")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger beside an empty workspace, which is entered."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    made = Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    made.register(Asset(name="tickets", delta=1e-5, epsilon=4.0, n_public=1000))
    return made


def begun(ledger: Ledger) -> Reservation:
    """A run whose queries began, that wrote its outputs and kept them."""
    reservation = ledger.reserve("tickets", RUN, PLAN)
    for charge in reservation.charges:
        ledger.begin(charge)
    ROWS.parent.mkdir(parents=True)
    ROWS.write_text("rows")
    MODEL.mkdir(parents=True)
    (MODEL / "weights").write_text("weights")
    resuming.keep(RUN, [ROWS, MODEL], {"rows": 3}, "base", "code")
    return reservation


def removed() -> None:
    """What DVC does before it starts a stage anew."""
    ROWS.unlink()
    (MODEL / "weights").unlink()
    MODEL.rmdir()


def test_what_a_committed_run_wrote_comes_back_whole_with_its_charges(ledger: Ledger) -> None:
    reservation = begun(ledger)
    ledger.commit(reservation)
    removed()
    assert resuming.is_kept(RUN)
    again = resuming.restore_outputs(RUN, ledger.charges("tickets"), "base", "code")
    assert again is not None
    assert (ROWS.read_text(), (MODEL / "weights").read_text(), again.facts) == ("rows", "weights", {"rows": 3})
    assert [charge.id for charge in again.session.reservation.charges] == [one.id for one in reservation.charges]
    assert {path.stat().st_mode & 0o077 for path in (ROWS, MODEL / "weights")} == {0}


def _uncommitted(ledger: Ledger, reservation: Reservation) -> Run:
    return RUN


def _torn(ledger: Ledger, reservation: Reservation) -> Run:
    ledger.commit(reservation)
    (kept,) = Path("models/checkpoints").rglob("a.jsonl")
    kept.unlink()
    kept.write_text("row")
    return RUN


@pytest.mark.parametrize("how", [_uncommitted, _torn])
def test_nothing_else_comes_back(ledger: Ledger, how: Callable[[Ledger, Reservation], Run]) -> None:
    run = how(ledger, begun(ledger))
    removed()
    assert resuming.restore_outputs(run, ledger.charges("tickets"), "base", "code") is None
    assert not ROWS.exists()


def test_a_model_of_older_code_is_kept_and_said_to_be(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.commit(begun(ledger))
    for code, older in (("code", False), ("newer", True)):
        removed()
        assert resuming.restore_outputs(RUN, ledger.charges("tickets"), "base", code) is not None
        assert ("as older code made it" in capsys.readouterr().out) == older
        assert ROWS.read_text() == "rows"


def test_a_model_behind_another_public_source_does_not_come_back(ledger: Ledger) -> None:
    ledger.commit(begun(ledger))
    removed()
    assert resuming.restore_outputs(RUN, ledger.charges("tickets"), "another base", "code") is None
    assert not ROWS.exists()


def test_a_run_with_other_settings_takes_nothing_away_that_was_paid_for(ledger: Ledger) -> None:
    """Settings that are put back find it, whatever was tried between."""
    ledger.commit(begun(ledger))
    removed()
    other = Run(**{**RUN.__dict__, "plan": "another"})
    assert resuming.restore_outputs(other, ledger.charges("tickets"), "base", "code") is None
    assert not ROWS.exists()
    ROWS.write_text("rows of the other")
    resuming.keep(other, [ROWS], {}, "base", "code")
    ROWS.unlink()
    assert resuming.is_kept(RUN)
    assert resuming.restore_outputs(RUN, ledger.charges("tickets"), "base", "code") is not None
    assert ROWS.read_text() == "rows"
