"""A run that was committed and that DVC did not note: what it wrote is put back, and only that."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import dp_accounting as dpa
import pytest

from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Reservation, Run
from palimpsest.privacy.planned import PlannedQuery
from stages import finished

PLAN = [PlannedQuery("first", dpa.GaussianDpEvent(20.0)), PlannedQuery("second", dpa.GaussianDpEvent(20.0))]
RUN = Run(stage="fit", variant="a", purpose="release", fingerprint="f", plan="p", code="c")
ROWS, MODEL, RECEIPT = Path("data/synthetic/a.jsonl"), Path("models/a"), Path("reports/receipts/a.json")


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
    finished.keep(RUN, [ROWS, MODEL], {"rows": 3})
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
    assert finished.waiting(Path()) == {"fit@a": {RUN.key}}
    again = finished.restored(RUN, ledger.charges("tickets"))
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


def _noted(ledger: Ledger, reservation: Reservation) -> Run:
    ledger.commit(reservation)
    RECEIPT.parent.mkdir(parents=True)
    RECEIPT.write_text("receipt")
    finished.note(RUN, RECEIPT)
    Path("dvc.lock").write_text(f"md5: {hashlib.md5(b'receipt').hexdigest()}\n")
    return RUN


@pytest.mark.parametrize("how", [_uncommitted, _torn, _noted])
def test_nothing_else_comes_back_and_it_is_not_kept(ledger: Ledger, how: Callable[[Ledger, Reservation], Run]) -> None:
    run = how(ledger, begun(ledger))
    removed()
    assert finished.restored(run, ledger.charges("tickets")) is None
    assert not ROWS.exists()
    assert not list(Path("models/checkpoints").rglob("*.json*"))


def test_a_run_with_other_settings_takes_nothing_away_that_was_paid_for(ledger: Ledger) -> None:
    """Settings that are put back find it, whatever was tried between."""
    ledger.commit(begun(ledger))
    removed()
    other = Run(**{**RUN.__dict__, "plan": "another"})
    assert finished.restored(other, ledger.charges("tickets")) is None
    assert not ROWS.exists()
    assert finished.waiting(Path()) == {"fit@a": {RUN.key}}
    assert finished.restored(RUN, ledger.charges("tickets")) is not None
    assert ROWS.read_text() == "rows"


def test_what_is_foretold_as_free_was_committed(ledger: Ledger) -> None:
    """Of the charges of a key: none of a run that was killed between keeping its rows and its commit."""
    reservation = begun(ledger)
    assert finished.committed(RUN.key, ledger.charges("tickets")) == []
    ledger.commit(reservation)
    assert len(finished.committed(RUN.key, ledger.charges("tickets"))) == len(PLAN)


def test_a_run_without_its_receipt_in_the_lock_file_waits(ledger: Ledger) -> None:
    ledger.commit(begun(ledger))
    RECEIPT.parent.mkdir(parents=True)
    RECEIPT.write_text("receipt")
    finished.note(RUN, RECEIPT)
    Path("dvc.lock").write_text("md5: another\n")
    finished.forget_noted()
    assert finished.waiting(Path()) == {"fit@a": {RUN.key}}
