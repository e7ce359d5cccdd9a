"""Old copies of the ledger, and hands in its tables: every command says so in two parts and charges nothing."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_place import Place, call, init
from click.testing import Result

import stages.dp_train
from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.files import read_json, write_json
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Balance, Run
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.work import plan as planning
from palimpsest.work.before import check_budget
from palimpsest.work.context import open_workspace
from stages import spending
from stages.dp_train import Fitting
from tests.privacy.changed import COLUMNS, copied, execute, kinds, on_another_machine, put_back, rehash
from tests.reading import reading

RUN = Run("dp_train", "dp3", "release", "data", "plan")
QUERY = LabelHistogram(("a", "b"), 4.0)
ASKED = PlannedQuery(QUERY.name, QUERY.event())
RECEIPT = Path("reports/receipts/models/dp3.json")
COMMANDS: tuple[tuple[object, ...], ...] = (
    ("plan",), ("status",), ("report",), ("ledger",), ("ledger", "--verify"), ("ledger", "--json"),
    ("ledger", "--refund", "0"), ("verify",), ("run",),
)  # fmt: skip


def refusal(done: Result) -> str:
    """What a refused command said, in two parts and without a traceback."""
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith("error: ")
    assert "\n  what to do: " in done.stderr
    return " ".join(done.stderr.split())


def lived(ledger: Path) -> Ledger:
    """A ledger in which each kind of entry stands."""
    made = Ledger.open(f"sqlite:///{ledger}")
    reservation = made.reserve("notes", RUN, [ASKED, PlannedQuery("walk", QUERY.event())])
    for charge in reservation.charges:
        made.begin(charge)
    made.answer(reservation.charges[0], 1)
    made.commit(reservation)
    made.refund(made.reserve("notes", Run("dp_train", "dp1", "release", "data", "plan"), [ASKED]).charges)
    made.reserve("notes", Run("dp_train", "dp2", "release", "data", "plan"), [ASKED])
    made.amend("notes", 9.0)
    return made


def noted(place: Place) -> None:
    """A receipt that holds the ledger's head."""
    head = Ledger.open(f"sqlite:///{place.ledger}").head()
    write_json(place.workspace / RECEIPT, {"asset": "notes", "ledger_head": head})


@pytest.fixture
def unnoted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget the heads that were noted, as on another machine."""
    return lambda: on_another_machine(monkeypatch)


# --- old copies


@pytest.mark.parametrize("witness", ["file", "receipt"])
@pytest.mark.parametrize("moved", [False, True])
def test_no_command_goes_on_with_an_old_copy(
    place: Place, tmp_path: Path, unnoted: Callable[[], None], witness: str, moved: bool
) -> None:
    old = copied(place.ledger, tmp_path / "old.db")
    lived(place.ledger)
    if witness == "receipt":
        noted(place)
        unnoted()
    if moved:
        place.ledger = old
    else:
        put_back(old, place.ledger)
    for command in COMMANDS:
        assert "noted elsewhere" in refusal(place.call(*command))
    assert kinds(f"sqlite:///{place.ledger}") == ["register"]


def fit(params: Params, plan: Plan) -> None:
    stages.dp_train.fit(params, Fitting(RUN, plan, lambda view: pytest.fail("a row was read")))


def charged(params: Params, plan: Plan) -> None:
    with spending.open_charged(params, Ledger.open(ledger_url(params)), RUN, plan):
        pytest.fail("a row was read")


@pytest.mark.parametrize("stage", [fit, charged])
def test_a_stage_of_its_own_refuses_what_a_receipt_does_not_know(
    place: Place, monkeypatch: pytest.MonkeyPatch, stage: Callable[[Params, Plan], None]
) -> None:
    """As `dvc repro` starts it, without the command's checks."""
    monkeypatch.chdir(place.workspace)
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    write_json(RECEIPT, {"asset": "notes", "ledger_head": "0" * 64})
    params = load()
    plan = Plan("dp_lm", Budget(3.0, params.delta), (PlannedQuery(QUERY.name, QUERY.event()),))
    with pytest.raises(LedgerError, match="lacks 1 of the entries that were noted elsewhere"):
        stage(params, plan)
    assert kinds(f"sqlite:///{place.ledger}") == ["register"]


def test_a_lost_ledger_is_said_to_be_lost(place: Place) -> None:
    lived(place.ledger)
    place.ledger.rename(place.home / "away.db")
    assert "was charged on another ledger" in refusal(place.call("register"))
    other = place.home / "other"
    assert "`palimpsest register --lost` goes on with this one" in refusal(init(place.home, other))
    assert not other.exists()
    done = place.call("register", "--lost")
    assert (done.exit_code, "what it spent is unknown" in done.stdout) == (0, True)
    assert "An earlier ledger of this data set is lost" in " ".join(place.call("ledger").stdout.split())
    assert place.call("register").exit_code == 0
    assert init(place.home, other, asset="others").exit_code == 0
    assert "An earlier" not in call("ledger", "--workspace", other, ledger=place.ledger).stdout


