"""Requests to language models that follow instructions, their answers, and the SQLite file of one run with both.

All of the file survives a killed process. Requests are written down before they are sent, at the most that they can
use, so a request that a killed run got no answer to stays counted.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from palimpsest.errors import BackendError, DataError
from palimpsest.files import make_folder
from palimpsest.models.chat.settings import Connection

# Tokens that a chat template may put around each message, and once around the whole (some add a system message).
_AROUND_MESSAGE, _AROUND_ALL = 16, 64
TEXT_ROLE = "text"  # of the words that a model without a chat template goes on with
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS answer (ask TEXT PRIMARY KEY, text TEXT, finish TEXT, read INTEGER, written INTEGER);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, read INTEGER, written INTEGER, state TEXT);
"""
_SENT = """
SELECT coalesce(sum(read), 0), coalesce(sum(written), 0), count(*), coalesce(sum(state = 'again'), 0),
       coalesce(sum(state = 'failed'), 0) FROM request
"""
_WAIT = 60.0  # seconds that a write waits for another process


@dataclass(frozen=True)
class Ask:
    """One request. All of it is public or synthetic, except requests of a judge to which the owner gave private rows.

    Attributes:
        messages: (role, words) pairs; roles are system, user and assistant. The one message of role text is a text to
            continue, for a model without chat.
        max_tokens: tokens that the answer may have.
        temperature: sampling temperature; 0 takes the likeliest token.
        top_p: nucleus of sampling.
        number: distinguishes asks that are otherwise equal, so that each gets its own answer.
        listed: how many of the likeliest first tokens the answer lists with their log-probabilities, as JSON pairs in
            place of its words; 0: none.
    """

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    top_p: float
    number: int = 0
    listed: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether the ask is a text to continue."""
        return self.messages[0][0] == TEXT_ROLE


@dataclass(frozen=True)
class Answer:
    """The model's reply to an ask.

    Attributes:
        text: the answer; "" where there is none.
        finish: stop, length (cut off), refused (by the model's own filter) or failed (no usable answer after every
            try).
        read: tokens of the prompt, as counted by the model's side.
        written: tokens of the answer.
    """

    text: str
    finish: Literal["stop", "length", "refused", "failed"]
    read: int = 0
    written: int = 0


Told: TypeAlias = Callable[[int, Answer], None]  # gets each answer's place and the answer as soon as it is there


class Chat(Protocol):
    """A language model that follows instructions."""

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer for each ask, in their order; an ask that fails has an answer that says so.

        Raises:
            BackendError: the model cannot be reached at all, or the budget of tokens or money would be passed.
        """


