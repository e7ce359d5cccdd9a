"""A ledger as a file, on both databases; and two ledgers that parted."""

import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dp_accounting as dpa
import pytest

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import exported
from palimpsest.privacy.ledger.exported import Comparison, compare_ledgers, merge_charges
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import STATES, Asset, Run
from palimpsest.privacy.planned import PlannedQuery
from tests.privacy.changed import copied, on_another_machine

ONE = [PlannedQuery("votes", dpa.GaussianDpEvent(10.0))]
Runs = Callable[..., Run]


def half_done(ledger: Ledger, run: Run) -> None:
    """Ask, store the answer, and end."""
    charge = ledger.reserve("tickets", run, ONE).charges[0]
    ledger.begin(charge)
    ledger.answer(charge, {"refund": 3})


@pytest.fixture
def file(small: Ledger, run: Runs, tmp_path: Path) -> Path:
    """What was written of a ledger with one answered charge."""
    half_done(small, run())
    exported.write(small.export(), tmp_path / "ledger.jsonl")
    return tmp_path / "ledger.jsonl"


def refused(call: Callable[[], object], match: str) -> None:
    with pytest.raises(LedgerError, match=match) as error:
        call()
    assert error.value.remedy


# --- there and back


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_ledger_goes_on_in_another_database_as_it_was(small, run, file, target, tmp_path, request):
    url = request.getfixturevalue("empty_server") if target == "postgres" else f"sqlite:///{tmp_path}/other.db"
    other = Ledger.create(url)
    assert other.take_in(exported.read(file)).head == small.head()
    assert other.asset("tickets") == small.asset("tickets")
    assert other.charges("tickets") == small.charges("tickets")
    again = other.reserve("tickets", run(), ONE)
    assert again.replays == {again.charges[0].id: {"refund": 3}}
    other.commit(again)
    refused(small.books, "noted elsewhere")  # the old one is known as an old copy, where the new one was used


def test_the_file_is_its_owners_alone_and_never_written_over(small, file):
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    refused(lambda: exported.write(small.export(), file), "is there already")


def test_no_export_lies_in_a_workspace(small, tmp_path):
    for name in ("params.yaml", "dvc.yaml"):
        (tmp_path / name).touch()
    refused(lambda: exported.write(small.export(), tmp_path / "deep" / "ledger.jsonl"), "lies in a workspace")


def test_only_an_empty_ledger_takes_one_in(small, file):
    entries = small.books().entries
    refused(lambda: small.take_in(exported.read(file)), "two ledgers are never merged")
    assert small.books().entries == entries


