import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from zoneinfo import ZoneInfoNotFoundError

import pytest
from tzlocal import reload_localzone

from flows.serve import schedule
from palimpsest.errors import ParamsError


@pytest.mark.parametrize(
    ("cron", "timezone", "problem"),
    [
        ("0 3 * * xx", None, "--cron is '0 3 \\* \\* xx', which is no schedule"),
        ("every night", None, "--cron is 'every night', which is no schedule"),
        ("0 3 * * *", "Mars", "--timezone is 'Mars', which is no time zone"),
        (None, "UTC", "--timezone is given without --cron"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(cron: str | None, timezone: str | None, problem: str) -> None:
    with pytest.raises(ParamsError, match=problem):
        schedule(cron, timezone)


@pytest.fixture
def set_clock() -> Iterator[Callable[[str], None]]:
    """Have this machine's clock tell the time of another zone."""

    def tell(zone: str | None) -> None:
        if zone is not None:
            patch.setenv("TZ", zone)
        time.tzset()
        with suppress(ZoneInfoNotFoundError):  # tzlocal keeps the name that it found first
            reload_localzone()

    with pytest.MonkeyPatch.context() as patch:
        yield tell
    tell(None)


def test_the_time_is_this_machine_s_unless_it_is_said(set_clock: Callable[[str], None]) -> None:
    set_clock("Asia/Tokyo")
    own, said = schedule("0 3 * * *", None), schedule("0 3 * * *", "Europe/Berlin")
    assert own is not None and said is not None  # noqa: PT018
    assert (own.timezone, said.timezone) == ("Asia/Tokyo", "Europe/Berlin")
    assert schedule(None, None) is None


@pytest.mark.parametrize("zone", ["CET-1CEST", "UTC-5:30"])
def test_a_clock_whose_zone_has_no_name_is_given_one(set_clock: Callable[[str], None], zone: str) -> None:
    set_clock(zone)
    with pytest.raises(ParamsError, match="has no name"):
        schedule("0 3 * * *", None)
    assert schedule("0 3 * * *", "Europe/Berlin") is not None