def digest(about: str, ask: Ask) -> str:
    """SHA-256 in hexadecimal of an ask and of everything else its answer depends on, such as the model's name.

    >>> ask = Ask((("user", "Hello."),), 5, 1.0, 1.0)
    >>> digest("a", ask) == digest("a", Ask((("user", "Hello."),), 5, 1, 1)), digest("a", ask) == digest("b", ask)
    (True, False)
    """
    body = {
        "about": about,
        "messages": [list(message) for message in ask.messages],
        "max_tokens": ask.max_tokens,
        "temperature": float(ask.temperature),
        "top_p": float(ask.top_p),
        "number": ask.number,
        "listed": ask.listed,
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def seed_of(seed: int, ask: Ask) -> int:
    """A seed of 31 bits for one ask, from a public one."""
    return int(digest(f"seed {seed}", ask)[:8], 16) >> 1


def most_read(ask: Ask) -> int:
    """An upper bound of a prompt's tokens for any model: a token covers at least one byte of UTF-8."""
    return _AROUND_ALL + sum(_AROUND_MESSAGE + len(words.encode()) for _, words in ask.messages)


@dataclass(frozen=True)
class TokenUse:
    """Tokens of prompts that were read, and of answers that were written."""

    read: int
    written: int

    @property
    def tokens(self) -> int:
        """How many tokens were read and written."""
        return self.read + self.written


@dataclass(frozen=True)
class Sent(TokenUse):
    """Counts of all requests of a file, over all attempts, and of the tokens that they have used.

    Attributes:
        requests: number of requests sent, each try counted.
        retries: requests that failed and were to be sent again.
        failed: requests after which an ask was given up.
    """

    requests: int
    retries: int
    failed: int


class Book:
    """Answers and requests in one SQLite file."""

    def __init__(self, path: Path | None) -> None:
        """Open or make the file, readable only by its owner; None keeps all in memory.

        Raises:
            DataError: the file is not such a database.
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
        """Write the answer to a question; an earlier one is replaced."""
        row = (ask, answer.text, answer.finish, answer.read, answer.written)
        self._base.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?)", row)

    def begin(self, worst: TokenUse) -> int:
        """Record a request before it is sent; returns its number."""
        statement = "INSERT INTO request (read, written, state) VALUES (?, ?, 'open')"
        return int(self._base.execute(statement, (worst.read, worst.written)).lastrowid or 0)

    def end(self, number: int, use: TokenUse, state: str) -> None:
        """Record the tokens that a request has used, and its state: answered, again or failed."""
        statement = "UPDATE request SET read = ?, written = ?, state = ? WHERE number = ?"
        self._base.execute(statement, (use.read, use.written, state, number))

    def sent(self) -> Sent:
        """Every request so far; those unfinished, or lost with their process, count as the most that they can use."""
        return Sent(*self._base.execute(_SENT).fetchone())


class Till:
    """The budget of tokens and money of one run: no request is sent that could pass it.

    An unfinished request counts as the most that it can use. So usage stays within the limits however many requests are
    unfinished, as long as the server writes no more than it is asked for and a prompt has no more tokens than
    `most_read` says.

    Attributes:
        sent: usage so far, over all attempts.
    """

    def __init__(self, settings: Connection, book: Book) -> None:
        """Continue from the requests in the book."""
        self._most, self._price, self._book = settings.most_tokens, settings.price, book
        self.sent = book.sent()
        self._worst: dict[int, TokenUse] = {}

    def has_room(self, worst: TokenUse) -> bool:
        """Return whether the budget has room for a request that can use at most `worst`."""
        after = TokenUse(self.sent.read + worst.read, self.sent.written + worst.written)
        paid = self._price.most is None or self._price.cost(after.read, after.written) <= self._price.most
        return paid and not self._too_many(after.tokens)

    def begin(self, worst: TokenUse) -> int:
        """Count a request, just before it is sent; returns its number."""
        number = self._book.begin(worst)
        self._worst[number] = worst
        self._count(worst.read, worst.written, requests=1)
        return number

    def end(self, number: int, use: TokenUse | None, state: str) -> None:
        """Replace a request's worst case by the tokens that it has used; None: unknown, so the worst case stays.

        Args:
            state: answered, again (it failed and is to be sent again) or failed (and is not).
        """
        worst = self._worst.pop(number)
        use = worst if use is None else use
        self._book.end(number, use, state)
        retries, failed = int(state == "again"), int(state == "failed")
        self._count(use.read - worst.read, use.written - worst.written, retries=retries, failed=failed)

    def refusal(self, worst: TokenUse) -> BackendError:
        """The error for a request that exceeds the budget."""
        if self._too_many(self.sent.tokens + worst.tokens):
            used, next_one, name = f"{self.sent.tokens:,} of {self._most:,} tokens", f"{worst.tokens:,}", "most_tokens"
        else:
            used = f"{self._price.cost(self.sent.read, self.sent.written):.4f} of {self._price.most:.4f} in money"
            next_one, name = f"{self._price.cost(worst.read, worst.written):.4f}", "price.most"
        return BackendError(
            f"The endpoint's budget is used up: {used} are spent, and the next request may need {next_one} more.",
            f"Raise {name} of the endpoint and run again: what is answered already is not asked for again.",
        )

    def _too_many(self, tokens: int) -> bool:
        return self._most is not None and tokens > self._most

    def _count(self, read: int, written: int, requests: int = 0, retries: int = 0, failed: int = 0) -> None:
        more = (read, written, requests, retries, failed)
        self.sent = Sent(*(before + now for before, now in zip(astuple(self.sent), more, strict=True)))
