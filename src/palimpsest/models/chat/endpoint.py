"""A model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, `transformers serve`, or a vendor's.

A request goes to the url that the settings name and nowhere else: no redirect is followed. Replies are read without
trust: anything in them may be missing, of another kind, or larger than anything that was asked for.

The `openai` client would save nothing here: it reads settings and headers from the environment, and trusts replies.
"""

import asyncio
import contextlib
import importlib
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal

from palimpsest.errors import BackendError, ModelError
from palimpsest.models.chat.base import Answer, Ask, Book, Sent, Till, TokenUse, Told, most_read
from palimpsest.models.chat.settings import Connection
from palimpsest.progress import counter

_NOTHING = TokenUse(0, 0)
_TURNED_AWAY = frozenset({401, 402, 403, 404})  # the key, the account or the model's name: no prompt changes them
_PASSING = frozenset({408, 409, 425, 429})
_PERHAPS_ANSWERED = frozenset({408, 502, 504, 524})  # a gateway gave up; the model behind it may have written
UNLISTED = "a reply without log-probabilities"
_REFUSALS = frozenset({"content_filter", "content_policy_violation"})
_LONGEST_WAIT = 300.0  # seconds that a server may ask to wait
_LARGEST_REPLY = 2**24  # bytes
_LONGEST_TOKEN = 64  # letters, on average over an answer
_LARGEST_COUNT = 2**53  # of tokens, and of anything else that a server numbers
_IN_A_ROW = 16  # asks that fail in a row, none answered between, until the endpoint counts as broken
_LONGEST_PAUSE = 30.0  # seconds between tries, unless the server names another time
_AGAIN = "run again: what is answered already is not asked for again."


@dataclass(frozen=True)
class Failure:
    """The reason why a try has no answer.

    Attributes:
        what: message for the user; never words of a prompt or an answer.
        again: whether another try may help.
        reached: whether the server accepted the request, so that another request may succeed.
        wait: seconds that the server asks to wait.
    """

    what: str
    again: bool
    reached: bool = True
    wait: float | None = None


@dataclass(frozen=True)
class _Reply:
    """The unprocessed reply."""

    status: int
    headers: Mapping[str, str]
    content: bytes


_Outcome = tuple[Answer | Failure, TokenUse | None]  # None: nobody knows how many tokens it has used