def test_any_line_that_is_changed_or_missing_is_refused(file):
    lines = file.read_text().splitlines(keepends=True)
    for index, line in enumerate(lines):
        for changed in (
            "",
            line + line,
            re.sub(r"\d", lambda digit: str(9 - int(digit[0])), line, count=1),
            line[: len(line) // 2],
        ):
            file.write_text("".join([*lines[:index], changed, *lines[index + 1 :]]))
            refused(lambda: exported.read(file), "not a whole export|does not fit|ledger's key")


def test_a_chain_that_does_not_hold_is_refused_though_the_file_is_whole(file):
    read = exported.read(file)
    cut = replace(read.chain, entries=read.chain.entries[1:])
    keyless = replace(read.chain, keys={"tickets": "00"})
    for number, chain in enumerate((cut, keyless)):
        path = file.with_name(f"{number}.jsonl")
        exported.write(replace(read, chain=chain), path)
        refused(lambda path=path: exported.read(path), "does not fit|ledger's key")


def test_an_answer_that_is_not_the_chains_is_not_taken_in(file, tmp_path):
    read = exported.read(file)
    other = Ledger.create(f"sqlite:///{tmp_path}/other.db")
    for answers in ({}, dict.fromkeys(read.answers, "4")):
        refused(lambda answers=answers: other.take_in(replace(read, answers=answers)), "stored answer")
    assert other.books().entries == 0


def test_an_export_older_than_what_was_noted_is_not_taken_in(small, run, file, tmp_path):
    small.reserve("tickets", run(variant="later"), ONE)
    other = Ledger.create(f"sqlite:///{tmp_path}/other.db")
    refused(lambda: other.take_in(exported.read(file)), "noted elsewhere")
    assert other.books().entries == 0


# --- two that parted


@pytest.fixture
def parted(small: Ledger, run: Runs, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A copy of `small` that went on on another machine, where nothing was noted of it, as `small` did here."""
    half_done(small, run())
    copy = copied(Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "copy.db")
    small.reserve("tickets", run(variant="here"), ONE)
    on_another_machine(monkeypatch)
    other = Ledger.open(f"sqlite:///{copy}")
    other.reserve("tickets", run(variant="there"), ONE * 2)
    return other


def both(one: Ledger, other: Ledger) -> Comparison:
    return compare_ledgers(one.unchecked_books(), other.unchecked_books())


def test_it_says_where_two_ledgers_part_and_what_both_have_spent(small, parted, asset):
    found = both(small, parted)
    assert (found.shared, found.own, found.diverged) == (4, (1, 2), True)
    (total,) = found.sums
    shared, here, there = 1, 1, 2
    assert total.spent == pytest.approx((of(asset, shared + here), of(asset, shared + there)))
    assert total.both == pytest.approx(of(asset, shared + here + there))
    assert (total.cap, total.fits) == (asset.epsilon, True)
    assert both(parted, small).sums[0].both == total.both


def of(asset: Asset, queries: int) -> float:
    """What so many of these queries spend."""
    return asset.spent([queries * order / (2 * 10.0**2) for order in asset.orders])


def test_the_lower_cap_counts(small, parted):
    parted.amend("tickets", 0.1)
    (total,) = both(small, parted).sums
    assert (total.cap, total.fits) == (0.1, False)


def test_one_that_goes_on_from_the_other_has_not_parted(small, run, sqlite_url, tmp_path):
    copy = Ledger.open(f"sqlite:///{copied(Path(sqlite_url.removeprefix('sqlite:///')), tmp_path / 'copy.db')}")
    assert both(small, copy).own == (0, 0)
    half_done(small, run())
    found = both(small, copy)
    assert (found.own, found.diverged) == ((3, 0), False)
    assert found.sums[0].both == found.sums[0].spent[0]


def test_epsilons_on_other_terms_are_not_added(small, asset, tmp_path):
    other = Ledger.create(f"sqlite:///{tmp_path}/other.db")
    other.register(replace(asset, delta=1e-6))
    refused(lambda: both(small, other), "on other terms")


@pytest.mark.parametrize("first", STATES)
@pytest.mark.parametrize("second", STATES)
def test_what_counts_in_either_counts_once(small, run, first, second):
    charge = small.reserve("tickets", run(), ONE).charges[0]
    (found,) = merge_charges([replace(charge, state=first)], [replace(charge, state=second)])
    assert found.counted == (first != "refunded" or second != "refunded")
    assert found.looked == any(replace(charge, state=each).looked for each in (first, second))


def test_parts_of_a_run_that_two_ledgers_share_are_not_one_scheme(small, run, sqlite_url, tmp_path, monkeypatch):
    """Each put its records into parts of its own: a record may lie in the part that was asked here and there."""
    copy = copied(Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "copy.db")
    on_another_machine(monkeypatch)
    other = Ledger.open(f"sqlite:///{copy}")
    for ledger, part in ((other, "b"), (small, "a")):
        ledger.reserve("tickets", run(), [replace(ONE[0], partition=("waves", part))])
    (total,) = both(small, other).sums
    assert total.both == pytest.approx(of(small.asset("tickets"), 2))


def test_the_file_says_what_it_is(file):
    first = json.loads(file.read_text().splitlines()[0])
    assert (first["format"], first["entries"]) == ("palimpsest-ledger-1", 4)
