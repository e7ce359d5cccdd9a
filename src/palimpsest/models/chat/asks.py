"""What is known of an ask before it is answered: its hash, a seed of its own, and the most tokens it can be."""

import hashlib
import json

from palimpsest.models.chat.base import Ask

# Tokens that a chat template may put around each message, and once around the whole (some add a system message).
_AROUND_MESSAGE, _AROUND_ALL = 16, 64


def digest(about: str, ask: Ask) -> str:
    """SHA-256 in hexadecimal of an ask and of what else its answer depends on, such as the model's name.

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
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def seed_of(seed: int, ask: Ask) -> int:
    """A seed of 31 bits for one ask, from a public one."""
    return int(digest(f"seed {seed}", ask)[:8], 16) >> 1


def most_read(ask: Ask) -> int:
    """An upper bound of a prompt's tokens for any model: a token covers at least one byte of UTF-8."""
    return _AROUND_ALL + sum(_AROUND_MESSAGE + len(words.encode()) for _, words in ask.messages)
