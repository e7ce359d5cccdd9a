"""`palimpsest ledger export`, `import` and `merge-check`, as a person calls them."""

import json
from pathlib import Path

import pytest
from cli_place import Place, call

from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.shown import up
from tests.privacy.changed import copied, on_another_machine

ASKED = [PlannedQuery("votes", LabelHistogram(("a", "b"), 8.0).event())]


def charge(ledger: Path, variant: str) -> None:
    Ledger.open(f"sqlite:///{ledger}").reserve("notes", Run("fit", variant, "release", "d", "p"), ASKED)


def test_a_ledger_is_exported_and_goes_on_elsewhere(place: Place) -> None:
    charge(place.ledger, "dp3")
    file, moved = place.home / "ledger.jsonl", place.home / "moved.db"
    done = place.call("ledger", "export", file)
    assert done.exit_code == 0, done.output
    assert "2 entries" in done.stdout
    done = call("ledger", "import", file, "--workspace", place.home / "nowhere", ledger=moved)
    assert done.exit_code == 0, done.output
    spent = Ledger.open(f"sqlite:///{moved}").balance("notes").spent
    assert f"notes: epsilon {up(spent)} spent of 9" in done.stdout
    done = call("ledger", "merge-check", file, moved, ledger=place.ledger)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "They are one ledger.")
    again = call("ledger", "import", file, "--workspace", place.workspace, ledger=moved)
    assert again.exit_code == 1
    assert "two ledgers are never merged" in again.stderr


def test_two_copies_that_were_used_are_told_apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copied(place.ledger, place.home / "copy.db")
    charge(place.ledger, "here")
    done = call("ledger", "merge-check", copy, place.ledger, ledger=place.ledger)
    assert done.exit_code == 0
    assert f"{place.ledger} goes on from the other, which is an old copy" in done.stdout
    on_another_machine(monkeypatch)
    charge(copy, "there")
    done = call("ledger", "merge-check", copy, place.ledger, ledger=place.ledger)
    assert done.exit_code == 1
    assert "They part at entry 2: neither says what was spent" in done.stdout
    (total,) = json.loads(call("ledger", "merge-check", copy, place.ledger, "--json", ledger=copy).stdout)["sums"]
    assert total["both"] > total["spent"][0] == total["spent"][1] > 0


@pytest.mark.parametrize("missing", ["nothing.jsonl", "own.csv"])
def test_what_is_no_ledger_is_refused(place: Place, missing: str) -> None:
    done = call("ledger", "merge-check", place.home / missing, place.ledger, ledger=place.ledger)
    assert done.exit_code == 1
    assert "cannot be read" in done.stderr or "not a whole export" in done.stderr


def test_an_option_before_the_command_is_not_dropped_in_silence(place: Place) -> None:
    done = call("ledger", "-w", place.workspace, "export", place.home / "out.jsonl", ledger=place.ledger)
    assert done.exit_code == 1
    assert "stands before its command" in done.stderr
    assert not (place.home / "out.jsonl").exists()
