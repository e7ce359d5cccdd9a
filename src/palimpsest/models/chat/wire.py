"""One request to an OpenAI-compatible endpoint, and its possible outcomes.

A request goes to the url that the settings name and nowhere else: no redirect is followed. Replies are read without
trust: anything in them may be missing, of another kind, or larger than anything that was asked for.

The `openai` client would save nothing here: it reads settings and headers from the environment, and trusts replies.
"""

import asyncio
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from palimpsest.errors import ModelError
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.book import TokenUse
from palimpsest.models.chat.settings import Connection

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


class Wire:
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
