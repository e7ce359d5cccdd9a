"""`palimpsest serve` and `deploy`: runs by a schedule, which can ask nobody, here or on a team's Prefect server."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from palimpsest.cli.context import Context, render
from palimpsest.cli.graph import find_stale
from palimpsest.cli.plan import PlanSummary, summarise_plan
from palimpsest.cli.run import (
    RELEASING,
    check_budget,
    check_workspace,
    hold_schedule,
    hold_workspace,
    require_given,
    select_due,
    select_needed,
    without_release,
)
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_text
from palimpsest.params.file import FILE
from palimpsest.params.load import override_values
from palimpsest.report.release import word

_SERVER = "PREFECT_API_URL"
POOLS = ("process", "docker", "kubernetes")


@dataclass(frozen=True)
class Unattended:
    """A run that may begin.

    Attributes:
        targets: what it brings up to date; none for all.
        lock: the descriptor that holds the workspace.
        held_back: why nothing is released, in two parts; empty if something is released, or nothing would be.
        flags: warnings about what is allowed but should be looked at; see `Params.flags`.
    """

    targets: tuple[str, ...]
    lock: int
    held_back: str
    flags: tuple[str, ...]


@contextmanager
def hold_unattended(
    workspace: Path, targets: Sequence[str], overrides: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Unattended]:
    """Hold the workspace for a run that nobody watches, after the checks of `palimpsest run`.

    The owner's word comes from the environment of the process that serves the schedule. Without it nothing is released,
    and a run that would charge something a second time is refused, before it reads a row. `overrides` are written into
    params.yaml and stay there; see `params.override`.

    Raises:
        PalimpsestError: another run holds the workspace, or a check fails. Nothing was started or charged, and
            params.yaml is as it was.
    """
    with hold_workspace(workspace) as lock:
        with _override_params(workspace, overrides, keep=True):
            context = check_workspace(workspace, targets)
            changed = find_stale(workspace)
            spending = select_due(context, select_needed(context, targets, changed))
            check_budget(context, spending)
            require_given(context, spending)
        releases = RELEASING in changed and (not targets or RELEASING in targets)
        held_back = _explain_held_back(context) if releases else ""
        chosen = without_release(context, targets) if held_back else targets
        if targets and not chosen:
            word.require(os.environ)
        yield Unattended(tuple(chosen), lock, held_back, tuple(context.params.flags()))


def plan(workspace: Path, targets: Sequence[str], overrides: Mapping[str, Any] = MappingProxyType({})) -> PlanSummary:
    """Return what an unattended run would do and cost. Reads no row, charges nothing, leaves params.yaml as it was.

    Raises:
        PalimpsestError: another run holds the workspace, or the settings are not valid.
    """
    with hold_workspace(workspace), _override_params(workspace, overrides, keep=False):
        return summarise_plan(check_workspace(workspace, targets))


@contextmanager
def _override_params(workspace: Path, overrides: Mapping[str, Any], *, keep: bool) -> Iterator[None]:
    """Set these values in params.yaml for the block; restore it if the block fails, or if they are not to be kept.

    What its owner writes there meanwhile stays.
    """
    if not overrides:
        yield
        return
    path = workspace / FILE
    before, kept = path.read_text(encoding="utf-8"), False
    ours = override_values(before, overrides)
    write_text(path, ours)
    try:
        yield
        kept = keep
    finally:
        if not kept and path.read_text(encoding="utf-8") == ours:
            write_text(path, before)
            render(workspace)


def _explain_held_back(context: Context) -> str:
    if context.params.release.variants:
        try:
            word.require(os.environ)
        except DataError as error:
            return error.lines
    return ""


def serve_workspace(
    workspace: Path, targets: Sequence[str], *, cron: str | None, timezone: str | None, workers: int | None
) -> int:
    """Serve the runs of a workspace on a Prefect server until Ctrl-C; return the exit status.

    Raises:
        PalimpsestError: the schedule is not valid, the workspace is none or served already, or there is no Prefect.
    """
    check_workspace(workspace, targets)
    try:
        from flows.environment import apply_environment
        from flows.ui import serve_with_server

        apply_environment(workspace)
        from flows.serve import schedule
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    when = schedule(cron, timezone)
    with hold_schedule(workspace):
        return serve_with_server(
            workspace, targets, cron=cron, timezone=when.timezone if when else None, workers=workers
        )


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
    check_workspace(workspace, targets)
    try:
        from flows.environment import apply_environment

        apply_environment(workspace)
        from flows import team
        from flows.ui import require_answer
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    wanted = team.Wanted(_check_pools(pools), tuple(targets), cron, timezone, image, notify)
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


def _check_pools(pools: Sequence[str]) -> tuple[str, ...]:
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
