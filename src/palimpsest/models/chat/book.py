"""The file behind a model's answers: what was answered, and every request that was sent for it. SQLite, one run's own.

All of it survives a killed process. Requests are written down before they are sent, at the most that they can use, so a
request that a killed run never heard of again stays counted.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.files import make_folder
from palimpsest.models.chat.base import Answer

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS answer (ask TEXT PRIMARY KEY, text TEXT, finish TEXT, read INTEGER, written INTEGER);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, read INTEGER, written INTEGER, state TEXT);
"""
_SENT = """
SELECT count(*), coalesce(sum(read), 0), coalesce(sum(written), 0), coalesce(sum(state = 'again'), 0),
       coalesce(sum(state = 'failed'), 0) FROM request
"""
_WAIT = 60.0  # seconds that a write waits for another process


@dataclass(frozen=True)
class TokenUse:
    """Tokens of one request.

    Attributes:
        read: of the prompt.
        written: of the answer.
    """

    read: int
    written: int


@dataclass(frozen=True)
class Sent:
    """Every request of a file, over all attempts.

    Attributes:
        requests: how many were sent.
        use: their tokens.
        retries: those that failed and were to be sent again.
        failed: those after which an ask was given up.
    """

    requests: int
    use: TokenUse
    retries: int
    failed: int


class Book:
    """Answers and requests in one SQLite file."""

    def __init__(self, path: Path | None) -> None:
        """Open or make the file, for the owner's eyes only; None keeps all in memory.

        Raises:
            DataError: the file is no such database.
        """
        if path is not None:
            make_folder(path.parent)
        try:
            self._base = sqlite3.connect(path or ":memory:", timeout=_WAIT, isolation_level=None)
            self._base.executescript(_TABLES)
        except sqlite3.Error as error:
            raise DataError(
                f"The file of kept answers {str(path)!r} cannot be used ({type(error).__name__}).",
                "Move it away: what it holds is then asked for, and paid for, again.",
            ) from error

    def find(self, ask: str) -> Answer | None:
        """The answer kept under this hash."""
        row = self._base.execute("SELECT text, finish, read, written FROM answer WHERE ask = ?", (ask,)).fetchone()
        return None if row is None else Answer(*row)

    def keep(self, ask: str, answer: Answer) -> None:
        """Keep an answer under this hash."""
        row = (ask, answer.text, answer.finish, answer.read, answer.written)
        self._base.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?)", row)

    def kept(self) -> TokenUse:
        """Tokens of all answers."""
        totals = "SELECT coalesce(sum(read), 0), coalesce(sum(written), 0) FROM answer"
        return TokenUse(*self._base.execute(totals).fetchone())

    def begin(self, worst: TokenUse) -> int:
        """Write a request down before it is sent; returns its number."""
        statement = "INSERT INTO request (read, written, state) VALUES (?, ?, 'open')"
        return int(self._base.execute(statement, (worst.read, worst.written)).lastrowid or 0)

    def end(self, number: int, use: TokenUse, state: str) -> None:
        """Write down what a request has used, and its state: answered, again or failed."""
        statement = "UPDATE request SET read = ?, written = ?, state = ? WHERE number = ?"
        self._base.execute(statement, (use.read, use.written, state, number))

    def sent(self) -> Sent:
        """Every request so far; those under way, or lost with their process, at the most that they can use."""
        requests, read, written, retries, failed = self._base.execute(_SENT).fetchone()
        return Sent(requests, TokenUse(read, written), retries, failed)
