"""A private run that is killed, refused, interrupted and at last finished: what is charged, and what is on the disk.

The fixtures are one story: each goes on where the one before stopped, and keeps what the tests look at.
"""

import hashlib
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import stages.dp_train
import stages.pplm_generate
from palimpsest.cli.release import verify_workspace
from palimpsest.errors import BudgetExceeded
from palimpsest.files import read_json
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.records import Balance, Charge
from palimpsest.privacy.shown import up
from palimpsest.work.run import run_workspace
from palimpsest.workspace import CHECKPOINTS, SYNTHETIC
from tests.pipeline.place import VARIANT, Place, asked_word

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

STAGE = f"dp_train@{VARIANT}"
RECEIPT = f"reports/receipts/models/{VARIANT}.json"


@dataclass(frozen=True)
class After:
    """What is left after a step."""

    code: int  # exit status
    output: str  # all that was printed
    charges: list[Charge]  # the charges of this plan, oldest first
    balance: Balance  # what is spent
    head: str  # hash of the ledger's newest entry
    files: set[str]  # of the models and the receipts

    @property
    def states(self) -> Counter[tuple[str, str]]:
        """(query, state) -> number of charges."""
        return Counter((charge.query, charge.state) for charge in self.charges)


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """A workspace whose variant would train again, slowly enough to be stopped on the way."""
    place = copy(ran)
    place.edit("lms", VARIANT, micro_batch=2, epochs=4)
    with place.entered():
        yield place


@pytest.fixture(scope="module")
def killed(place: Place) -> After:
    """SIGKILL to `palimpsest run` alone, in the middle of training: what it started ends with it."""
    return after_loss(place, *place.lose_in_training("palimpsest.cli.main", "run", STAGE, "--yes"))


@pytest.fixture(scope="module")
def refused(place: Place, killed: After) -> tuple[str, After]:
    """A second try under a cap that has no room for it: what the command line said, and what is left."""
    place.cap(killed.balance.spent + 0.001)
    with pytest.raises(BudgetExceeded) as refusal:
        run_workspace(place.workspace, [STAGE], ui=False, stay=False)
    left = after(place, *place.stage(stages.dp_train, VARIANT))
    place.cap(killed.balance.cap)
    return refusal.value.problem, left


@pytest.fixture(scope="module")
def interrupted(place: Place, refused: tuple[str, After]) -> After:
    """Ctrl-C while `palimpsest run` trains."""
    return after_loss(place, *place.stop_in_training(signal.SIGINT, "palimpsest.cli.main", "run", STAGE, "--yes"))


@pytest.fixture(scope="module")
def finished(place: Place, interrupted: After) -> After:
    """The next run, undisturbed, with the word that it asked for."""
    word = asked_word(*place.stage(stages.dp_train, VARIANT))
    return after(place, *place.run("dvc", "repro", STAGE, **{records.CONSENT: word}))


def test_what_a_killed_run_began_stays_charged(killed: After):
    assert killed.code == -signal.SIGKILL
    assert killed.states == {("label_histogram", "answered"): 1, ("train", "begun"): 1}


def test_a_killed_run_leaves_no_half_output(killed: After):
    assert not half_outputs(killed)


def test_a_second_try_beyond_the_budget_is_refused_before_any_stage(killed: After, refused: tuple[str, After]):
    problem, _ = refused
    assert VARIANT in problem
    assert f"spent epsilon {up(killed.balance.spent)}, asked " in problem
    assert "left 0.001 of" in problem


def test_a_second_try_beyond_the_budget_is_refused_by_the_stage_too(killed: After, refused: tuple[str, After]):
    _, left = refused
    assert left.code == 1
    assert f"spent epsilon {up(killed.balance.spent)}, asked " in left.output
    assert "Nothing was charged and no row was read." in left.output
    assert left.charges == killed.charges
    assert not half_outputs(left)


def test_an_interrupted_run_stays_charged(interrupted: After):
    assert interrupted.code == 130
    assert interrupted.output.count("Stopped. This run charged epsilon ") == 1
    assert not any(word in interrupted.output for word in ("Traceback", "ERROR", "dvc push"))
    assert interrupted.states == {("label_histogram", "answered"): 1, ("train", "begun"): 2}
    assert not half_outputs(interrupted)


