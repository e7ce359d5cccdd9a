"""When the next request may be sent."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Requests at even distances, and none while the server asks for a pause.

    >>> pace = Pace(requests_a_minute=30)
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
