"""What is noted of a ledger outside of it: old copies, cut tails, chains made anew, changed keys and answers."""

import hashlib
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import dp_accounting as dpa
import pytest
import sqlalchemy as sa

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import chain, witness
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset
from palimpsest.privacy.ledger.witness import VARIABLE, Witnesses, receipt_heads
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.session import metered
from palimpsest.records.schema import PublicSchema
from tests.privacy.changed import copied, execute, kinds, on_another_machine, put_back, rehash
from tests.reading import EVERYTHING

ONE = PlannedQuery("votes", dpa.GaussianDpEvent(10.0))
TWO = PlannedQuery("histogram", dpa.GaussianDpEvent(20.0))
SCHEMA = PublicSchema("tickets", "classify", "text", n_public=1000, max_length=99, label="label", labels={"a": "a"})


def refused(call: Callable[[], object], match: str) -> None:
    with pytest.raises(LedgerError, match=match) as found:
        call()
    assert found.value.problem
    assert found.value.remedy


def file() -> Path:
    """The one file of heads of this test."""
    (found,) = Path(os.environ[VARIABLE]).iterdir()
    return found


def elsewhere(monkeypatch: pytest.MonkeyPatch, url: str) -> Ledger:
    """The ledger as opened on a machine where nothing was noted of it: no folder of the first one is there."""
    on_another_machine(monkeypatch)
    return Ledger.open(url)


def lived(ledger: Ledger, run) -> None:
    """A run with an answered and a committed query, and a refund."""
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    for charge in reservation.charges:
        ledger.begin(charge)
    ledger.answer(reservation.charges[0], {"refund": 3})
    ledger.commit(reservation)
    ledger.refund(ledger.reserve("tickets", run(variant="dp1"), [ONE]).charges)


# --- an older ledger


@pytest.mark.parametrize(("back", "lacks"), [(1, 1), (3, 3), (6, 5)])
def test_nothing_is_reserved_behind_a_cut_tail(ledger, run, url, back, lacks):
    lived(ledger, run)
    newest = ledger.books().entries
    execute(url, f"DELETE FROM palimpsest_entry WHERE seq > {newest - back}")
    for opened in (ledger, Ledger.open(url)):
        refused(lambda opened=opened: opened.reserve("tickets", run(variant="dp8"), [ONE]), f"lacks {lacks} of the")
        refused(lambda opened=opened: opened.amend("tickets", 99.0), "noted elsewhere")
        for call in (opened.books, lambda opened=opened: opened.balance("tickets")):
            refused(call, "noted elsewhere")
    assert len(kinds(url)) == newest - back


@pytest.mark.parametrize("at_its_place", [True, False])
def test_an_old_copy_is_refused_before_anything_is_charged_or_read(small, run, sqlite_url, tmp_path, at_its_place):
    place = Path(sqlite_url.removeprefix("sqlite:///"))
    old = copied(place, tmp_path / "old.db")
    lived(small, run)
    url = sqlite_url
    if at_its_place:
        put_back(old, place)
    else:
        url = f"sqlite:///{old}"
    read: list[str] = []
    with (
        pytest.raises(LedgerError, match="noted elsewhere"),
        metered(Ledger.open(url), SCHEMA, run(), [ONE], lambda: read.append("read") or [], NoiseSource()),
    ):
        pass
    assert (read, kinds(url)) == ([], ["register"])


def test_what_the_receipts_noted_is_checked_too(ledger, run, url, monkeypatch):
    lived(ledger, run)
    noted = ledger.head()
    opened = elsewhere(monkeypatch, url)
    opened.reserve("tickets", run(variant="dp2"), [ONE], witnesses=[noted])
    refused(lambda: opened.reserve("tickets", run(variant="dp3"), [ONE], witnesses=["0" * 64]), "lacks 1")
    with (
        pytest.raises(LedgerError, match="lacks 1"),
        metered(opened, SCHEMA, run(variant="dp4"), [ONE], list, NoiseSource(), witnesses=["0" * 64]),
    ):
        pass
    assert [charge.variant for charge in opened.charges("tickets")][3:] == ["dp2"]


