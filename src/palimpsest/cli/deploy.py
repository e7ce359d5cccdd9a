"""`palimpsest deploy`: a workspace on the Prefect server of a team."""

import os
from collections.abc import Sequence
from pathlib import Path

from palimpsest.cli.run import checked
from palimpsest.errors import ParamsError
from palimpsest.files import write_text

_SERVER = "PREFECT_API_URL"
POOLS = ("process", "docker", "kubernetes")


def deploy(
    workspace: Path,
    targets: Sequence[str],
    *,
    pools: Sequence[str],
    cron: str | None,
    timezone: str | None,
    image: str,
    notify: str | None,
    apply: bool,
) -> None:
    """Write prefect.yaml where there is none, and apply it to the server that PREFECT_API_URL names.

    Raises:
        PalimpsestError: an option is not valid, there is no server or no Prefect, or prefect.yaml cannot be used.
    """
    checked(workspace, targets)
    try:
        from flows.environment import apply_environment

        apply_environment(workspace)
        from flows import team
        from flows.ui import require_answer
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    wanted = team.Wanted(_known(pools), tuple(targets), cron, timezone, image, notify)
    _write(workspace / team.FILE, team.text(workspace, wanted), asked=bool(targets or pools or cron or notify))
    if not apply:
        return
    if _SERVER not in os.environ:
        raise ParamsError(
            f"{_SERVER} names no server, so {team.FILE} was applied nowhere.",
            f"Start one with `prefect server start`, set {_SERVER} to its address with /api, and run this again.",
        )
    require_answer(os.environ[_SERVER])
    for line in team.apply(workspace):
        print(line)
    print(f"Applied. Start a worker: `prefect worker start --pool palimpsest-{(pools or POOLS)[0]}`.")


def _known(pools: Sequence[str]) -> tuple[str, ...]:
    for pool in pools:
        if pool not in POOLS:
            raise ParamsError(f"--on is {pool!r}.", f"Choose among {', '.join(POOLS)}.")
    return tuple(dict.fromkeys(pools)) or POOLS[:1]


def _write(path: Path, text: str, *, asked: bool) -> None:
    if not path.exists():
        write_text(path, text)
        print(f"wrote {path}")
    elif asked:
        raise ParamsError(
            f"{path.name} is there, and holds what was asked for when it was written.",
            "Edit it and run `palimpsest deploy` alone, or remove it to have it written anew.",
        )
