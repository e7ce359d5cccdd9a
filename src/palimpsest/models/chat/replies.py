"""What an OpenAI-compatible server sends back, read without trust: anything may be missing or of another kind."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from palimpsest.models.chat.base import Answer
from palimpsest.models.chat.book import TokenUse


def read_reply(content: bytes, worst: TokenUse) -> tuple[Answer | None, TokenUse]:
    """The answer in a reply, and the tokens that it has used.

    A reply that does not say how many tokens it has used counts as the most that it can have used.

    Args:
        content: the body of a reply with status 200.
        worst: the most that the request can use.

    Returns:
        None for the answer if there is none: malformed JSON, no choices, or no text.
    """
    body = _json(content)
    choice = _at(body, "choices", 0)
    words, finish = _at(choice, "message", "content"), _finish(choice)
    text = _without_surrogates(words) if isinstance(words, str) else ""
    use = TokenUse(_count(_at(body, "usage", "prompt_tokens")), _count(_at(body, "usage", "completion_tokens")))
    if use.read < 1 or use.written < bool(text):
        use = worst
    if not isinstance(words, str) and finish == "stop":
        return None, use
    return Answer(text, finish, use.read, use.written), use


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
