"""A model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, `transformers serve`, or a vendor's."""

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.errors import BackendError
from palimpsest.models.chat.base import Answer, Ask, Told, most_read
from palimpsest.models.chat.book import Book, Sent, Till, TokenUse
from palimpsest.models.chat.settings import Connection
from palimpsest.models.chat.wire import UNLISTED, Failure, Wire
from palimpsest.progress import counter

_IN_A_ROW = 16  # asks that fail in a row, none answered between, until the endpoint counts as broken
_LONGEST_PAUSE = 30.0  # seconds between tries, unless the server names another time
_AGAIN = "run again: what is answered already is not asked for again."


class EndpointChat:
    """Asks an endpoint, several requests at once, within a rate and a budget.

    The budget holds over all attempts that share a book, killed ones too: a request is written down before it is sent,
    and only sent where the amount spent plus the most that it and all other unfinished requests can use is within the
    budget. A request that is lost, or whose reply does not count tokens, counts as the most that it can have used: a
    token for each byte of the prompt, some for the chat template, and `max_tokens`. One that the server turns away
    costs nothing.
    """

    def __init__(self, settings: Connection, key: str | None, *, book: Path | None = None, pause: float = 0.5) -> None:
        """Send nothing yet.

        Args:
            key: the endpoint's; None where it needs none.
            book: file that counts the spending over all attempts; None: only this attempt is counted.
            pause: seconds before the second try; doubled before each further one.

        Raises:
            ModelError: the client is not installed.
            DataError: the book cannot be used.
        """
        till, pace = Till(settings, Book(book)), Pace(settings.requests_a_minute)
        self._desk = _CallDesk(settings, Wire(settings, key), till, pace, pause)

    @property
    def spent(self) -> Sent:
        """The usage over all attempts that share the book."""
        return self._desk.till.sent

    def answer(self, asks: Sequence[Ask], told: Told | None = None) -> list[Answer]:
        """As `Chat.answer`.

        Raises:
            BackendError: the endpoint cannot be reached, turns every request away, fails many in a row, or the next
                request could pass the budget. What was answered until then has been told.
        """
        return asyncio.run(_Call(self._desk, asks, told).run()) if asks else []


@dataclass
class Pace:
    """Spaces requests evenly, and sends none while the server asks for a pause.

    >>> pace = Pace(requests_a_minute=30)
    >>> pace.take(now=100.0), pace.take(now=100.0), pace.take(now=101.0)
    (0.0, 2.0, 3.0)
    >>> pace.hold(now=110.0, seconds=7.0)
    >>> pace.take(now=111.0)
    6.0

    Attributes:
        requests_a_minute: the rate limit; None: none.
        free: the time at which the next request may go, in seconds.
    """

    requests_a_minute: float | None
    free: float = 0.0

    def take(self, now: float) -> float:
        """Take the next place; returns the seconds until it."""
        place = max(now, self.free)
        self.free = place + (60.0 / self.requests_a_minute if self.requests_a_minute else 0.0)
        return place - now

    def hold(self, now: float, seconds: float) -> None:
        """Let nothing go for so long."""
        self.free = max(self.free, now + seconds)


@dataclass
class _CallDesk:
    """The state shared by all calls of one chat; `failed` asks have failed in a row."""

    settings: Connection
    wire: Wire
    till: Till
    pace: Pace
    pause: float
    failed: int = 0


