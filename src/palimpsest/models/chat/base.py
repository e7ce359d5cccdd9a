"""Requests to language models that follow instructions, and their answers."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

# Tokens that a chat template may put around each message, and once around the whole (some add a system message).
_AROUND_MESSAGE, _AROUND_ALL = 16, 64
TEXT_ROLE = "text"  # of the words that a model without a chat template goes on with


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