class _Wire:
    """Sends asks to one endpoint, each once."""

    def __init__(self, settings: Connection, key: str | None) -> None:
        """Send nothing yet; raises ModelError where the client is not installed."""
        self._httpx = _client_package()
        self._settings, self._key = settings, key
        self._limit = "max_tokens"  # what the server calls the most tokens of an answer

    def connect(self) -> Any:
        """A client; its connections belong to one event loop.

        A proxy of the environment is used where it only passes on traffic that is encrypted for the endpoint.
        """
        return self._httpx.AsyncClient(
            headers={"accept-encoding": "identity"} | ({"authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=self._settings.timeout,
            limits=self._httpx.Limits(max_connections=None),
            follow_redirects=False,
            trust_env=self._settings.url.startswith("https:"),
        )

    async def send(self, client: Any, ask: Ask, worst: TokenUse) -> _Outcome:
        """Try once; return the answer or the reason why there is none, and the tokens used."""
        limit = self._limit
        try:
            reply = await asyncio.wait_for(self._post(client, ask, limit), self._settings.timeout)
        except (TimeoutError, self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            return self._explain_lost(error)
        if reply.status not in range(200, 300):
            return self._status(reply, limit)
        answer, use = _read_reply(reply.content, worst, listed=bool(ask.listed))
        if answer is None and ask.listed and _lists_nothing(reply.content):
            return Failure(UNLISTED, again=False), use  # no other try brings what a server does not do
        return answer or Failure("a reply without an answer", again=True), use

    async def _post(self, client: Any, ask: Ask, limit: str) -> _Reply:
        """Return the reply, without content where that is larger than any answer; compressed content stays so."""
        url = self._httpx.URL(self._settings.url)
        path = f"{url.path.rstrip('/')}/{'' if ask.goes_on else 'chat/'}completions"
        async with client.stream("POST", url.copy_with(path=path), json=self._body(ask, limit)) as reply:
            content = bytearray()
            async for piece in reply.aiter_raw():
                content += piece
                if len(content) > _LARGEST_REPLY:
                    return _Reply(reply.status_code, reply.headers, b"")
        return _Reply(reply.status_code, reply.headers, bytes(content))

    def _body(self, ask: Ask, limit: str) -> dict[str, Any]:
        limits = {limit: ask.max_tokens, "temperature": ask.temperature, "top_p": ask.top_p}
        if ask.goes_on:
            listed = {"logprobs": ask.listed} if ask.listed else {}
            return {"model": self._settings.model, "prompt": ask.messages[0][1], **limits, **listed}
        messages = [{"role": role, "content": words} for role, words in ask.messages]
        top = {"logprobs": True, "top_logprobs": ask.listed} if ask.listed else {}
        return {"model": self._settings.model, "messages": messages, **limits, **top}

    def _status(self, reply: _Reply, limit: str) -> _Outcome:
        status, body = reply.status, _parse_json(reply.content)
        code = _error_code(body)
        what = f"HTTP {status}, {code}" if code else f"HTTP {status}"
        if code in _REFUSALS:
            return Answer("", "refused"), _NOTHING
        if 300 <= status < 400 or status in _TURNED_AWAY or code == "insufficient_quota":
            return Failure(what, again=False, reached=False), _NOTHING
        if _value_at(body, "error", "param") == limit == "max_tokens":
            self._limit = "max_completion_tokens"  # as newer models of one vendor will have it
            return Failure(what, again=True, wait=0.0), _NOTHING
        wait = retry_after(reply.headers, datetime.now(UTC)) or None  # a server that fails is not asked again at once
        again = (status in _PASSING or status >= 500) and (wait or 0.0) <= _LONGEST_WAIT
        return Failure(what, again, wait=wait), None if status in _PERHAPS_ANSWERED else _NOTHING

    def _explain_lost(self, error: Exception) -> _Outcome:
        http = self._httpx
        if isinstance(error, http.ConnectError | http.ConnectTimeout | http.UnsupportedProtocol | http.InvalidURL):
            return Failure("no connection", again=True, reached=False), _NOTHING
        if isinstance(error, TimeoutError | http.TimeoutException):
            return Failure(f"no answer within {self._settings.timeout:g} s", again=True, reached=False), None
        return Failure("the connection broke", again=True, reached=False), None


def _client_package() -> Any:
    try:
        return importlib.import_module("httpx")
    except ImportError as error:
        raise ModelError(
            "The client for endpoints is not installed.",
            "Install the extra palimpsest[endpoint], or let a model on this machine write or judge.",
        ) from error


def _read_reply(content: bytes, worst: TokenUse, listed: bool = False) -> tuple[Answer | None, TokenUse]:
    """Return the answer in a reply, and the tokens that it has used.

    A reply that does not state the tokens used counts as the most that it can have used. Words beyond the capacity of
    so many tokens are cut off.

    Args:
        listed: whether its text is the list of the likeliest first tokens, as JSON, in place of words.

    Returns:
        None for the answer if there is none: malformed JSON, no choices, no text, or no list.
    """
    body = _parse_json(content)
    choice = _value_at(body, "choices", 0)
    words, finish = _read_likely(choice) if listed else _value_at(choice, "message", "content"), _finish(choice)
    text = _without_surrogates(words) if isinstance(words, str) else ""
    most = _LONGEST_TOKEN * worst.written
    if len(text) > most and not listed:
        text, finish = text[:most], "length"
    use = TokenUse(
        _count(_value_at(body, "usage", "prompt_tokens")), _count(_value_at(body, "usage", "completion_tokens"))
    )
    if use.read < 1 or use.written < bool(text):
        use = worst
    if not isinstance(words, str) and (finish == "stop" or (listed and finish != "refused")):
        return None, use
    return Answer(text, finish, use.read, use.written), use


def _lists_nothing(content: bytes) -> bool:
    """Return whether a reply has words but no log-probabilities at all, as from a server that does not support them."""
    choice = _value_at(_parse_json(content), "choices", 0)
    words = _value_at(choice, "message", "content") or _value_at(choice, "text")
    return isinstance(words, str) and _value_at(choice, "logprobs") is None and _finish(choice) != "refused"


def _read_likely(choice: Any) -> str | None:
    """Pairs of a first token and its log-probability, as JSON; None where a choice lists none.

    Chats list objects, completions a mapping.
    """
    chat, plain = (
        _value_at(choice, "logprobs", "content", 0, "top_logprobs"),
        _value_at(choice, "logprobs", "top_logprobs", 0),
    )
    of_chat = [(_value_at(one, "token"), _value_at(one, "logprob")) for one in chat] if isinstance(chat, list) else []
    found = list(plain.items()) if isinstance(plain, dict) else of_chat
    pairs = [(_without_surrogates(token), float(value)) for token, value in found if _is_likely(token, value)]
    return json.dumps(pairs) if pairs else None


def _is_likely(token: Any, value: Any) -> bool:
    return isinstance(token, str) and type(value) in (int, float) and -_LARGEST_COUNT < value < _LARGEST_COUNT


def _without_surrogates(text: str) -> str:
    """Remove lone surrogates: JSON may hold half of a character, which no file can."""
    return text.encode("utf-8", "replace").decode()


def _finish(choice: Any) -> Literal["stop", "length", "refused"]:
    reason = _value_at(choice, "finish_reason")
    if reason == "content_filter" or _value_at(choice, "message", "refusal"):
        return "refused"
    return "length" if reason == "length" else "stop"


def _error_code(body: Any) -> str:
    """The short name that a server gives its error; "" where it has none. Its message may quote the prompt."""
    code = _value_at(body, "code") or _value_at(body, "error", "code") or ""
    return code if isinstance(code, str) and len(code) <= 40 and code.replace("_", "").isalnum() else ""


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that a server asks to wait: milliseconds, seconds or a date; None where it does not say.

    >>> retry_after({"retry-after": "1.5"}, datetime.now(UTC)), retry_after({"retry-after-ms": "20"}, datetime.now(UTC))
    (1.5, 0.02)
    """
    milliseconds, asked = _parse_number(headers.get("retry-after-ms")), headers.get("retry-after")
    if milliseconds is not None:
        return milliseconds / 1000.0
    seconds = _parse_number(asked)
    return _seconds_until(asked, now) if seconds is None and asked else seconds


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())


def _parse_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0.0 <= number < float("inf") else None


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _count(value: Any) -> int:
    return value if type(value) is int and value < _LARGEST_COUNT else -1


def _value_at(value: Any, *path: str | int) -> Any:
    """Return the value at the path; None where there is none."""
    for step in path:
        try:
            value = value[step]
        except (TypeError, KeyError, IndexError):
            return None
    return value


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
        till, pace = Till(settings, Book(book)), _Pace(settings.requests_a_minute)
        self._desk = _CallDesk(settings, _Wire(settings, key), till, pace, pause)

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
class _Pace:
    """Spaces requests evenly, and sends none while the server asks for a pause.

    >>> pace = _Pace(requests_a_minute=30)
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
    wire: _Wire
    till: Till
    pace: _Pace
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
