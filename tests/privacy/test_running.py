"""One process at a time is at a run: on both databases, with real processes and real ends."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import dp_accounting as dpa
import pytest

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered
from palimpsest.records.schema import PublicSchema
from tests.reading import EVERYTHING, reading

SCHEMA = PublicSchema("tickets", "classify", "text", n_public=1000, max_length=99, label="label", labels={"a": "a"})
RUN = Run("fit", "dp3", "release", "f", "p")
QUERY = LabelHistogram(("a",), 10.0)
ASKED = [PlannedQuery(QUERY.name, QUERY.event()), PlannedQuery("votes", dpa.GaussianDpEvent(20.0))]
ROWS = [PrivateRow("text", "a")]
FORK = multiprocessing.get_context("fork")
ROUNDS = 10


def entered(url: str, run: Run = RUN, requests: list[PlannedQuery] = ASKED) -> AbstractContextManager[Session]:
    own = identified(url, run)
    return metered(Ledger.open(url), SCHEMA, own, requests, lambda: ROWS, NoiseSource(), again=EVERYTHING)


def identified(url: str, run: Run = RUN) -> Run:
    return reading(run, Ledger.open(url), "tickets", ROWS)


def states(url: str) -> list[str]:
    return [charge.state for charge in Ledger.open(url).charges("tickets")]


def free(url: str) -> bool:
    try:
        with Ledger.open(url).lock_run("tickets", identified(url).key):
            return True
    except LedgerError:
        return False


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds within some seconds: a server notices the end of a process a moment later."""
    until = time.monotonic() + 20
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def place(url: str, asset: Asset) -> str:
    Ledger.create(url).register(asset)
    return url


@contextmanager
def another(target: Callable[..., None], url: str) -> Iterator[tuple[multiprocessing.Process, Connection]]:
    """A process that does this; it is ended with the block."""
    own, its = FORK.Pipe()
    child = FORK.Process(target=target, args=(url, its))
    child.start()
    try:
        assert own.recv() == "inside"
        yield child, own
    finally:
        child.kill()
        child.join()


def _asks_when_told(url: str, pipe: Connection) -> None:
    with entered(url, requests=ASKED[:1]) as session:
        pipe.send("inside")
        pipe.recv()
        session.view.ask(QUERY)
    pipe.send("done")


def test_a_second_process_takes_nothing_from_the_first(place):
    with another(_asks_when_told, place) as (_, pipe):
        before = states(place)
        with pytest.raises(LedgerError, match="Another process is at this run"), entered(place, requests=ASKED[:1]):
            pass
        assert states(place) == before == ["reserved"]
        pipe.send("go on")
        assert pipe.recv() == "done"
    assert states(place) == ["committed"]


def test_another_run_is_not_in_the_way(place):
    run = Run("fit", "dp1", "release", "f", "p")
    with another(_asks_when_told, place), entered(place, run, ASKED[:1]) as session:
        session.view.ask(QUERY)
    assert states(place) == ["reserved", "committed"]


def test_a_killed_process_leaves_the_run_free(place):
    with another(_asks_when_told, place) as (child, _):
        assert not free(place)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert soon(lambda: free(place))
    with pytest.raises(KeyboardInterrupt), entered(place):
        raise KeyboardInterrupt
    assert set(states(place)) == {"refunded"}


def _forks_and_waits(url: str, pipe: Connection) -> None:
    with Ledger.open(url).lock_run("tickets", identified(url).key):
        sleeper = FORK.Process(target=signal.pause)
        sleeper.start()
        pipe.send("inside")
        pipe.send(sleeper.pid)
        signal.pause()


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_died(place):
    with another(_forks_and_waits, place) as (child, pipe):
        orphan = pipe.recv()
        assert not free(place)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        try:
            assert soon(lambda: free(place))
            os.kill(orphan, 0)  # it is still there
        finally:
            os.kill(orphan, signal.SIGKILL)


def _exits_the_block_in_a_fork(url: str, pipe: Connection) -> None:
    with Ledger.open(url).lock_run("tickets", identified(url).key):
        if os.fork() == 0:
            return
        os.wait()
        pipe.send("inside")
        signal.pause()


def test_a_forked_child_that_leaves_the_block_frees_nothing(place):
    with another(_exits_the_block_in_a_fork, place):
        assert not free(place)


def test_it_is_held_to_the_end_and_no_longer(place, tmp_path):
    with entered(place, requests=ASKED[:1]) as session:
        session.view.ask(QUERY)
        assert not free(place)
    assert free(place)
    with pytest.raises(ZeroDivisionError), entered(place):
        raise ZeroDivisionError
    assert free(place)
    assert list(tmp_path.glob("*.running/*")) == []


def test_the_lock_is_its_owners_alone(small, tmp_path):
    with small.lock_run("tickets", reading(RUN, small, "tickets", ROWS).key):
        (folder,) = tmp_path.glob("*.running")
        (file,) = folder.iterdir()
        assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_another_path_to_the_same_ledger_is_the_same_lock(small, tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    with small.lock_run("tickets", reading(RUN, small, "tickets", ROWS).key):
        assert not free(f"sqlite:///{tmp_path}/link.db")


def test_where_no_lock_can_be_made_nothing_is_reserved(small, sqlite_url):
    Path(sqlite_url.removeprefix("sqlite:///") + ".running").write_text("a file in the folder's place")
    with pytest.raises(LedgerError, match="beside the ledger cannot be written"), entered(sqlite_url):
        pass
    assert states(sqlite_url) == []


def _race(url: str, pipe: Connection) -> None:
    pipe.send("inside")
    while (number := pipe.recv()) is not None:
        run = Run("fit", f"dp{number}", "release", "f", "p")
        try:
            with entered(url, run, ASKED[:1]) as session:
                pipe.send("entered")
                pipe.recv()
                session.view.ask(QUERY)
            pipe.send("done")
        except LedgerError as error:
            pipe.send(error.problem)
            pipe.recv()


def test_of_two_processes_one_runs_and_one_is_told(url):
    Ledger.create(url).register(Asset("tickets", 1e-5, 40.0, 1000))
    with another(_race, url) as (_, first), another(_race, url) as (_, second):
        for number in range(ROUNDS):
            told = raced(number, first, second)
            assert sorted(told) == ["Another process is at this run: the same stage, settings and data.", "done"]
        for pipe in (first, second):
            pipe.send(None)
    assert states(url) == ["committed"] * ROUNDS


def raced(number: int, *pipes: Connection) -> list[str]:
    """Let all begin the same run at once, and none end before all have begun; what each says last."""
    for pipe in pipes:
        pipe.send(number)
    told = {pipe: pipe.recv() for pipe in pipes}
    for pipe in pipes:
        pipe.send("go on")
    return [pipe.recv() if said == "entered" else said for pipe, said in told.items()]


def test_threads_of_one_process_exclude_each_other(place):
    hold = partial(Ledger.open(place).lock_run, "tickets", identified(place).key)
    with hold():
        assert not free(place)
        with pytest.raises(LedgerError, match="Another process"), hold():
            pass
        assert not free(place)
