"""One request to an OpenAI-compatible endpoint, and what can become of it."""

import asyncio
import importlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from palimpsest.errors import ModelError
from palimpsest.models.chat.asks import seed_of
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.book import TokenUse
from palimpsest.models.chat.replies import error_code, read_reply, retry_after
from palimpsest.models.chat.settings import Endpoint

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

    def __init__(self, settings: Endpoint, key: str | None, seed: int | None) -> None:
        """Send nothing yet.

        Raises:
            ModelError: the client is not installed.
        """
        self._openai = _client_package()
        self._settings, self._key, self._seed = settings, key, seed
        self._limit = "max_tokens"  # what the server calls the most tokens of an answer

    def connect(self) -> Any:
        """A client; its connections belong to one event loop."""
        return self._openai.AsyncOpenAI(
            base_url=self._settings.url, api_key=self._key or _NO_KEY, timeout=self._settings.timeout, max_retries=0
        )

    async def send(self, client: Any, ask: Ask, worst: TokenUse) -> Outcome:
        """One try: the answer or why there is none, and the tokens that it has used."""
        request = client.chat.completions.with_raw_response.create(**self._body(ask))
        try:
            reply = await asyncio.wait_for(request, self._settings.timeout)
        except (TimeoutError, self._openai.APIConnectionError) as error:
            return _lost(error, self._settings.timeout)
        except self._openai.APIStatusError as error:
            return self._status(error)
        answer, use = read_reply(reply.content, worst)
        return answer or Failure("a reply without an answer", again=True), use

    def _body(self, ask: Ask) -> dict[str, Any]:
        seed = {} if self._seed is None else {"seed": seed_of(self._seed, ask)}
        return {
            "model": self._settings.model,
            "messages": [{"role": role, "content": words} for role, words in ask.messages],
            self._limit: ask.max_tokens,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            **seed,
        }

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
            "Install the extra palimpsest[endpoint], or let another kind of author write.",
        ) from error


def _lost(error: Exception, timeout: float) -> Outcome:
    causes = {type(cause).__name__ for cause in (error, error.__cause__)}
    if causes & {"ConnectError", "ConnectTimeout", "UnsupportedProtocol"}:
        return Failure("no connection", again=True, reached=False), _NOTHING
    if causes & {"TimeoutError", "APITimeoutError"}:
        return Failure(f"no answer within {timeout:g} s", again=True, reached=False), None
    return Failure("the connection broke", again=True, reached=False), None