CHANGES = {
    "event": "UPDATE palimpsest_entry SET body = replace(body, '10.0', '99.0') WHERE kind = 'reserve'",
    "cap": "UPDATE palimpsest_entry SET body = replace(body, '4.0,', '400.0,') WHERE kind = 'register'",
    "purpose": "UPDATE palimpsest_entry SET body = replace(body, 'release', 'reference') WHERE kind = 'reserve'",
    "tail": "DELETE FROM palimpsest_entry WHERE kind = 'commit'",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_chain_whose_hashes_were_made_anew_shows(ledger, run, url, monkeypatch, change):
    lived(ledger, run)
    head = ledger.head()
    execute(url, change)
    rehash(url)
    for call in (ledger.books, lambda: ledger.charges("tickets"), lambda: ledger.reserve("tickets", run(), [ONE])):
        refused(call, "noted elsewhere")
    unnoted = elsewhere(monkeypatch, url)
    assert unnoted.books().entries > 1
    refused(lambda: unnoted.books([head]), "noted elsewhere")


def test_a_register_anew_is_another_lineage_and_the_old_one_is_named(small, run, tmp_path):
    lived(small, run)
    again = Ledger.create(f"sqlite:///{tmp_path}/new.db")
    assert (
        again.books().count_elsewhere("tickets"),
        again.books().count_elsewhere("letters"),
        small.books().count_elsewhere("tickets"),
    ) == (1, 0, 0)
    refused(lambda: again.books().require_alone("tickets"), "was charged on another ledger")
    made = again.register(Asset("tickets", 1e-5, 4.0, 1000), lost=True)
    assert [made.after_loss, *(each.asset("tickets").after_loss for each in (again, small))] == [True, True, False]
    lived(again, run)
    assert (again.books().entries, small.books().entries) == (10, 10)
    assert len(list(Path(os.environ[VARIABLE]).iterdir())) == 2


# --- two ledgers of one data set


@pytest.fixture
def rival(tmp_path, asset) -> Ledger:
    """Another ledger that knows the data set, registered before either was charged."""
    made = Ledger.create(f"sqlite:///{tmp_path}/rival.db")
    made.register(asset)
    return made


def test_two_ledgers_of_one_data_set_do_not_both_charge_it(ledger, rival, run):
    rival.reserve("tickets", run(), [ONE])
    head = ledger.head()
    for purpose in ("release", "reference"):
        refused(lambda p=purpose: ledger.reserve("tickets", run(purpose=p), [ONE]), "was charged on another ledger")
    refused(lambda: ledger.books().require_alone("tickets"), "was charged on another ledger")
    assert ledger.head() == head
    rival.reserve("tickets", run(variant="dp1"), [ONE])  # the one that was charged goes on


def test_what_two_ledgers_have_both_charged_goes_on_in_neither_but_after_a_loss(small, rival, run, asset, monkeypatch):
    rival.reserve("tickets", run(), [ONE])
    kept = on_another_machine(monkeypatch)
    Ledger.open(small.place).reserve("tickets", run(), [ONE])  # on a machine that did not know
    kept.rename(rival.unchecked_books().witnesses.folder)
    for path in Path(os.environ[VARIABLE]).iterdir():
        path.rename(rival.books().witnesses.folder / path.name)
    monkeypatch.setenv(VARIABLE, str(rival.books().witnesses.folder))
    for each in (small, rival):
        refused(lambda each=each: each.reserve("tickets", run(variant="dp1"), [ONE]), "was charged on another ledger")
    assert small.register(asset, lost=True).after_loss
    small.reserve("tickets", run(variant="dp1"), [ONE])
    refused(lambda: rival.reserve("tickets", run(variant="dp1"), [ONE]), "was charged on another ledger")


def test_rows_of_nobody_and_other_names_may_be_charged_on_many_ledgers(small, rival, run):
    rival.reserve("tickets", run(), [ONE])
    small.reserve("tickets", run(), [ONE], invented=True)
    small.register(Asset("letters", 1e-5, 4.0, 1000))
    small.reserve("letters", run(), [ONE])


def test_a_copy_of_a_ledger_is_no_other_one(ledger, run, tmp_path):
    lived(ledger, run)
    moved = Ledger.create(f"sqlite:///{tmp_path}/moved.db")
    moved.take_in(ledger.export())
    moved.reserve("tickets", run(variant="dp8"), [ONE])
    moved.books().require_alone("tickets")


def test_a_chain_made_anew_under_a_new_key_is_another_ledger(ledger, run, url):
    lived(ledger, run)
    key = "ab" * 32
    old = ledger.asset("tickets").key.hex()
    hashes = [hashlib.sha256(each.encode()).hexdigest() for each in (old, key)]
    execute(
        url,
        "DELETE FROM palimpsest_entry WHERE seq > 1",
        f"UPDATE palimpsest_asset SET key = '{key}'",
        f"UPDATE palimpsest_entry SET body = replace(body, '{hashes[0]}', '{hashes[1]}')",
    )
    rehash(url)
    opened = Ledger.open(url)
    assert opened.asset("tickets").key.hex() == key
    refused(lambda: opened.reserve("tickets", run(), [ONE]), "was charged on another ledger")


@pytest.mark.parametrize("said", ["key_hash", "lost"])
def test_no_later_entry_takes_back_the_key_or_the_mark(ledger, run, url, asset, said):
    """Who may add entries cannot lead away from the heads that were noted, or make an asset releasable again."""
    ledger.register(asset, lost=True)
    key = "ab" * 32
    forged = {"key_hash": hashlib.sha256(key.encode()).hexdigest(), "lost": False}
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        chain.append(connection, "tickets", "amend", None, {said: forged[said]})
    engine.dispose()
    assert ledger.asset("tickets").after_loss
    execute(url, f"UPDATE palimpsest_asset SET key = '{key}'")
    refused(ledger.books, "not the one of its registration")


@pytest.mark.parametrize("known", [False, True])
def test_the_word_that_a_ledger_is_lost_marks_the_asset_whatever_was_noted(url, asset, known):
    ledger = Ledger.create(url)
    if known:
        ledger.register(asset)
    for opened in (ledger, Ledger.open(url)):
        assert opened.register(asset, lost=True).after_loss
        assert opened.register(asset).after_loss
        assert opened.asset("tickets").after_loss
    assert ledger.books().entries == 1 + known  # said once


# --- the file of heads


def test_every_charge_is_noted_behind_the_others(ledger, run, monkeypatch):
    kept, texts, sync = os.umask(0), [b""], os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        texts.append(file().read_bytes())

    monkeypatch.setattr(witness.os, "fsync", watched)
    try:
        lived(ledger, run)
    finally:
        os.umask(kept)
    assert all(after.startswith(before) and after != before for before, after in pairwise(texts))
    heads = [json.loads(line) for line in file().read_text().splitlines()]
    assert [head["seq"] for head in heads] == [3, 4, 5, 6, 8, 9, 10]  # two are reserved, and committed, at once
    assert heads[-1] == {"asset": "tickets", "hash": ledger.head(), "seq": 10}
    assert (stat.S_IMODE(file().stat().st_mode), stat.S_IMODE(file().parent.stat().st_mode)) == (0o600, 0o700)


def test_each_step_is_noted(small, run):
    charge = small.reserve("tickets", run(), [steps()]).charges[0]
    small.begin(charge)
    small.advance(charge, 0, 2)
    assert len(file().read_text().splitlines()) == 3


def steps() -> PlannedQuery:
    return PlannedQuery("walk", dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(40.0), 5), steps=5)


