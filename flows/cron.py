"""The times of a schedule, checked against what Prefect accepts before anything is started.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

from datetime import datetime
from zoneinfo import ZoneInfo

from prefect.client.schemas.schedules import CronSchedule
from prefect.schedules import Cron, Schedule
from pydantic import ValidationError
from tzlocal import get_localzone_name

from palimpsest.errors import ParamsError


def schedule(cron: str | None, timezone: str | None) -> Schedule | None:
    """Return the schedule that the two options describe; None to run only when asked.

    Args:
        cron: `minute hour day month weekday`.
        timezone: an IANA name; this machine's by default.

    Raises:
        ParamsError: the options describe no valid schedule.
    """
    if cron is None:
        if timezone is not None:
            raise ParamsError("--timezone is given without --cron.", "Give both, or --cron alone.")
        return None
    zone = timezone or _own_zone()
    try:
        CronSchedule(cron=cron, timezone=zone)
    except ValidationError as error:
        raise _refusal(str(error.errors()[0]["loc"][0]), cron, zone) from None
    return Cron(cron, timezone=zone)


def _own_zone() -> str:
    """Return the name of this machine's time zone; raise ParamsError where none tells the time of its clock."""
    zone, now = get_localzone_name(), datetime.now().astimezone()
    if not zone or now.astimezone(ZoneInfo(zone)).utcoffset() != now.utcoffset():
        raise ParamsError("The time zone of this machine's clock has no name.", "Name one with --timezone.")
    return zone


def _refusal(wrong: str, cron: str, zone: str) -> ParamsError:
    if wrong == "timezone":
        return ParamsError(
            f"--timezone is {zone!r}, which is no time zone.", "Name one as Europe/Berlin, or leave it out."
        )
    return ParamsError(
        f"--cron is {cron!r}, which is no schedule.",
        "Write minute, hour, day, month and weekday: '0 3 * * *' is three o'clock every night.",
    )
