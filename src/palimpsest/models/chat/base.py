"""What every language model that follows instructions is asked, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Ask:
    """One request. All of it is public or synthetic: nothing else may reach a language model this way.

    Attributes:
        messages: (role, words) pairs; roles are system, user and assistant.
        max_tokens: tokens that the answer may have.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: nucleus of sampling.
        number: tells apart asks that are otherwise equal, so that each gets an answer of its own.
    """

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    top_p: float
    number: int = 0


@dataclass(frozen=True)
class Answer:
    """What came back.

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


class Chat(Protocol):
    """A language model that follows instructions."""

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer for each ask, in their order; an ask that fails has an answer that says so.

        Raises:
            BackendError: the model cannot be reached at all, or the budget of tokens or money would be passed.
        """
