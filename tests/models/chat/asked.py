"""Settings of endpoints, and a program that asks one until it is killed."""

import sys
from pathlib import Path
from typing import Any

from palimpsest.models.chat.base import Ask, Sent
from palimpsest.models.chat.endpoint import EndpointChat
from palimpsest.models.chat.kept import KeptChat
from palimpsest.models.chat.settings import Endpoint

KEY = "sk-secret-0123456789"
PROMPTS = {
    "system": None, "random": "Write.", "vary": "paraphrase", "paraphrase": "{text}", "blanks": "{text}", "blank": "_",
    "masked": 0.5, "keywords": {}, "styles": ["plainly"],
}  # fmt: skip
LENGTH = {"typical": 10, "least": 5, "spread": 1.0, "tokens_a_word": 1.5, "cap": 50}


def endpoint(url: str, **changes: Any) -> Endpoint:
    """Settings with a few of them changed; prices are 1 for a million tokens read and 4 for a million written."""
    price = {"read": 1.0, "written": 4.0, "most": changes.pop("most", None)}
    body = {
        "kind": "endpoint", "url": url, "model": "m", "key": None, "concurrency": 4, "requests_a_minute": None,
        "timeout": 20.0, "retries": 2, "most_tokens": None, "price": price, "prompts": PROMPTS, "length": LENGTH,
        "temperature": 1.0, "top_p": 1.0, "tries": 1,
    }  # fmt: skip
    return Endpoint.model_validate(body | changes)


def cost(spent: Sent) -> float:
    """In money, by those prices."""
    return (spent.read * 1 + spent.written * 4) / 1e6


def chat(url: str, book: Path | None = None, key: str | None = KEY, **changes: Any) -> EndpointChat:
    """A chat that hardly pauses between tries."""
    return EndpointChat(endpoint(url, **changes), key, book=book, pause=0.001)


def kept(url: str, path: Path, **changes: Any) -> tuple[KeptChat, EndpointChat]:
    """A chat whose answers and requests are kept in one file, and the chat behind it."""
    inner = chat(url, path, **changes)
    return KeptChat(inner, path, "m"), inner


def ask(words: str = "Tell me.", max_tokens: int = 40, number: int = 0) -> Ask:
    """One ask."""
    return Ask((("user", words),), max_tokens, 1.0, 1.0, number)


def numbered(count: int) -> list[Ask]:
    """Asks that can be told apart: an echo of n words for number n."""
    return [ask(" ".join(["word"] * (number + 1))) for number in range(count)]


if __name__ == "__main__":
    kept(sys.argv[1], Path(sys.argv[2]), concurrency=2, timeout=600.0)[0].answer(numbered(8))
