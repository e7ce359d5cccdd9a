import pytest

from flows.cron import schedule
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


def test_the_time_is_this_machine_s_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.cron.get_localzone_name", lambda: "Asia/Tokyo")
    own, said = schedule("0 3 * * *", None), schedule("0 3 * * *", "Europe/Berlin")
    assert own is not None and said is not None  # noqa: PT018
    assert (own.timezone, said.timezone) == ("Asia/Tokyo", "Europe/Berlin")
    assert schedule(None, None) is None
