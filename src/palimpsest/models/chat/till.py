"""The budget of tokens and money of one run: no request is sent that could pass it."""

from dataclasses import dataclass, replace

from palimpsest.errors import BackendError
from palimpsest.models.chat.book import Book, TokenUse
from palimpsest.models.chat.settings import Price


@dataclass(frozen=True)
class Spent:
    """What a run has used over all its attempts.

    Attributes:
        requests: sent, each try counted.
        read: tokens of prompts.
        written: tokens of answers.
        cost: by the settings' price.
        retries: requests that failed and were to be sent again.
        failed: asks that were given up.
    """

    requests: int
    read: int
    written: int
    cost: float
    retries: int
    failed: int


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    >>> limits = Limits(most_tokens=None, price=Price(read=1.0, written=4.0, most=6.0))
    >>> limits.cost(Use(read=1_000_000, written=500_000)), limits.allow(Use(2_000_000, 1_000_001))
    (3.0, False)
    """

    most_tokens: int | None
    price: Price

    def cost(self, use: TokenUse) -> float:
        """The price of these tokens."""
        return (use.read * self.price.read + use.written * self.price.written) / 1e6

    def allow(self, use: TokenUse) -> bool:
        """Whether so much is within both limits."""
        tokens = self.most_tokens is None or use.read + use.written <= self.most_tokens
        return tokens and (self.price.most is None or self.cost(use) <= self.price.most)


class Till:
    """Counts what is used. A request under way counts as the most that it can use, until it has ended.

    So what is used stays within the limits however many requests are under way, as long as the server writes no more
    than it is asked for and a prompt has no more tokens than `most_read` says.
    """

    def __init__(self, limits: Limits, book: Book) -> None:
        """Go on from what the book says was sent."""
        self._limits, self._book = limits, book
        self._sent = book.sent()
        self._worst: dict[int, TokenUse] = {}

    def has_room(self, worst: TokenUse) -> bool:
        """Whether a request may be sent that can use so much."""
        return self._limits.allow(_plus(self._sent.use, worst))

    def begin(self, worst: TokenUse) -> int:
        """Count a request, just before it is sent; returns its number."""
        number = self._book.begin(worst)
        self._worst[number] = worst
        self._sent = replace(self._sent, requests=self._sent.requests + 1, use=_plus(self._sent.use, worst))
        return number

    def end(self, number: int, use: TokenUse | None, state: str) -> None:
        """Count what a request has used instead; None: what it can use at most, since nobody knows.

        Args:
            number: the request's.
            use: its tokens.
            state: answered, again (it failed and is to be sent again) or failed (and is not).
        """
        worst = self._worst.pop(number)
        use = worst if use is None else use
        self._book.end(number, use, state)
        self._sent = replace(
            self._sent,
            use=TokenUse(
                self._sent.use.read - worst.read + use.read, self._sent.use.written - worst.written + use.written
            ),
            retries=self._sent.retries + (state == "again"),
            failed=self._sent.failed + (state == "failed"),
        )

    @property
    def spent(self) -> Spent:
        """What is used so far."""
        sent = self._sent
        cost = self._limits.cost(sent.use)
        return Spent(sent.requests, sent.use.read, sent.use.written, cost, sent.retries, sent.failed)

    def refusal(self, worst: TokenUse) -> BackendError:
        """The error for a request that there is no room for."""
        use, most = self._sent.use, self._limits.most_tokens
        if most is not None and use.read + use.written + worst.read + worst.written > most:
            used, next_one = f"{use.read + use.written:,} of {most:,} tokens", f"{worst.read + worst.written:,}"
            name = "most_tokens"
        else:
            used = f"{self._limits.cost(use):.4f} of {self._limits.price.most:.4f} in money"
            next_one, name = f"{self._limits.cost(worst):.4f}", "price.most"
        return BackendError(
            f"The endpoint's budget is used up: {used} are spent, and the next request may need {next_one} more.",
            f"Raise {name} of the author and run again: what is answered already is not asked for again.",
        )


def _plus(one: TokenUse, other: TokenUse) -> TokenUse:
    return TokenUse(one.read + other.read, one.written + other.written)
