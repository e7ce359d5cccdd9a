"""`palimpsest serve`: runs by a schedule, which can ask nobody."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from palimpsest.cli.alone import alone, serving
from palimpsest.cli.checks import RELEASING, check_budget, due, needed
from palimpsest.cli.consent import require_given, without_release
from palimpsest.cli.context import Context
from palimpsest.cli.graph import stale
from palimpsest.cli.plan import PlanSummary, summarised
from palimpsest.cli.render import render
from palimpsest.cli.run import checked
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_text
from palimpsest.params.file import FILE
from palimpsest.params.override import overridden
from palimpsest.report.release import word


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
def unattended(
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
    with alone(workspace) as lock:
        with _set(workspace, overrides, keep=True):
            context = checked(workspace, targets)
            changed = stale(workspace)
            spending = due(context, needed(context, targets, changed))
            check_budget(context, spending)
            require_given(context, spending)
        releases = RELEASING in changed and (not targets or RELEASING in targets)
        held_back = _held_back(context) if releases else ""
        chosen = without_release(context, targets) if held_back else targets
        if targets and not chosen:
            word.require(os.environ)
        yield Unattended(tuple(chosen), lock, held_back, tuple(context.params.flags()))


def plan(workspace: Path, targets: Sequence[str], overrides: Mapping[str, Any] = MappingProxyType({})) -> PlanSummary:
    """Return what an unattended run would do and cost. Reads no row, charges nothing, leaves params.yaml as it was.

    Raises:
        PalimpsestError: another run holds the workspace, or the settings are not valid.
    """
    with alone(workspace), _set(workspace, overrides, keep=False):
        return summarised(checked(workspace, targets))


@contextmanager
def _set(workspace: Path, overrides: Mapping[str, Any], *, keep: bool) -> Iterator[None]:
    """Set these values in params.yaml for the block; restore it if the block fails, or if they are not to be kept.

    What its owner writes there meanwhile stays.
    """
    if not overrides:
        yield
        return
    path = workspace / FILE
    before, kept = path.read_text(encoding="utf-8"), False
    ours = overridden(before, overrides)
    write_text(path, ours)
    try:
        yield
        kept = keep
    finally:
        if not kept and path.read_text(encoding="utf-8") == ours:
            write_text(path, before)
            render(workspace)


def _held_back(context: Context) -> str:
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
    checked(workspace, targets)
    try:
        from flows.environment import apply_environment
        from flows.ui import serve_with_server

        apply_environment(workspace)
        from flows.cron import schedule
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    when = schedule(cron, timezone)
    with serving(workspace):
        return serve_with_server(
            workspace, targets, cron=cron, timezone=when.timezone if when else None, workers=workers
        )
