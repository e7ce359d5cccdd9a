"""The flow as a deployment: started by a schedule or from the interface, never twice at once.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

from pathlib import Path

from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.flows import EntrypointType

from flows.build import build
from palimpsest.files import owner_only


def serve(workspace: Path, cron: str | None = None, workers: int | None = None) -> None:
    """Wait for runs of this workspace and start each in a process of its own, until Ctrl-C.

    Args:
        workspace: the folder with dvc.yaml; its name is the deployment's.
        cron: when to run by itself, as `minute hour day month weekday`; only when asked, by default.
        workers: stages that may run at once; by default two, or one for every four CPU cores.
    """
    workspace = workspace.resolve()
    with owner_only():
        build.serve(
            name=workspace.name,
            cron=cron,
            parameters={"workspace": str(workspace), "workers": workers},
            # One run at a time: two would ask the same devices of two queues that do not know each other.
            limit=1,
            global_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE),
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
