"""The flow as a deployment: its name, its checked schedule, and never two runs at once; and prefect.yaml of a team.

A workspace's prefect.yaml is written once for a team to edit, then applied to a Prefect server.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, StrictUndefined
from prefect import flow, get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flows import EntrypointType
from prefect.schedules import Cron, Schedule
from prefect.states import Completed, Failed, State
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError
from ruamel.yaml import YAML
from tzlocal import get_localzone_name

from flows.build import DESCRIPTION, NAME, THREADS, bring, title
from flows.summary import FAILED, REFUSED, asset_of, publish_plan, tell
from palimpsest.errors import BudgetExceeded, PalimpsestError, ParamsError
from palimpsest.files import restrict_to_owner
from palimpsest.work.run import POOLS, hold_unattended, plan_unattended
from palimpsest.workspace import GRAPH

TEAM_FILE = "prefect.yaml"
PROCESS = POOLS[0]
_PREFIX = "palimpsest-"
_EVENTS = {REFUSED: "a run was refused: budget", FAILED: "a stage failed"}


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


@dataclass(frozen=True)
class Wanted:
    """The choices that go into a new prefect.yaml."""

    pools: tuple[str, ...]  # kinds of work pools, the one with the schedule first
    targets: tuple[str, ...]  # stages to bring up to date; none for all
    cron: str | None  # `minute hour day month weekday`; None to run only when asked
    timezone: str | None  # of `cron`; this machine's by default
    image: str  # the image built from the target `worker` of the Dockerfile
    notify: str | None  # a block of notifications, as TYPE/NAME; None tells nobody
    anyway: bool = False  # charge also where noise is expected to decide over private rows


def team_text(workspace: Path, wanted: Wanted) -> str:
    """Return a prefect.yaml for a workspace. It holds no secret, because no secret goes into it.

    Raises:
        ParamsError: the schedule is not valid.
    """
    when, home = schedule(wanted.cron, wanted.timezone), Path.home() / ".palimpsest-home"
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return template.from_string(files("flows").joinpath(f"{TEAM_FILE}.j2").read_text(encoding="utf-8")).render(
        asset=asset_of(workspace), name=workspace.resolve().name, workspace=str(workspace.resolve()), home=str(home),
        pools=wanted.pools, targets=wanted.targets, cron=wanted.cron, timezone=when and when.timezone,
        image=wanted.image, user=f"{os.getuid()}:{os.getgid()}", notify=wanted.notify, events=_EVENTS.items(),
        anyway=wanted.anyway,
    )  # fmt: skip


def apply_team(workspace: Path) -> list[str]:
    """Make the pools, limits, deployments and automations of a workspace's prefect.yaml; return what was made.

    Work pools that are there keep their job template where a team changed it in the interface: only new ones get ours.

    Raises:
        ParamsError: prefect.yaml cannot be used, names a block that is not there, or a deployment of another workspace.
    """
    body = YAML(typ="safe", pure=True).load((workspace / TEAM_FILE).read_text(encoding="utf-8"))
    for one in body["deployments"]:
        require_own(workspace, one["name"])
    with get_client(sync_client=True) as client:
        pools = [_pool(client, name) for name in dict.fromkeys(one["work_pool"]["name"] for one in body["deployments"])]
        limits = [_limit(client, tag, most) for tag, most in body["limits"].items()]
        _deploy(workspace)
        told = _automations(client, body["automations"], body["notify"])
    return [*pools, *limits, *(f"deployment {one['name']}" for one in body["deployments"]), *told]


def job_template(pool: str) -> dict[str, Any]:
    """Return the job template for this kind of work pool: what a run in it is, and which variables it has."""
    if pool == PROCESS:
        return ProcessWorker.get_default_base_job_template()
    template: dict[str, Any] = YAML(typ="safe", pure=True).load(
        files("flows").joinpath("pools", f"{pool}.yaml").read_text(encoding="utf-8")
    )
    return template


def _pool(client: SyncPrefectClient, name: str) -> str:
    kind = name.removeprefix(_PREFIX)
    if kind in POOLS:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=name, type=kind, base_job_template=job_template(kind)))
    return f"work pool {name}"


def _limit(client: SyncPrefectClient, tag: str, most: int) -> str:
    client.upsert_global_concurrency_limit_by_name(f"tag:{tag}", most)
    return f"limit {tag} {most}"


def _deploy(workspace: Path) -> None:
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", TEAM_FILE]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ParamsError(
            f"{TEAM_FILE} cannot be deployed: {_last_line(done.stdout + done.stderr)}", "Correct it there."
        )


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["Prefect says nothing."])[-1].strip()


def _automations(client: SyncPrefectClient, written: list[Mapping[str, Any]], notify: str | None) -> list[str]:
    if notify is None:
        return []
    block = _block(client, notify)
    return [_automation(client, one, block) for one in written]


def _block(client: SyncPrefectClient, notify: str) -> str:
    kind, _, name = notify.partition("/")
    try:
        return str(client.read_block_document_by_name(name, kind).id)
    except ObjectNotFound:
        raise ParamsError(
            f"notify is {notify!r} in {TEAM_FILE}: the server has no such block.",
            "Make it on the page 'Blocks', or name another as TYPE/NAME.",
        ) from None


def _automation(client: SyncPrefectClient, written: Mapping[str, Any], block: str) -> str:
    actions = [{"block_document_id": block, **action} for action in written["actions"]]
    try:
        wanted = AutomationCore.model_validate({**written, "actions": actions})
    except ValidationError as error:
        raise ParamsError(
            f"An automation of {TEAM_FILE} is not valid: {error.errors()[0]['msg']}.", "Correct it."
        ) from None
    known = client.read_automations_by_name(wanted.name)
    if known:
        client.update_automation(known[0].id, wanted)
    else:
        client.create_automation(wanted)
    return f"automation {wanted.name}"
