"""Writers that race for the last of a budget: how often it is overspent, and what a reservation takes.

    python -m bench.ledger > table.md

A round is a fresh data set whose budget admits three of the queries that 32 processes ask for at once. Every process
asks once in each round. Twenty rounds share a ledger, so that none grows long. SQLite writes its file durably;
PostgreSQL is a server of our own with its own settings.

Feeds docs/results/budget.md. It needs no folder.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import dp_accounting as dpa
import numpy as np
import sqlalchemy as sa

from bench import postgres
from palimpsest.errors import BudgetExceeded
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.ledger.witness import VARIABLE
from palimpsest.privacy.planned import PlannedQuery

WRITERS, ROUNDS, LEDGERS, ADMITTED = 32, 20, 16, 3
ASKED = [PlannedQuery("votes", dpa.GaussianDpEvent(3.0))]
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Race:
    """What came of it."""

    asked: int
    admitted: int
    overspent: int
    seconds: np.ndarray  # of each reservation that was asked for, refused ones among them


def cap() -> float:
    """A budget that three of the queries fit into, and four do not."""
    asset = Asset("any", 1e-5, 1.0, 1000)
    fits, passes = (asset.spent([count * order / 18 for order in asset.orders]) for count in (ADMITTED, ADMITTED + 1))
    return (fits + passes) / 2


def race(url: str, writers: int = WRITERS, rounds: int = ROUNDS) -> Race:
    """Race in a ledger that is not there yet."""
    ledger = Ledger.create(url)
    for number in range(rounds):
        ledger.register(Asset(f"round{number}", 1e-5, cap(), 1000))
    preview(ledger.asset("round0"), [], {("any", 1): ASKED * 4})  # the price is worked out once, and not by every child
    start, outcomes = FORK.Barrier(writers), FORK.SimpleQueue()
    children = [FORK.Process(target=_ask, args=(url, each, rounds, start, outcomes)) for each in range(writers)]
    for child in children:
        child.start()
    told = [outcomes.get() for _ in children]
    for child in children:
        child.join()
    return _judged(url, rounds, [admitted for admitted, _ in told], [each for _, seconds in told for each in seconds])


def _ask(url: str, writer: int, rounds: int, start: Barrier, outcomes: "multiprocessing.SimpleQueue") -> None:  # type: ignore[type-arg]
    ledger, admitted, seconds = Ledger.open(url), 0, []
    for number in range(rounds):
        start.wait()
        before = time.perf_counter()
        try:
            run = Run("fit", f"w{writer}", "release", "f", "p")
            ledger.reserve(f"round{number}", run, ASKED, invented=True)  # every race has a ledger of its own
            admitted += 1
        except BudgetExceeded:
            pass
        seconds.append(time.perf_counter() - before)
    outcomes.put((admitted, seconds))


def _judged(url: str, rounds: int, admitted: Iterable[int], seconds: list[float]) -> Race:
    """By the books, and not by what the writers believe; that both agree is asserted."""
    books = Ledger.open(url).books()
    balances = [books.balance(f"round{number}") for number in range(rounds)]
    charges = [len(books.charges(f"round{number}")) for number in range(rounds)]
    assert sum(admitted) == sum(charges)
    overspent = sum(not balance.fits or count > ADMITTED for balance, count in zip(balances, charges, strict=True))
    return Race(len(seconds), sum(charges), overspent, np.array(seconds))


@contextmanager
def places() -> Iterator[dict[str, list[str]]]:
    """Empty databases of either kind."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ[VARIABLE] = str(home / "witnesses")
        server = stack.enter_context(postgres.server())
        names = [f"ledger{number}" for number in range(LEDGERS)]
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for name in names:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        yield {
            "SQLite": [f"sqlite:///{home}/{name}.db" for name in names],
            "PostgreSQL": [server.replace("/postgres?", f"/{name}?") for name in names],
        }


def main() -> None:
    """Print one line a kind of database."""
    print("| database | writers | reservations asked | admitted | data sets overspent | median ms | 95 % below ms |")
    print("|---|---|---|---|---|---|---|")
    with places() as urls:
        for kind, own in urls.items():
            races = [race(url) for url in own]
            asked, admitted, over = (
                sum(getattr(each, name) for each in races) for name in ("asked", "admitted", "overspent")
            )
            middle, high = np.quantile(np.concatenate([each.seconds for each in races]), (0.5, 0.95)) * 1000
            print(
                f"| {kind} | {WRITERS} | {asked:,} | {admitted:,} | {over} of {ROUNDS * LEDGERS} | {middle:,.0f} | "
                f"{high:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
