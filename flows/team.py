"""prefect.yaml of a workspace: written once for a team to edit, then applied to a Prefect server.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError
from ruamel.yaml import YAML

from flows.live import FAILED, REFUSED, asset_of
from flows.serve import require_own, schedule
from palimpsest.errors import ParamsError
from palimpsest.work.run import POOLS

FILE = "prefect.yaml"
PROCESS = POOLS[0]
_PREFIX = "palimpsest-"
_EVENTS = {REFUSED: "a run was refused: budget", FAILED: "a stage failed"}


@dataclass(frozen=True)
class Wanted:
    """The choices that go into a new prefect.yaml.

    Attributes:
        pools: kinds of work pools, the one with the schedule first.
        targets: stages to bring up to date; none for all.
        cron: `minute hour day month weekday`; None to run only when asked.
        timezone: of `cron`; this machine's by default.
        image: the image built from the target `worker` of the Dockerfile.
        notify: a block of notifications, as TYPE/NAME; None tells nobody.
        anyway: charge also where noise is expected to decide over private rows.
    """

    pools: tuple[str, ...]
    targets: tuple[str, ...]
    cron: str | None
    timezone: str | None
    image: str
    notify: str | None
    anyway: bool = False


def text(workspace: Path, wanted: Wanted) -> str:
    """Return a prefect.yaml for a workspace. It holds no secret, because no secret goes into it.

    Raises:
        ParamsError: the schedule is not valid.
    """
    when, home = schedule(wanted.cron, wanted.timezone), Path.home() / ".palimpsest-home"
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return template.from_string(files("flows").joinpath(f"{FILE}.j2").read_text(encoding="utf-8")).render(
        asset=asset_of(workspace), name=workspace.resolve().name, workspace=str(workspace.resolve()), home=str(home),
        pools=wanted.pools, targets=wanted.targets, cron=wanted.cron, timezone=when and when.timezone,
        image=wanted.image, user=f"{os.getuid()}:{os.getgid()}", notify=wanted.notify, events=_EVENTS.items(),
        anyway=wanted.anyway,
    )  # fmt: skip


def apply(workspace: Path) -> list[str]:
    """Make the pools, limits, deployments and automations of a workspace's prefect.yaml; return what was made.

    Work pools that are there keep their job template where a team changed it in the interface: only new ones get ours.

    Raises:
        ParamsError: prefect.yaml cannot be used, names a block that is not there, or a deployment of another workspace.
    """
    body = YAML(typ="safe", pure=True).load((workspace / FILE).read_text(encoding="utf-8"))
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
    command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", FILE]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ParamsError(f"{FILE} cannot be deployed: {_last_line(done.stdout + done.stderr)}", "Correct it there.")


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
            f"notify is {notify!r} in {FILE}: the server has no such block.",
            "Make it on the page 'Blocks', or name another as TYPE/NAME.",
        ) from None


def _automation(client: SyncPrefectClient, written: Mapping[str, Any], block: str) -> str:
    actions = [{"block_document_id": block, **action} for action in written["actions"]]
    try:
        wanted = AutomationCore.model_validate({**written, "actions": actions})
    except ValidationError as error:
        raise ParamsError(f"An automation of {FILE} is not valid: {error.errors()[0]['msg']}.", "Correct it.") from None
    known = client.read_automations_by_name(wanted.name)
    if known:
        client.update_automation(known[0].id, wanted)
    else:
        client.create_automation(wanted)
    return f"automation {wanted.name}"