def test_registering_alone_is_not_noted(small):
    assert not Path(os.environ[VARIABLE]).exists()


def test_where_nothing_can_be_noted_nothing_is_charged(ledger, run):
    Path(os.environ[VARIABLE]).write_text("a file in the folder's place")
    head = ledger.head()
    refused(lambda: ledger.reserve("tickets", run(), [ONE]), "cannot be noted")
    assert ledger.head() == head


def test_a_head_that_is_not_noted_leaves_the_charge_standing(ledger, run, monkeypatch):
    ledger.reserve("tickets", run(variant="dp1"), [TWO])
    with monkeypatch.context() as patch:
        patch.setattr(witness.os, "write", lambda descriptor, line: 3)
        refused(lambda: ledger.reserve("tickets", run(), [ONE]), "was written to the ledger and not noted")
    assert [charge.state for charge in ledger.charges("tickets")] == ["reserved", "reserved"]


def test_a_head_behind_a_line_that_a_full_disk_cut_has_a_line_of_its_own(small, run):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    with file().open("a") as stream:
        stream.write('{"asset": "tick')
    small.begin(charge)
    refused(small.books, "cannot be read")
    lines = file().read_text().splitlines()
    file().write_text("".join(f"{line}\n" for line in (lines[0], lines[2])))
    assert small.books().entries == 3
    assert json.loads(lines[2])["hash"] == small.head()