class _Call:
    """One call's asks, on one event loop."""

    def __init__(self, desk: _CallDesk, asks: Sequence[Ask], told: Told | None) -> None:
        self._desk, self._asks, self._told = desk, asks, told
        self._answers: dict[int, Answer] = {}
        self._places = iter(range(len(asks)))
        self._reached = False  # whether the server has taken on any request
        self._under_way = 0  # requests that are being answered
        self._ended = asyncio.Event()  # one of them has ended
        self._stopped = asyncio.Event()  # no more requests are sent
        self._error: BackendError | None = None
        self._show = counter(name="ask", total=len(asks), private=True)

    async def run(self) -> list[Answer]:
        """Every answer in the asks' order, or the first error once the unfinished requests have ended."""
        async with self._desk.wire.connect() as client:
            workers = min(self._desk.settings.concurrency, len(self._asks))
            await asyncio.gather(*(self._work(client) for _ in range(workers)))
        if self._error is not None:
            raise self._error
        return [self._answers[place] for place in range(len(self._asks))]

    async def _work(self, client: Any) -> None:
        for place in self._places:
            answer = await self._answer(client, self._asks[place])
            if answer is None:
                return
            self._answers[place] = answer
            self._show(len(self._answers))
            if self._told is not None:
                self._told(place, answer)

    async def _answer(self, client: Any, ask: Ask) -> Answer | None:
        """The answer after as many tries as it takes; None once the call has stopped."""
        worst, last = TokenUse(most_read(ask), ask.max_tokens), self._desk.settings.retries
        for turn in range(last + 1):
            if not await self._may_send(worst):
                return None
            outcome = await self._try(client, ask, worst, more=turn < last)
            if isinstance(outcome, Answer):
                self._desk.failed = 0
                return outcome
            if turn == last or not outcome.again:
                return self._give_up(outcome)
            await self._pause(outcome, turn)
        return None

    async def _may_send(self, worst: TokenUse) -> bool:
        """Wait for a place in the rate and for room in the budget; False once the call has stopped."""
        await self._sleep(self._desk.pace.take(time.monotonic()))
        while not self._stopped.is_set() and not self._desk.till.has_room(worst):
            if not self._under_way:
                self._stop(self._desk.till.refusal(worst))
            else:
                self._ended.clear()
                await self._ended.wait()  # it may use less than it could
        return not self._stopped.is_set()

    async def _try(self, client: Any, ask: Ask, worst: TokenUse, more: bool) -> Answer | Failure:
        """Send the ask once; `more` tells whether it may be sent again."""
        number = self._desk.till.begin(worst)
        self._under_way += 1
        outcome, use = await self._desk.wire.send(client, ask, worst)
        self._under_way -= 1
        if isinstance(outcome, Answer):
            state, self._reached = "answered", True
        else:
            state, self._reached = "again" if outcome.again and more else "failed", self._reached or outcome.reached
        self._desk.till.end(number, use, state)
        self._ended.set()
        return outcome

    async def _pause(self, failure: Failure, turn: int) -> None:
        if failure.wait:
            self._desk.pace.hold(time.monotonic(), failure.wait)  # it is meant for every request
        growing = min(self._desk.pause * 2.0**turn, _LONGEST_PAUSE) * random.uniform(0.75, 1.0)
        await self._sleep(growing if failure.wait is None else failure.wait)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer than the call goes on."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), seconds)

    def _give_up(self, failure: Failure) -> Answer:
        """Return the answer of an ask that has failed; stop the call where the others have no chance, either."""
        self._desk.failed += 1
        if failure.what == UNLISTED:
            self._stop(_unlisted_error(self._desk.settings))
        in_vain = not self._reached and len(self._answers) + 1 == len(self._asks)
        if in_vain or self._desk.failed >= max(_IN_A_ROW, 2 * self._desk.settings.concurrency):
            self._stop(_broken_error(self._desk.settings, failure, self._desk.failed))
        return Answer("", "failed")

    def _stop(self, error: BackendError) -> None:
        self._error = self._error or error
        self._stopped.set()
        self._ended.set()


def _unlisted_error(settings: Connection) -> BackendError:
    return BackendError(
        f"The endpoint {_address(settings)!r} answers without log-probabilities, by which a judge chooses.",
        "Name a server that lists them, as vLLM and llama.cpp do, or a judge on this machine. No further row is sent.",
    )


def _address(settings: Connection) -> str:
    """Return the endpoint's url without parts that may be secret."""
    return re.sub(r"(?<=//).*@|[?#].*", "", settings.url)


def _broken_error(settings: Connection, failure: Failure, failed: int) -> BackendError:
    url = _address(settings)
    if failure.reached:
        return BackendError(
            f"The endpoint {url!r} failed {failed} requests in a row; the last: {failure.what}.",
            f"Read its log; where it is overrun, lower concurrency or set requests_a_minute; then {_AGAIN}",
        )
    return BackendError(
        f"The endpoint {url!r} could not be used for the model {settings.model!r}: {failure.what}.",
        f"Check its url, that it runs, the model's name, the key and the timeout; then {_AGAIN}",
    )