def test_on_a_new_machine_the_word_alone_marks_a_lost_ledger(place: Place, unnoted: Callable[[], None]) -> None:
    lived(place.ledger)
    place.ledger.unlink()
    unnoted()
    done = place.call("register", "--lost")
    assert (done.exit_code, "what it spent is unknown" in done.stdout) == (0, True)
    assert "An earlier ledger of this data set is lost" in " ".join(place.call("ledger").stdout.split())


def test_the_word_comes_late_and_marks_the_asset_all_the_same(place: Place) -> None:
    assert "is unknown" not in place.call("register").stdout
    assert "what it spent is unknown" in place.call("register", "--lost").stdout
    assert "what it spent is unknown" in place.call("register").stdout


def test_two_ledgers_of_one_data_set_stop_every_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is named by a shell, the other by a schedule without its variable."""
    own, other = place.ledger, place.home / "other.db"
    place.ledger = other
    assert place.call("register").exit_code == 0
    lived(own)
    for command in (*COMMANDS, ("register",), ("register", "--amend")):
        assert "was charged on another ledger" in refusal(place.call(*command))
    monkeypatch.chdir(place.workspace)
    monkeypatch.setenv(LEDGER_VARIABLE, str(other))
    params = load()
    plan = Plan("dp_lm", Budget(3.0, params.delta), (PlannedQuery(QUERY.name, QUERY.event()),))
    for stage in (fit, charged):
        with pytest.raises(LedgerError, match="was charged on another ledger"):
            stage(params, plan)
    assert kinds(f"sqlite:///{other}") == ["register"]


def test_an_amendment_that_is_refused_has_changed_nothing(place: Place) -> None:
    place.edit("privacy", "budget", epsilon=20, delta=1e-7)
    assert "is registered with other terms" in refusal(place.call("register", "--amend"))
    assert kinds(f"sqlite:///{place.ledger}") == ["register"]


def test_an_init_that_says_so_begins_anew(place: Place) -> None:
    lived(place.ledger)
    place.ledger.unlink()
    other = place.home / "other"
    options = [
        "--text", "body", "--public", place.home / "public.csv", "--rows-about", 600, "--asset", "notes", "--lost",
    ]  # fmt: skip
    done = call("init", place.home / "own.csv", *options, "--workspace", other, ledger=place.ledger)
    assert (done.exit_code, "what it spent is unknown" in done.stdout) == (0, True)


def test_a_world_that_was_removed_begins_again(place: Place) -> None:
    lived(place.ledger)
    place.ledger.unlink()
    place.edit(world="demo")
    assert "was charged" not in place.call("register").stderr


def pending(purpose: str) -> Any:
    """What `palimpsest run` is told of a model that is due."""
    return SimpleNamespace(name="dp3", purpose=purpose, plan=SimpleNamespace(feasible=True, lost=False))


def test_a_run_that_abandoned_reservations_block_says_how_they_are_given_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    for free in ("is_paid", "may_be_paid"):
        monkeypatch.setattr(planning, free, lambda *_: False)
    monkeypatch.setattr(planning, "balance_after", lambda *_, **_team: Balance((), 12.0, 9.0, 0.0, 1.0))
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    for told in (False, True):
        with pytest.raises(BudgetExceeded, match="would pass the budget") as refused:
            check_budget(open_workspace(place.workspace), [pending("release")])
        assert ("`palimpsest ledger --refund ID` gives it back" in refused.value.remedy) == told
        ledger.reserve("notes", RUN, [ASKED])


def test_a_cap_below_what_is_spent_stops_no_run_that_asks_nothing_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    Ledger.open(f"sqlite:///{place.ledger}").reserve("notes", RUN, [ASKED])
    place.edit("privacy", "budget", epsilon=0.01)
    assert place.call("register", "--amend").exit_code == 0
    check_budget(open_workspace(place.workspace), [pending("reference")])


def test_no_reservation_of_a_process_at_work_is_given_back(place: Place) -> None:
    params, ledger = load(place.workspace), Ledger.open(f"sqlite:///{place.ledger}")
    rows = [PrivateRow("some text", "a")]
    run = reading(RUN, ledger, "notes", rows)
    with metered(ledger, params.schema_of_data, run, [ASKED], lambda: rows, NoiseSource()) as session:
        key = session.reservation.charges[0].id[:8]
        assert "Another process is at this run" in refusal(place.call("ledger", "--refund", key))
        session.view.ask(QUERY)
    assert [charge.state for charge in ledger.charges("notes")] == ["committed"]


# --- hands in the tables


def _mutations(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Each row deleted, written twice and moved down; each column of each row changed."""
    for number in range(1, len(rows) + 1):
        one = f"WHERE seq = {number}"
        names = ", ".join(COLUMNS)
        copy = names.replace("seq", f"{len(rows) + 1}")
        yield f"repeat {number}", [f"INSERT INTO palimpsest_entry SELECT {copy} FROM palimpsest_entry {one}"]
        if number < len(rows):  # that the newest is missing shows against what was noted alone
            yield f"delete {number}", [f"DELETE FROM palimpsest_entry {one}"]
            moves = ((number, 999), (number + 1, number), (999, number + 1))
            yield f"move {number}", [f"UPDATE palimpsest_entry SET seq = {b} WHERE seq = {a}" for a, b in moves]
        for column in COLUMNS:
            value = "999" if column == "seq" else "'x'"
            yield f"{column} {number}", [f"UPDATE palimpsest_entry SET {column} = {value} {one}"]
        for value in ("""'{"x":1}'""", "'[1]'", "x'ff'", """'{"begun": "x", "event": {"type": "x"}}'"""):
            yield f"body {value} {number}", [f"UPDATE palimpsest_entry SET body = {value} {one}"]


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A workspace whose ledger has every kind of entry, in one file, and no head noted elsewhere."""
    home = tmp_path_factory.mktemp("whole") / "home"
    shutil.copytree(made, home)
    lived(home / "ledger.db")
    put_back(copied(home / "ledger.db", home / "kept.db"), home / "ledger.db")
    return Place(home)


def mutations(place: Place) -> list[tuple[str, list[str]]]:
    with closing(sqlite3.connect(place.home / "kept.db")) as books:
        rows = books.execute("SELECT kind FROM palimpsest_entry ORDER BY seq").fetchall()
    assert {kind for (kind,) in rows} == {"register", "reserve", "begin", "answer", "commit", "refund", "amend"}
    return list(_mutations(rows))


def read(ledger: Ledger) -> list[object]:
    """Everything that commands and stages ask of a ledger."""
    said = records.consent_word(RUN, ledger.charges("notes"))  # what ran may be charged again
    reserved = ledger.reserve("notes", RUN, [ASKED], again=(said,))
    return [ledger.asset("notes"), ledger_summary(ledger.books(), "notes"), ledger.charges("notes"), reserved]


def test_every_change_is_told(whole: Place) -> None:
    """Each by the ledger, and every fifth by a command, each command in its turn."""
    for number, (name, statements) in enumerate(mutations(whole)):
        put_back(whole.home / "kept.db", whole.ledger)
        execute(f"sqlite:///{whole.ledger}", *statements)
        ledger = Ledger.open(f"sqlite:///{whole.ledger}")
        for reads in (ledger.books, partial(read, ledger), partial(ledger.reserve, "notes", RUN, [ASKED])):
            with pytest.raises(LedgerError, match="changed by hand"):
                reads()
        if number % 5 == 0:
            command = COMMANDS[number // 5 % len(COMMANDS)]
            assert "changed by hand" in refusal(whole.call(*command)), (name, command)


def test_a_change_with_all_hashes_made_anew_is_no_traceback(whole: Place) -> None:
    """Nothing was noted elsewhere here: what still reads as a ledger is one, and the rest is refused in two parts."""
    outcomes = set()
    for number, (name, statements) in enumerate(mutations(whole)):
        if "x'ff'" in name:
            continue  # no text, and so no hash
        put_back(whole.home / "kept.db", whole.ledger)
        execute(f"sqlite:///{whole.ledger}", *statements)
        rehash(f"sqlite:///{whole.ledger}")
        try:
            read(Ledger.open(f"sqlite:///{whole.ledger}"))
        except LedgerError as error:
            outcomes.add(error.remedy != "")
            if number % 9 == 0:
                refusal(whole.call("ledger"))
        else:
            outcomes.add("read")
    assert outcomes == {True, "read"}


def test_a_receipt_that_is_no_receipt_stops_every_command(place: Place) -> None:
    write_json(place.workspace / RECEIPT, {"asset": "notes"})
    for command in COMMANDS:
        assert "names no entry of the ledger" in refusal(place.call(*command))
    assert read_json(place.workspace / RECEIPT) == {"asset": "notes"}


def test_a_ledger_in_any_workspace_is_refused(place: Place) -> None:
    other = place.home / "neighbour"
    shutil.copytree(place.workspace, other)
    place.ledger = other / "ledger.db"
    assert "inside the workspace" in refusal(place.call("register"))
    assert not place.ledger.exists()
