"""One request to an OpenAI-compatible endpoint, and what can become of it.

Replies are read without trust: anything in them may be missing or of another kind.
"""

import asyncio
import importlib
import json
import math
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
_NO_KEY = "none"  # without one the client would send OPENAI_API_KEY, whosever it is
_TURNED_AWAY = frozenset({401, 402, 403, 404})  # the key, the account or the model's name: no prompt changes them
_PASSING = frozenset({408, 409, 425, 429})
_PERHAPS_ANSWERED = frozenset({408, 502, 504, 524})  # a gateway gave up; the model behind it may have written
_REFUSALS = frozenset({"content_filter", "content_policy_violation"})
_LONGEST_WAIT = 300.0  # seconds that a server may ask to wait


@dataclass(frozen=True)
class Failure:
    """Why a try has no answer.

    Attributes:
        what: for the user; never words of a prompt or an answer.
        again: whether another try may help.
        reached: whether the server took the request on, and another request may fare better.
        wait: seconds that the server asks to wait.
    """

    what: str
    again: bool
    reached: bool = True
    wait: float | None = None


Outcome = tuple[Answer | Failure, TokenUse | None]  # None: nobody knows how many tokens it has used


class Wire:
    """Sends asks to one endpoint, each once."""

    def __init__(self, settings: Connection, key: str | None) -> None:
        """Raises ModelError where the client is not installed; nothing is sent yet."""
        self._openai = _client_package()
        self._settings, self._key = settings, key
        self._limit = "max_tokens"  # what the server calls the most tokens of an answer

    def connect(self) -> Any:
        """A client; its connections belong to one event loop."""
        return self._openai.AsyncOpenAI(
            base_url=self._settings.url, api_key=self._key or _NO_KEY, timeout=self._settings.timeout, max_retries=0
        )

    async def send(self, client: Any, ask: Ask, worst: TokenUse) -> Outcome:
        """One try: the answer or why there is none, and the tokens that it has used."""
        asked = client.completions if ask.goes_on else client.chat.completions
        request = asked.with_raw_response.create(**self._body(ask))
        try:
            reply = await asyncio.wait_for(request, self._settings.timeout)
        except (TimeoutError, self._openai.APIConnectionError) as error:
            return _lost(error, self._settings.timeout)
        except self._openai.APIStatusError as error:
            return self._status(error)
        answer, use = read_reply(reply.content, worst, listed=bool(ask.listed))
        missing = "log-probabilities" if ask.listed else "an answer"
        return answer or Failure(f"a reply without {missing}", again=True), use

    def _body(self, ask: Ask) -> dict[str, Any]:
        limits = {self._limit: ask.max_tokens, "temperature": ask.temperature, "top_p": ask.top_p}
        if ask.goes_on:
            listed = {"logprobs": ask.listed} if ask.listed else {}
            return {"model": self._settings.model, "prompt": ask.messages[0][1], **limits, **listed}
        messages = [{"role": role, "content": words} for role, words in ask.messages]
        top = {"logprobs": True, "top_logprobs": ask.listed} if ask.listed else {}
        return {"model": self._settings.model, "messages": messages, **limits, **top}

    def _status(self, error: Any) -> Outcome:
        status, code = error.status_code, error_code(error.body)
        what = f"HTTP {status}, {code}" if code else f"HTTP {status}"
        if code in _REFUSALS:
            return Answer("", "refused"), _NOTHING
        if status in _TURNED_AWAY or code == "insufficient_quota":
            return Failure(what, again=False, reached=False), _NOTHING
        if error.param == "max_tokens" and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"  # as newer models of one vendor will have it
            return Failure(what, again=True, wait=0.0), _NOTHING
        wait = retry_after(error.response.headers, datetime.now(UTC))
        again = (status in _PASSING or status >= 500) and (wait or 0.0) <= _LONGEST_WAIT
        return Failure(what, again, wait=wait), None if status in _PERHAPS_ANSWERED else _NOTHING


