"""The settings that DVC and Prefect read from the environment; both read them when they are imported."""

import os
from collections.abc import Mapping
from pathlib import Path

from palimpsest.files import make_folder

URL = "PREFECT_API_URL"
WORD = "PREFECT_API_AUTH_STRING"
WATCHED = "PALIMPSEST_WATCHED"  # set if a flow has to end with the process that started it, however that ends
_LOCAL = ("127.0.0.1", "localhost")


def environment(workspace: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`base` with analytics off and Prefect's files inside the workspace.

    What `base` sets already stays: a user's own PREFECT_HOME or PREFECT_API_URL wins.
    """
    ours = {
        "PREFECT_HOME": str(workspace.resolve() / ".palimpsest" / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",  # 20 by default, too few on a busy machine
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
        "DO_NOT_TRACK": "1",  # Prefect's client has no setting of its own for its usage events
        "DVC_NO_ANALYTICS": "1",
    }
    return {**ours, **base, "NO_PROXY": _no_proxy(base), "no_proxy": _no_proxy(base)}


def apply_environment(workspace: Path) -> None:
    """Set `environment` for this process and its children, before Prefect is imported, and make Prefect's folder."""
    os.environ.update(environment(workspace))
    make_folder(Path(os.environ["PREFECT_HOME"]))


def _no_proxy(base: Mapping[str, str]) -> str:
    # A local server must not be looked for behind a proxy.
    listed = base.get("NO_PROXY") or base.get("no_proxy") or ""
    return ",".join(dict.fromkeys([*filter(None, listed.split(",")), *_LOCAL]))