@pytest.mark.parametrize("line", ["", "[]", "no head", '{"seq": 1}', '{"asset": "tickets", "hash": "a", "seq": "x"}'])
def test_a_line_that_is_not_whole_is_refused(small, run, line):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    with file().open("a") as stream:
        stream.write(line + "\n")
    for call in (small.books, lambda: small.reserve("tickets", run(variant="dp1"), [ONE])):
        refused(call, "cannot be read")
    small.begin(charge)


def test_many_at_once_raise_no_false_alarm(url, asset):
    Ledger.create(url).register(asset)
    done = threading.Event()

    def amend(number: int) -> None:
        opened = Ledger.open(url)
        for _ in range(8):
            opened.amend("tickets", 1.0 + number)

    def verify() -> int:
        opened, count = Ledger.open(url), 0
        while not done.is_set():
            opened.books()
            count += 1
        return count

    with ThreadPoolExecutor(6) as pool:
        watching = [pool.submit(verify) for _ in range(2)]
        list(pool.map(amend, range(4)))
        done.set()
        assert all(each.result() > 0 for each in watching)
    heads = [json.loads(line) for line in file().read_text().splitlines()]
    assert sorted(head["seq"] for head in heads) == list(range(2, 34))


def test_where_heads_are_noted(tmp_path, monkeypatch):
    world = tmp_path / "world"
    for name in ("params.yaml", "dvc.yaml", ".palimpsest/ledger.db"):
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        (world / name).touch()
    beside = world / ".palimpsest" / "ledger.db.witnesses"
    assert Witnesses.locate(world / ".palimpsest" / "ledger.db", {VARIABLE: "/else"}).folder == beside
    assert Witnesses.locate(tmp_path / "ledger.db", {VARIABLE: "/else"}).folder == Path("/else")
    for place in ("else", str(world), str(world / "else")):
        refused(lambda place=place: Witnesses.locate(None, {VARIABLE: place}), "not a whole path, or lies in a work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    assert Witnesses.locate(None, {}).folder == tmp_path / "keys" / "palimpsest" / "witnesses"


def test_the_heads_of_receipts_are_those_of_the_asset(tmp_path):
    bodies = {
        "a": {"asset": "tickets", "ledger_head": "1"},
        "models/a": {"asset": "tickets", "ledger_head": "2"},
        "b": {"asset": "letters", "ledger_head": "3"},
    }
    for name, body in bodies.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    assert sorted(receipt_heads(tmp_path, "tickets")) == ["1", "2"]
    assert receipt_heads(tmp_path / "nothing", "tickets") == []


@pytest.mark.parametrize("text", ["{", "[]", '"text"', "{}", '{"asset": "tickets", "ledger_head": null}'])
def test_a_file_that_is_no_receipt_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    refused(lambda: receipt_heads(tmp_path, "tickets"), "'a.json' is not JSON, or names no entry")


# --- keys and answers

KEYS = {
    "another": "UPDATE palimpsest_asset SET key = '" + "ab" * 32 + "'",
    "no key": "UPDATE palimpsest_asset SET key = 'none'",
    "removed": "DELETE FROM palimpsest_asset",
    "renamed": "UPDATE palimpsest_asset SET name = 'other'",
    "one more": "INSERT INTO palimpsest_asset VALUES ('other', '" + "ab" * 32 + "')",
}


@pytest.mark.parametrize("change", KEYS.values(), ids=KEYS)
def test_a_changed_key_is_refused(ledger, run, url, asset, change):
    execute(url, change)
    calls = [
        lambda: ledger.asset("tickets"),
        lambda: ledger.charges("tickets"),
        lambda: ledger.reserve("tickets", run(), [ONE]),
        lambda: ledger.register(asset),
        ledger.books,
    ]
    for call in calls:
        refused(call, r"not the one of its registration|name other data sets")


ANSWERS = {
    "changed": """UPDATE palimpsest_answer SET body = '{"refund": 4}'""",
    "removed": "DELETE FROM palimpsest_answer",
    "bytes": "UPDATE palimpsest_answer SET body = 'x'",
}


@pytest.mark.parametrize("change", ANSWERS.values(), ids=ANSWERS)
def test_a_changed_answer_is_not_replayed(ledger, run, url, change):
    charge = ledger.reserve("tickets", run(), [ONE]).charges[0]
    ledger.begin(charge)
    ledger.answer(charge, {"refund": 3})
    head = ledger.head()
    execute(url, change)
    refused(lambda: ledger.reserve("tickets", run(), [ONE]), "stored answer")
    assert ledger.head() == head


def test_an_answer_whose_hash_the_chain_lacks_is_paid_for_again(ledger, run, url, monkeypatch):
    charge = ledger.reserve("tickets", run(), [ONE]).charges[0]
    ledger.begin(charge)
    ledger.answer(charge, {"refund": 3})
    execute(url, "UPDATE palimpsest_entry SET body = '{}' WHERE kind = 'answer'")
    rehash(url)
    again = elsewhere(monkeypatch, url).reserve("tickets", run(), [ONE], again=EVERYTHING)
    assert (again.replays, again.charges[0].state) == ({}, "reserved")
    assert again.charges[0].id != charge.id


def test_bytes_where_text_was_are_a_change(small, run, sqlite_url):
    lived(small, run)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as books, books:
        books.execute("UPDATE palimpsest_entry SET body = x'ff' WHERE seq = 2")
    refused(small.books, "changed by hand")


# --- another folder of heads


@pytest.mark.parametrize("variable", [VARIABLE, "XDG_CONFIG_HOME"])
def test_no_other_folder_leads_away_from_what_was_noted(asset, run, sqlite_url, tmp_path, monkeypatch, variable):
    """Neither the variable nor the home: the ledger says where its heads were noted when it was registered."""
    monkeypatch.setenv(variable, str(tmp_path / "first"))
    if variable != VARIABLE:
        monkeypatch.delenv(VARIABLE)
    place = Path(sqlite_url.removeprefix("sqlite:///"))
    Ledger.create(sqlite_url).register(asset)
    old = copied(place, tmp_path / "old.db")
    lived(Ledger.open(sqlite_url), run)
    monkeypatch.setenv(variable, str(tmp_path / "empty"))
    for url in (f"sqlite:///{old}", sqlite_url):
        put_back(old, place)
        opened = Ledger.open(url)
        refused(opened.books, "noted elsewhere")
        refused(lambda opened=opened: opened.reserve("tickets", run(variant="dp8"), [ONE]), "noted elsewhere")


def test_the_invented_world_moves_with_its_folder(tmp_path, asset):
    folders = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "params.yaml").touch()
        (tmp_path / name / "dvc.yaml").touch()
        ledger = Ledger.create(f"sqlite:///{tmp_path}/{name}/ledger.db")
        ledger.register(asset)
        folders.append(ledger.unchecked_books().chain.terms("tickets").get("noted_in"))
    assert folders == [None, None]