def _client_package() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise ModelError(
            "The client for endpoints is not installed.",
            "Install the extra palimpsest[endpoint], or let a model on this machine write or judge.",
        ) from error


def _lost(error: Exception, timeout: float) -> Outcome:
    causes = {type(cause).__name__ for cause in (error, error.__cause__)}
    if causes & {"ConnectError", "ConnectTimeout", "UnsupportedProtocol"}:
        return Failure("no connection", again=True, reached=False), _NOTHING
    if causes & {"TimeoutError", "APITimeoutError"}:
        return Failure(f"no answer within {timeout:g} s", again=True, reached=False), None
    return Failure("the connection broke", again=True, reached=False), None


def read_reply(content: bytes, worst: TokenUse, listed: bool = False) -> tuple[Answer | None, TokenUse]:
    """The answer in a reply, and the tokens that it has used.

    A reply that does not say how many tokens it has used counts as the most that it can have used.

    Args:
        listed: whether its text is the list of the likeliest first tokens, as JSON, in place of words.

    Returns:
        None for the answer if there is none: malformed JSON, no choices, no text, or no list.
    """
    body = _json(content)
    choice = _at(body, "choices", 0)
    words, finish = _likely(choice) if listed else _at(choice, "message", "content"), _finish(choice)
    text = _without_surrogates(words) if isinstance(words, str) else ""
    use = TokenUse(_count(_at(body, "usage", "prompt_tokens")), _count(_at(body, "usage", "completion_tokens")))
    if use.read < 1 or use.written < bool(text):
        use = worst
    if not isinstance(words, str) and (finish == "stop" or (listed and finish != "refused")):
        return None, use
    return Answer(text, finish, use.read, use.written), use


def _likely(choice: Any) -> str | None:
    """Pairs of a first token and its log-probability, as JSON; None where a choice lists none.

    Chats list objects, completions a mapping.
    """
    chat, plain = _at(choice, "logprobs", "content", 0, "top_logprobs"), _at(choice, "logprobs", "top_logprobs", 0)
    of_chat = [(_at(one, "token"), _at(one, "logprob")) for one in chat] if isinstance(chat, list) else []
    found = list(plain.items()) if isinstance(plain, dict) else of_chat
    pairs = [(_without_surrogates(token), float(value)) for token, value in found if _is_likely(token, value)]
    return json.dumps(pairs) if pairs else None


def _is_likely(token: Any, value: Any) -> bool:
    return isinstance(token, str) and isinstance(value, int | float) and math.isfinite(value)


def _without_surrogates(text: str) -> str:
    """JSON may hold half of a character, which no file can."""
    return text.encode("utf-8", "replace").decode()


def _finish(choice: Any) -> Literal["stop", "length", "refused"]:
    reason = _at(choice, "finish_reason")
    if reason == "content_filter" or _at(choice, "message", "refusal"):
        return "refused"
    return "length" if reason == "length" else "stop"


def error_code(body: Any) -> str:
    """The short name that a server gives its error; "" where it has none. Its message may quote the prompt."""
    code = _at(body, "code") or _at(body, "error", "code") or ""
    return code if isinstance(code, str) and len(code) <= 40 and code.replace("_", "").isalnum() else ""


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that a server asks to wait: milliseconds, seconds or a date; None where it does not say.

    >>> retry_after({"retry-after": "1.5"}, datetime.now(UTC)), retry_after({"retry-after-ms": "20"}, datetime.now(UTC))
    (1.5, 0.02)
    """
    milliseconds, asked = _number(headers.get("retry-after-ms")), headers.get("retry-after")
    if milliseconds is not None:
        return milliseconds / 1000.0
    seconds = _number(asked)
    return _until(asked, now) if seconds is None and asked else seconds


def _until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0.0 <= number < float("inf") else None


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _count(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _at(value: Any, *path: str | int) -> Any:
    """What lies at the path; None where nothing does."""
    for step in path:
        try:
            value = value[step]
        except (TypeError, KeyError, IndexError):
            return None
    return value
