"""The flow as a deployment: its name, its checked schedule, and never two runs at once."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.flows import EntrypointType
from prefect.schedules import Cron, Schedule
from prefect.states import Completed, Failed, State
from pydantic import ValidationError
from tzlocal import get_localzone_name

from flows.build import DESCRIPTION, NAME, THREADS, bring, title
from flows.live import REFUSED, tell
from flows.summary import publish_plan
from palimpsest.errors import BudgetExceeded, PalimpsestError, ParamsError
from palimpsest.files import restrict_to_owner
from palimpsest.work.run import hold_unattended, plan_unattended
from palimpsest.workspace import GRAPH


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


def require_own(workspace: Path, name: str) -> None:
    """Refuse to replace the deployment of another workspace of this machine, whose schedule would end silently.

    Raises:
        ParamsError: the server's deployment of this name runs another workspace.
    """
    try:
        with get_client(sync_client=True) as client:
            known = client.read_deployment_by_name(f"{NAME}/{name}").parameters.get("workspace")
    except ObjectNotFound:
        return
    if known and Path(known) != workspace.resolve() and (Path(known) / GRAPH).is_file():
        raise ParamsError(
            f"The server's deployment {name!r} runs the workspace {known}.",
            "Give this workspace's folder, or its deployment in prefect.yaml, another name; or delete that one there.",
        )


@flow(
    name=NAME, description=DESCRIPTION, flow_run_name=title, task_runner=THREADS, persist_result=False, retries=0
)  # fmt: skip
def scheduled(
    workspace: Path,
    targets: list[str] | None = None,
    workers: int | None = None,
    overrides: dict[str, Any] | None = None,
    dry_run: bool = False,
    anyway: bool = False,
) -> State[Any]:
    """A run that nobody watches: as `build`, after the checks of `palimpsest run`, alone in the workspace.

    Args:
        workspace: the folder with params.yaml.
        targets: stage names or matrix groups; all by default.
        workers: stages that may run at once.
        overrides: keys with dots and their values, written into params.yaml: {"variants.select3.epsilon": 2}.
        dry_run: only plan: what would run and cost. Nothing is charged, and params.yaml stays as it is.
        anyway: charge also where noise is expected to decide over private rows.

    Returns:
        As `build`; also Failed where a check fails, with what is wrong and what to do.
    """
    try:
        with restrict_to_owner():
            if dry_run:
                return Completed(
                    name="Planned", message=publish_plan(plan_unattended(workspace, targets or (), overrides or {}))
                )
            with hold_unattended(workspace, targets or (), overrides or {}, anyway=anyway) as run:
                for told in (*run.flags, *filter(None, [run.held_back])):
                    get_run_logger().warning("%s", told)
                return bring(workspace, run.targets, workers, [run.lock])
    except PalimpsestError as error:
        if isinstance(error, BudgetExceeded):
            tell(REFUSED, workspace, error.problem)
        return Failed(message=error.lines)


def serve(
    workspace: Path,
    cron: str | None = None,
    workers: int | None = None,
    targets: Sequence[str] = (),
    timezone: str | None = None,
    anyway: bool = False,
) -> None:
    """Wait for runs of this workspace and start each in a process of its own, until Ctrl-C.

    Args:
        workspace: the folder with params.yaml; its name is the deployment's.
        cron: when to run by itself, as `minute hour day month weekday`; only when asked, by default.
        workers: stages that may run at once; by default two, or one for every four CPU cores.
        targets: stages to bring up to date; all by default.
        timezone: of `cron`; this machine's by default.
        anyway: charge also where noise is expected to decide over private rows.

    Raises:
        ParamsError: the schedule is not valid, or the server has the name for another workspace.
    """
    workspace = workspace.resolve()
    require_own(workspace, workspace.name)
    with restrict_to_owner():
        scheduled.serve(
            name=workspace.name,
            schedule=schedule(cron, timezone),
            parameters={"workspace": str(workspace), "targets": [*targets], "workers": workers, "anyway": anyway},
            # One run at a time: two would ask the same devices of two queues that do not know each other. A limit of
            # the server's would end a run, and what it charged, where the server is away for some minutes.
            limit=1,
            entrypoint_type=EntrypointType.MODULE_PATH,
            print_starting_message=False,  # it names Prefect's own commands
        )
