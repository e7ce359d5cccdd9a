"""Embeddings that private rows choose, and two baselines: killed, finished, measured, kept."""

import json
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json
from palimpsest.privacy.ledger.records import Charge
from palimpsest.records.evolved import read_evolved
from palimpsest.records.write import read_synthetic
from tests.pipeline.place import MARKER, Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

EVOLVED, LIMITED, DEEP, WORDS = "embed0_5", "limited", "sentdp0_5", "custext"
ROUNDS = 3
KEPT = "models/checkpoints/embed"
STAGE = f"eda_evolve@{EVOLVED}"


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """The workspace with a decoder, a variant of each kind, and one that cannot work."""
    place = copy(ran)
    place.edit("decoders", "small", epochs=1, sentences=300, heldout=20, max_tokens=16)
    decode = {"samples": 2, "corrections": 1, "max_tokens": 12, "batch": 32}
    sizes = {"rows": 20, "rounds": ROUNDS, "start": 30, "offspring": 20, "parents": 5, "batch": 64, "decode": decode}
    evolved = {"method": "embed", "epsilon": 0.5, "from": "small", **sizes}
    limited = {"kind": "limited_domain", "domain": 20, "delta_share": 0.5}
    variants = {
        EVOLVED: evolved,
        LIMITED: {**evolved, "selection": limited},
        DEEP: {"method": "sentdp", "epsilon": 0.5, "rows": 40, "directions": 10, "batch": 64},
        WORDS: {"method": "custext", "epsilon": math.inf, "token_epsilon": 0.5, "vocabulary": 60, "neighbours": 5},
    }
    place.edit("variants", **variants)
    place.edit("runs", eda_audit=[EVOLVED])
    place.cap(100.0)
    with place.entered():
        yield place


@pytest.fixture(scope="module")
def killed(place: Place) -> list[Charge]:
    """SIGKILL after the second round began."""
    code, output = place.run("dvc", "repro", "decoder_pretrain@small")
    assert code == 0, output
    code, output = place.kill_in("vote rounds", "dvc", "repro", STAGE, steps=2)
    assert code == -signal.SIGKILL, output
    return place.newest(EVOLVED)


@pytest.fixture(scope="module")
def finished(place: Place, killed: list[Charge]) -> list[Charge]:
    """The next run, undisturbed, its audit, and the baselines."""
    code, output = place.run("dvc", "repro", f"eda_audit@{EVOLVED}", f"sentdp@{DEEP}", f"custext@{WORDS}")
    assert code == 0, output
    assert "a stopped run goes on under its own charge" in output
    return place.newest(EVOLVED)


def test_what_is_kept_is_for_the_owner_and_holds_no_record(place: Place, killed: list[Charge]):
    files = [path for path in (place.workspace / KEPT).rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files if path.suffix == ".npz")
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in files)
    assert [path.name for path in files if MARKER.encode() in path.read_bytes()] == []


def test_the_next_run_charges_nothing_again_and_holds_at_most_the_planned_rounds(
    killed: list[Charge], finished: list[Charge]
):
    assert [charge.id for charge in finished] == [charge.id for charge in killed]
    assert {charge.state for charge in finished} == {"committed"}
    (rounds,) = (charge for charge in finished if charge.steps is not None)
    assert rounds.steps_begun == ROUNDS
    assert len(read_evolved(f"data/evolved/{EVOLVED}.npz")) in (ROUNDS - 1, ROUNDS)


def test_a_run_that_starts_again_makes_the_same_rows_of_what_was_paid_for(place: Place, finished: list[Charge]):
    place.remake(EVOLVED, "small")


def test_each_round_is_measured(finished: list[Charge]):
    found = read_json(f"reports/metrics/{EVOLVED}/evolution.json")
    assert found["zone"] == "internal"
    assert len(found["rounds"]) == len(read_evolved(f"data/evolved/{EVOLVED}.npz"))


def test_a_decoder_says_how_well_it_reconstructs(finished: list[Charge]):
    found = read_json("reports/metrics/decoders/small.json")
    assert found["zone"] == "public"
    assert -1.0 <= found["reconstruction"]["cosine"] <= 1.0
    assert len(found["samples"]) > 0


def test_a_variant_that_cannot_work_is_refused_before_it_is_charged(place: Place, finished: list[Charge]):
    code, output = place.run("dvc", "repro", f"eda_evolve@{LIMITED}")
    assert code != 0
    assert "cannot work" in output
    assert "use selection gaussian" in output
    assert [charge for charge in place.charges if charge.variant == LIMITED] == []


def test_the_receipts_hold(place: Place, finished: list[Charge]):
    assert verify_workspace(place.workspace) == 0
    assert read_json(f"reports/receipts/{EVOLVED}.json")["epsilon"] <= 0.5
    assert read_json(f"reports/receipts/{DEEP}.json")["accountant"] == "zcdp"


def test_words_that_were_replaced_stay_a_reference(finished: list[Charge], place: Place):
    receipt = read_json(f"reports/receipts/{WORDS}.json")
    assert (receipt["purpose"], receipt["epsilon"]) == ("reference", None)
    assert {charge.purpose for charge in place.newest(WORDS)} == {"reference"}


def test_picked_texts_are_public_ones(place: Place, finished: list[Charge]):
    public = {json.loads(line)["body"] for line in place.public.read_text().splitlines()}
    rows = read_synthetic(f"data/synthetic/{DEEP}", "body", "team")
    assert rows
    assert {row.text for row in rows} <= public


def test_no_private_word_is_in_what_was_written(finished: list[Charge]):
    found = [path for folder in ("data/synthetic", "data/evolved", "models") for path in Path(folder).rglob("*")]
    assert [path.name for path in found if path.is_file() and MARKER.encode() in path.read_bytes()] == []
