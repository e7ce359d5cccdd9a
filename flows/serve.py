"""The flow as a deployment: started by a schedule or from the interface, never twice at once.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.flows import EntrypointType
from prefect.states import Completed, Failed, State

from flows.build import DESCRIPTION, NAME, THREADS, bring, title
from flows.cron import schedule
from flows.events import REFUSED, tell
from flows.names import require_own
from flows.summary import publish_plan
from palimpsest.cli.serve import plan, unattended
from palimpsest.errors import BudgetExceeded, PalimpsestError
from palimpsest.files import owner_only


@flow(
    name=NAME, description=DESCRIPTION, flow_run_name=title, task_runner=THREADS, persist_result=False, retries=0
)  # fmt: skip
def scheduled(
    workspace: Path,
    targets: list[str] | None = None,
    workers: int | None = None,
    overrides: dict[str, Any] | None = None,
    dry_run: bool = False,
) -> State[Any]:
    """A run that nobody watches: as `build`, after the checks of `palimpsest run`, alone in the workspace.

    Args:
        workspace: the folder with params.yaml.
        targets: stage names or matrix groups; all by default.
        workers: stages that may run at once.
        overrides: keys with dots and their values, written into params.yaml: {"variants.select3.epsilon": 2}.
        dry_run: only plan: what would run and cost. Nothing is charged, and params.yaml stays as it is.

    Returns:
        As `build`; also Failed where a check fails, with what is wrong and what to do.
    """
    try:
        with owner_only():
            if dry_run:
                return Completed(name="Planned", message=publish_plan(plan(workspace, targets or (), overrides or {})))
            with unattended(workspace, targets or (), overrides or {}) as run:
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
) -> None:
    """Wait for runs of this workspace and start each in a process of its own, until Ctrl-C.

    Args:
        workspace: the folder with params.yaml; its name is the deployment's.
        cron: when to run by itself, as `minute hour day month weekday`; only when asked, by default.
        workers: stages that may run at once; by default two, or one for every four CPU cores.
        targets: stages to bring up to date; all by default.
        timezone: of `cron`; this machine's by default.

    Raises:
        ParamsError: the schedule is not valid, or the server has the name for another workspace.
    """
    workspace = workspace.resolve()
    require_own(workspace, workspace.name)
    with owner_only():
        scheduled.serve(
            name=workspace.name,
            schedule=schedule(cron, timezone),
            parameters={"workspace": str(workspace), "targets": [*targets], "workers": workers},
            # One run at a time: two would ask the same devices of two queues that do not know each other. A limit of
            # the server's would end a run, and what it charged, where the server is away for some minutes.
            limit=1,
            entrypoint_type=EntrypointType.MODULE_PATH,
            print_starting_message=False,  # it names Prefect's own commands
        )
