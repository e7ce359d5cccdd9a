"""Texts that private rows choose: public ones, an author's, another variant's; killed, finished, kept."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json
from palimpsest.privacy.ledger.records import Charge
from palimpsest.records.write import read_rounds, read_synthetic
from tests.pipeline.place import MARKER, VARIANT, Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

SELECTED, EVOLVED, VOTED = "select0_5", "evolve0_5", "vote1"
ROUNDS = 4
KEPT = "models/checkpoints/evolve"
STAGE = f"private_evolve@{EVOLVED}"


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """The workspace with a variant of each kind, small and slow enough to be stopped on the way."""
    place = copy(ran)
    votes = {"neighbours": 3, "threshold": 0.0, "selection": "rank"}
    evolved = {"rows": 60, "rounds": ROUNDS, "expand": 3, "batch": 64, "votes": votes}
    place.edit("authors", base={"kind": "base", "max_tokens": 12, "batch": 16})
    variants = {
        SELECTED: {"method": "select", "epsilon": 0.5, "rows": 60, "batch": 64},
        EVOLVED: {"method": "evolve", "epsilon": 0.5, **evolved},
        VOTED: {"method": "vote_select", "epsilon": 1.0, "from": VARIANT, "keep": 0.5, "votes": votes, "batch": 64},
    }
    place.edit("variants", **variants)
    place.edit("runs", evolution_audit=[EVOLVED])
    with place.entered():
        yield place


@pytest.fixture(scope="module")
def killed(place: Place) -> list[Charge]:
    """SIGKILL after the second round began."""
    code, output = place.kill_in("vote rounds", "dvc", "repro", STAGE, steps=2)
    assert code == -signal.SIGKILL, output
    return place.newest(EVOLVED)


@pytest.fixture(scope="module")
def finished(place: Place, killed: list[Charge]) -> list[Charge]:
    """The next run, undisturbed, and the other two."""
    code, output = place.run("dvc", "repro", STAGE, f"evolution_audit@{EVOLVED}")
    assert code == 0, output
    assert "a stopped run goes on under its own charge" in output
    code, output = place.run("dvc", "repro", f"select@{SELECTED}", f"vote_select@{VOTED}")
    assert code == 0, output
    return place.newest(EVOLVED)


def test_what_is_kept_is_for_the_owner_and_holds_no_record(place: Place, killed: list[Charge]):
    files = [path for path in (place.workspace / KEPT).rglob("*") if path.is_file()]
    assert files
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in files)
    assert MARKER not in "".join(path.read_text() for path in files)


def test_the_next_run_charges_nothing_again_and_holds_at_most_the_planned_rounds(
    killed: list[Charge], finished: list[Charge]
):
    assert [charge.id for charge in finished] == [charge.id for charge in killed]
    assert {charge.state for charge in finished} == {"committed"}
    (rounds,) = (charge for charge in finished if charge.steps is not None)
    assert rounds.steps_begun == ROUNDS
    assert len(read_rounds(f"data/evolved/{EVOLVED}.parquet")) in (ROUNDS - 1, ROUNDS)


def test_a_run_that_starts_again_makes_the_same_rows_of_what_was_paid_for(place: Place, finished: list[Charge]):
    place.remake(EVOLVED, "base")


def test_the_last_round_alone_is_the_result(finished: list[Charge]):
    rounds = read_rounds(f"data/evolved/{EVOLVED}.parquet")
    rows = read_synthetic(f"data/synthetic/{EVOLVED}", "body", "team")
    assert set(rows) <= set(rounds[-1])
    assert len(rows) == read_json(f"reports/metrics/{EVOLVED}/generation.json")["rows"]


def test_distances_are_measured_for_each_round(finished: list[Charge]):
    found = read_json(f"reports/metrics/{EVOLVED}/evolution.json")
    assert found["zone"] == "internal"
    assert len(found["rounds"]) == len(read_rounds(f"data/evolved/{EVOLVED}.parquet"))
    assert all(distance["value"] >= 0 for one in found["rounds"] for distance in one if distance["name"] == "frechet")


def test_the_receipts_hold_and_a_choice_counts_what_it_chooses_from(place: Place, finished: list[Charge]):
    assert verify_workspace(place.workspace) == 0
    below, above = (read_json(f"reports/receipts/{name}.json") for name in (VARIANT, VOTED))
    assert {line["charge"] for line in below["queries"]} < {line["charge"] for line in above["queries"]}
    assert below["epsilon"] < above["epsilon"] <= 1.0


def test_selected_texts_are_public_ones(place: Place, finished: list[Charge]):
    public = {json.loads(line)["body"] for line in place.public.read_text().splitlines()}
    rows = read_synthetic(f"data/synthetic/{SELECTED}", "body", "team")
    assert rows
    assert {row.text for row in rows} <= public


def test_votes_keep_rows_of_the_variant_below(finished: list[Charge]):
    below = read_synthetic(f"data/synthetic/{VARIANT}", "body", "team")
    kept = read_synthetic(f"data/synthetic/{VOTED}", "body", "team")
    assert set(kept) < set(below)


def test_no_private_word_is_in_what_left_the_private_zone(finished: list[Charge]):
    found = [path for folder in ("data/synthetic", "data/evolved", "models") for path in Path(folder).rglob("*")]
    assert [path.name for path in found if path.is_file() and MARKER.encode() in path.read_bytes()] == []
