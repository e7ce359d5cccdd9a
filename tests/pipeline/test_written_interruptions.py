"""Writing from private contexts that is killed and finished: nothing is charged twice, and nothing is left behind."""

import signal
from collections.abc import Callable, Iterator

import pytest

from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.records import Charge
from stages import fit
from tests.pipeline.place import MARKER, WRITTEN, Place, asked_word

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

STAGE = f"private_predict@{WRITTEN}"
KEPT = "models/checkpoints/predict"
TOKENS = 60  # of a batch: so many that a wave is stopped on the way


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """A workspace whose variant would be written again, in many waves and slowly enough to be stopped on the way."""
    place = copy(ran)
    place.edit("variants", WRITTEN, together=80, tokens=TOKENS, checkpoint_tokens=2, micro_batch=4)
    with place.entered() as patch:  # it was charged with other settings
        patch.setenv(records.CONSENT, asked_word(*place.stage(fit, WRITTEN, "taught/similar")))
        yield place


@pytest.fixture(scope="module")
def killed(place: Place) -> list[Charge]:
    """SIGKILL while the second wave is written."""
    code, output = place.kill_in("predict wave 1", "dvc", "repro", STAGE, steps=4)
    assert code == -signal.SIGKILL, output
    return place.newest(WRITTEN)


@pytest.fixture(scope="module")
def finished(place: Place, killed: list[Charge]) -> list[Charge]:
    """The next run, undisturbed."""
    code, output = place.run("dvc", "repro", STAGE)
    assert code == 0, output
    assert "a stopped run goes on under its own charge" in output
    return place.newest(WRITTEN)


def test_a_killed_run_keeps_its_finished_wave_and_what_began(killed: list[Charge]):
    states = {charge.query: charge.state for charge in killed}
    assert list(states) == ["label_histogram", "class_means", *(f"predict wave {number}" for number in range(5))]
    assert list(states.values()) == [*["answered"] * 3, "begun", *["reserved"] * 3]


def test_what_is_kept_is_for_the_owner_and_holds_no_record(place: Place, killed: list[Charge]):
    folder = place.workspace / KEPT
    assert folder.stat().st_mode & 0o077 == 0
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert "begun" in text
    assert MARKER not in text


def test_the_next_run_charges_nothing_again(killed: list[Charge], finished: list[Charge]):
    assert [charge.id for charge in finished] == [charge.id for charge in killed]
    assert {charge.state for charge in finished} == {"committed"}


def test_no_wave_begins_more_tokens_than_were_paid(finished: list[Charge]):
    waves = [charge for charge in finished if charge.steps is not None]
    assert len(waves) == 5
    assert all(0 < charge.steps_begun <= TOKENS for charge in waves)


def test_what_was_kept_is_gone(place: Place, finished: list[Charge]):
    assert not list((place.workspace / KEPT).glob("*"))


def test_a_run_that_starts_again_makes_the_same_rows_of_what_was_paid_for(place: Place, finished: list[Charge]):
    place.remake(WRITTEN, "taught/similar")


def test_the_receipt_holds(place: Place, finished: list[Charge]):
    assert verify_workspace(place.workspace) == 0
    assert read_json(place.workspace / f"reports/receipts/{WRITTEN}.json")["epsilon"] <= 0.5