def test_a_second_charge_is_said_before_it_is_made(interrupted: After):
    assert "would charge dp_train@" in interrupted.output
    assert f"of {interrupted.balance.cap:g}. --yes was given." in interrupted.output


def test_the_next_run_says_what_was_lost(finished: After):
    assert finished.code == 0, finished.output
    assert "an earlier attempt was stopped after 2 of its queries had begun; they stay charged" in finished.output


def test_the_next_run_replays_the_histogram_and_is_charged_again_for_training(finished: After):
    assert finished.states == {("label_histogram", "committed"): 1, ("train", "begun"): 2, ("train", "committed"): 1}


def test_every_attempt_counts_against_the_budget(killed: After, interrupted: After, finished: After):
    assert killed.balance.spent < interrupted.balance.spent < finished.balance.spent


def test_the_books_of_the_finished_run_hold(place: Place, killed: After, interrupted: After, finished: After):
    assert finished.files >= {RECEIPT, f"models/{VARIANT}/artifact.json", f"models/{VARIANT}/head.safetensors"}
    receipt = read_json(place.workspace / RECEIPT)
    assert {line["state"] for line in receipt["queries"]} == {"committed"}
    assert place.ledger.books([killed.head, interrupted.head, finished.head, receipt["ledger_head"]]).entries > 0
    assert verify_workspace(place.workspace) == 1, "the rows are still those of the model before"
    code, output = place.stage(stages.pplm_generate, VARIANT, VARIANT)
    assert code == 0, output
    assert verify_workspace(place.workspace) == 0


def test_another_seed_draws_other_texts_of_the_same_model(place: Place, finished: After):
    drawn = {}
    for seed in (0, 1, 0):
        place.edit("variants", VARIANT, seed=seed)
        code, output = place.stage(stages.pplm_generate, VARIANT, VARIANT)
        assert code == 0, output
        rows = (place.workspace / SYNTHETIC / f"{VARIANT}.jsonl").read_bytes()
        assert drawn.setdefault(seed, rows) == rows
    assert drawn[0] != drawn[1]
    assert place.charges[-1].run_key == finished.charges[-1].run_key, "another draw is free"


def test_a_finished_run_that_dvc_did_not_note_is_put_back_and_not_charged_again(place: Place, finished: After):
    """Killed after its commit and before DVC's: DVC then removes what it wrote, and starts it again."""
    model, receipt, lock = place.workspace / "models" / VARIANT, place.workspace / RECEIPT, place.workspace / "dvc.lock"
    noted = hashlib.md5(receipt.read_bytes()).hexdigest()
    lock.write_text(lock.read_text().replace(noted, "0" * 32))
    charges, before = place.charges, {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    told = read_json(receipt)
    shutil.rmtree(model)
    receipt.unlink()
    code, output = place.stage(stages.dp_train, VARIANT)
    assert code == 0, output
    assert "nothing is charged" in output
    assert place.charges == charges
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before
    assert {**read_json(receipt), "seconds": told["seconds"], "ledger_head": told["ledger_head"]} == told


def after(place: Place, code: int, output: str) -> After:
    """What is left now."""
    charges, ledger = place.charges, place.ledger
    newest = [charge.run_key for charge in charges if charge.variant == VARIANT][-1]
    own = [charge for charge in charges if charge.run_key == newest]
    return After(code, output, own, ledger.balance("tickets"), ledger.head(), place.files("models", "reports/receipts"))


def after_loss(place: Place, code: int, output: str) -> After:
    """What is left where the state of the training is lost too, from which it would go on at no charge."""
    (state,) = (place.workspace / CHECKPOINTS).glob("*.safetensors")
    state.unlink()
    return after(place, code, output)


def half_outputs(left: After) -> list[str]:
    """Files of the model that training had not finished; rows drawn from an earlier one stay."""
    return [name for name in left.files if name.startswith(f"models/{VARIANT}/") or name == RECEIPT]
