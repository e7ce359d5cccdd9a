"""A private stage in two processes: charged as one is; a process that is lost costs steps and no second charge.

The attempts are one story: a follower is killed, then the leader, then all is finished.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import stages.dp_train
from palimpsest.files import read_json
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.records import Balance, Charge
from palimpsest.training import dpsgd
from palimpsest.training.batches import micro_batches
from palimpsest.workspace import CHECKPOINTS
from stages.common import LOST
from tests.pipeline.place import MARKER, VARIANT, Place, asked_word
from tests.team import together

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

STEPS, BETWEEN = 12, 3
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Attempt:
    """What an attempt left."""

    codes: Sequence[int | None]  # how each process ended
    output: Sequence[str]  # what each printed, nothing where it was killed
    charges: list[Charge]  # the charges of its plan, oldest first
    balance: Balance  # what is spent
    checkpoints: list[str]  # names of the files from which a training goes on, without the charge's


def attempt(place: Place, killed: int | None = None, step: int = 0) -> Attempt:
    """Run the stage in two processes, of which one is killed in its first, second, ... step."""

    def take_part(rank: int) -> None:
        run = iter(range(1, STEPS + 1))

        def shares(*batch: Any) -> Any:
            if (rank, next(run)) == (killed, step):
                os.kill(os.getpid(), signal.SIGKILL)
            return micro_batches(*batch)

        dpsgd.micro_batches = shares  # type: ignore[attr-defined]
        code, output = place.stage(stages.dp_train, VARIANT)
        (place.home / f"{rank}.log").write_text(output)
        raise SystemExit(code)

    for rank in range(2):
        (place.home / f"{rank}.log").write_text("")
    codes = together(take_part)
    output = [(place.home / f"{rank}.log").read_text() for rank in range(2)]
    kept = [path.name.partition(".")[2] for path in Path(CHECKPOINTS).glob("*.safetensors")]
    return Attempt(codes, output, place.newest(VARIANT), place.ledger.balance("tickets"), kept)


@pytest.fixture(scope="module")
def places(ran: Place, copy: Callable[[Place], Place]) -> tuple[Place, Place]:
    """Two copies of a workspace whose variant would train again."""
    first = copy(ran)
    first.edit("lms", VARIANT, checkpoint_steps=BETWEEN)
    return first, copy(first)


@pytest.fixture(scope="module")
def story(places: tuple[Place, Place]) -> list[Attempt]:
    """A follower is lost, then a leader, then nobody."""
    with places[0].entered() as patch:  # it was charged with other settings
        patch.setenv(records.CONSENT, asked_word(*places[0].stage(stages.dp_train, VARIANT)))
        return [attempt(places[0], 1, step=5), attempt(places[0], 0, step=2), attempt(places[0])]


def test_the_rest_of_a_team_ends_and_says_so(story: list[Attempt]):
    follower, leader, _ = story
    assert [follower.codes, leader.codes] == [[LOST, KILLED], [KILLED, LOST]]
    for told in (follower.output[0], leader.output[1]):
        assert "error: A process that trains together with this one has ended, or cannot be reached.\n" in told
        assert told.splitlines()[-1].startswith("  what to do: Look why. Run again:")
        assert not any(word in told for word in ("Traceback", "File ", MARKER))


def test_the_steps_that_had_begun_are_counted_and_the_last_checkpoint_stays(story: list[Attempt]):
    for lost, begun in zip(story, (6, 9), strict=False):
        histogram, train = lost.charges
        assert (histogram.state, train.state, train.steps_begun, train.steps) == ("answered", "begun", begun, STEPS)
        assert lost.checkpoints == [f"{BETWEEN}.safetensors"]


def test_running_again_goes_on_under_the_same_charge(story: list[Attempt]):
    lost, again, finished = story
    assert "a stopped run goes on under its own charge, with 3 of 12 steps left" in finished.output[0]
    assert [charge.id for charge in finished.charges] == [charge.id for charge in lost.charges]
    assert [(charge.state, charge.steps_begun) for charge in finished.charges] == [
        ("committed", 0),
        ("committed", STEPS),
    ]
    assert lost.balance == again.balance == finished.balance
    assert (finished.codes, finished.checkpoints) == ([0, 0], [])


def test_two_processes_are_charged_what_one_is(places: tuple[Place, Place], story: list[Attempt]):
    """All but what the clock, chance and the noise give is equal."""
    place = places[1]
    with place.entered() as patch:
        patch.setenv(records.CONSENT, asked_word(*place.stage(stages.dp_train, VARIANT)))
        code, output = place.stage(stages.dp_train, VARIANT)
    assert code == 0, output
    together_, alone = (_public(each) for each in places)
    assert together_ == alone
    assert [_event(charge) for charge in story[-1].charges] == [_event(charge) for charge in place.newest(VARIANT)]
    assert story[-1].balance == place.ledger.balance("tickets")


def _public(place: Place) -> dict[str, Any]:
    """A receipt without what differs between two runs of one plan."""
    receipt = read_json(place.workspace / f"reports/receipts/models/{VARIANT}.json")
    for line in receipt["queries"]:
        del line["charge"]
    return {key: value for key, value in receipt.items() if key not in ("seconds", "ledger_head", "weights")}


def _event(charge: Charge) -> Charge:
    return replace(charge, id="", seq=0, time="", answer_hash=None)
