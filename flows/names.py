"""Names of deployments, which are unique on a server across all workspaces.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from flows.build import NAME
from palimpsest.errors import ParamsError
from palimpsest.workspace import GRAPH


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
