"""Brings a workspace up to date, as its only run: at once, by a schedule, or on a team's Prefect server."""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from palimpsest.audit.inconclusive import read_inconclusive
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import make_folder, read_json, write_text
from palimpsest.graph.stage import NAME
from palimpsest.graph.stages import STAGES
from palimpsest.graph.state import State
from palimpsest.params.file import FILE
from palimpsest.params.load import override_values, read_written
from palimpsest.privacy.shown import up
from palimpsest.report.release import word
from palimpsest.work import repro
from palimpsest.work.before import (
    RELEASING,
    Answers,
    ask_consent,
    check_budget,
    check_workspace,
    describe_emulated,
    describe_idle,
    require_given,
    select_due,
    select_needed,
    without_release,
)
from palimpsest.work.check import tell_of_rows
from palimpsest.work.context import Context, environment, find_stale, find_upstream, render, standings
from palimpsest.work.look import page_of, read_table, show_conclusions, show_report
from palimpsest.work.repro import run_command
from palimpsest.workspace import METRICS, RUNNING, SERVING
from stages.warm import serve_stages

if TYPE_CHECKING:
    from palimpsest.work.plan import PlanSummary

Bring: TypeAlias = Callable[[Sequence[str]], int]  # targets, none for all -> exit status
Then: TypeAlias = Callable[[], None]
Courses: TypeAlias = Callable[[Mapping[str, str], Bring], int]  # brings the parts up to date, one after another
_FIRST = frozenset(stage.name for stage in STAGES if stage.first)
HELD_BACK = 3  # exit status: all went well, and the owner's word for the release was not given


@dataclass(frozen=True)
class FirstCourse:
    """The part of a run before the first page."""

    targets: tuple[str, ...]  # the stages that the page waits for
    awaited: tuple[str, ...]  # the metric files that are still to be written after it


def run_courses(
    workspace: Path,
    targets: Sequence[str],
    chosen: Sequence[str],
    changed: Collection[str],
    variables: Mapping[str, str],
    bring: Bring,
    *,
    then: Then = lambda: None,
) -> int:
    """Bring up to date what the first page shows, draw it, then bring up to date what was chosen.

    Returns the exit status. A run of named targets, or one that leaves nothing for later, has one part.

    Args:
        targets: as they were named; none for all.
        chosen: those of them that are brought up to date.
        changed: the stages for which something changed.
        variables: set in the environment of stages, in addition to what is inherited.
        then: called once the first page is there.
    """
    course = None if targets else first_course(workspace, changed)
    if course is None:
        return bring(chosen)
    code = bring(course.targets)
    if code == 0:
        if _draw(workspace, course.awaited, variables):
            then()
        code = bring(chosen)
    return code


def first_course(workspace: Path, changed: Collection[str]) -> FirstCourse | None:
    """Return the part before the first page; None if none of it would run, or no measurement is left for later."""
    targets = tuple(sorted(name for name in changed if _stage(name) in _FIRST))
    if not targets:
        return None
    awaited = _list_metric_files(set(changed) - find_upstream(workspace, targets))
    return FirstCourse(targets, awaited) if awaited else None


def _list_metric_files(stages: Iterable[str]) -> tuple[str, ...]:
    """Return the metric files that stages, named as `dvc repro` prints them, write for the page."""
    kinds = {stage.name: stage for stage in STAGES if not stage.plots}  # the page has plots, and is no measurement
    known = [(kinds[_stage(name)], name.partition("@")[2]) for name in sorted(stages) if _stage(name) in kinds]
    return tuple(str(path).replace(NAME, whose) for stage, whose in known for path in stage.metrics)


def _stage(name: str) -> str:
    return name.partition("@")[0]


def _draw(workspace: Path, awaited: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Write the page and the table whole in place of what lies there; return whether that succeeded.

    The stage `report` writes them anew at the end of the run.
    """
    command = [sys.executable, "-P", "-m", "stages.report", *awaited]
    if run_command(command, workspace, {**environment(), **variables}):
        print("The first page could not be drawn; the run goes on, and draws the page at its end.", file=sys.stderr)
        return False
    print(f"First page (private zone): {page_of(workspace)}", flush=True)
    show_conclusions(read_table(workspace))
    return True


def hold_workspace(workspace: Path) -> AbstractContextManager[int]:
    """Hold the workspace while the block lasts; yields the descriptor that holds it.

    The operating system gives the lock back when the last process that has the descriptor ends, however it ends.

    Raises:
        DataError: another run holds it: by whom, and since when.
    """
    return _hold_lock(workspace / RUNNING, "A run is at work in this workspace")


def hold_schedule(workspace: Path) -> AbstractContextManager[int]:
    """Hold the schedule of the workspace while the block lasts: a second schedule would replace the first and end it.

    Raises:
        DataError: it is served already: by whom, and since when.
    """
    return _hold_lock(workspace / SERVING, "This workspace is served already")


@contextmanager
def _hold_lock(path: Path, said: str) -> Iterator[int]:
    make_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _lock_error(path, said) from None
        os.ftruncate(descriptor, 0)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_error(path: Path, said: str) -> DataError:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {int(body['pid'])}, since {body['since']}"
    except (KeyError, TypeError, ValueError):  # it is just being written
        who = "another process"
    return DataError(
        f"{said}: {who}.",
        "Wait for it to end, or stop it with Ctrl-C where it was started. `palimpsest status`, `plan` and `ledger` "
        "work meanwhile.",
    )


def run_workspace(
    workspace: Path,
    targets: list[str],
    *,
    ui: bool,
    stay: bool,
    yes: bool = False,
    reason: str | None = None,
    anyway: bool = False,
    workers: int | None = None,
    then: Then = lambda: None,
) -> int:
    """Bring the workspace up to date; return the exit status of the runner, 130 after Ctrl-C, or `HELD_BACK`.

    No targets means all stages. `workers` is how many stages run at once; 0 means as many as suit the machine. `then`
    is called once the first page is there.

    Raises:
        PalimpsestError: found by the checks, before any stage starts and before any charge.
    """
    read_written(workspace)  # where there is no workspace, no lock is made either
    with hold_workspace(workspace) as lock:
        context = check_workspace(workspace, targets)
        forget_failed(workspace)
        if not (ui or targets) and all(one.state is State.CACHED for one in standings(context, fresh=True)):
            print("Everything is up to date: nothing ran, and nothing was charged.")
            show_report(workspace)
            return 0
        changed = find_stale(workspace)  # asked once: nothing moves before the first stage
        answers = _ask_answers(context, targets, changed, yes, reason, anyway)
        if answers.again is None:
            print("Nothing ran and nothing was charged: a second charge was not wanted.")
            return 1
        chosen = without_release(context, targets) if answers.release is False else targets
        runner = partial(_run_flow, stay, workers) if ui else partial(_run_repro, workers)
        courses = partial(run_courses, workspace, targets, chosen, changed, then=then)
        run = partial(_run_warm, partial(runner, workspace, [lock], courses), answers.variables)
        code = _run_and_report(context, run) if chosen or not targets else 0
        tell_of_rows(workspace)
    if code == 0 and not targets:
        show_report(workspace)
        _keep_answers(workspace)
    if answers.release is False and code != repro.STOPPED:
        print(f"Nothing was released: the owner's word was not given. Exit status {code or HELD_BACK}.")
        return code or HELD_BACK
    return code


def _keep_answers(workspace: Path) -> None:
    from palimpsest.work.plan import keep_answers  # it takes a while to import

    keep_answers(workspace)


def forget_failed(workspace: Path) -> None:
    """Remove the files of audits that failed themselves in the last run, so that this run tries them again.

    DVC would put a file back if it has kept its content, and not run the stage: so the kept copy goes too. The file of
    an audit for which the rows allow no result stays: it would end the same way.
    """
    failed = [path for path in (workspace / METRICS).rglob("*.json") if _has_failed(path)]
    if not failed:
        return
    from dvc.repo import Repo

    with Repo(str(workspace)) as repo:
        for path in failed:
            kept = repo.cache.local.oid_to_path(hashlib.md5(path.read_bytes()).hexdigest())
            Path(kept).unlink(missing_ok=True)
            path.unlink()


def _has_failed(path: Path) -> bool:
    try:
        why = read_inconclusive(read_json(path))
    except (OSError, TypeError, ValueError, KeyError):
        return False  # its reader reports what is wrong with it
    return why is not None and why.failed


def _ask_answers(
    context: Context, targets: Sequence[str], changed: Collection[str], yes: bool, reason: str | None, anyway: bool
) -> Answers:
    runs = select_needed(context, targets, changed)
    spending = select_due(context, runs)
    check_budget(context, spending, anyway=anyway)
    for flag in (
        *context.params.flags(),
        *describe_emulated(context.params, runs),
        *describe_idle(context.params, runs),
    ):
        print(f"flag: {flag}", file=sys.stderr)
    releases = RELEASING in changed and (not targets or RELEASING in targets)
    return ask_consent(context, spending, releases=releases, yes=yes, reason=reason)


def _run_and_report(context: Context, run: Callable[[], int]) -> int:
    """Run, and say after a Ctrl-C what this run charged and how to go on."""
    before = context.ledger.balance(context.asset.name).spent
    try:
        code = run()
    except KeyboardInterrupt:
        code = repro.STOPPED
    if code == repro.STOPPED:
        balance = context.ledger.balance(context.asset.name)
        elsewhere = "" if context.workspace == Path() else f" -w {context.workspace}"
        print(
            f"Stopped. This run charged epsilon {up(max(0.0, balance.spent - before))}; {up(balance.spent)} of "
            f"{balance.cap:g} is spent now. `palimpsest run{elsewhere}` goes on, and asks before it charges again.",
            flush=True,
        )
    return code


def _run_warm(run: Callable[[Mapping[str, str]], int], variables: Mapping[str, str]) -> int:
    """Run with these variables in the environment of stages, which start from one process that knows the libraries."""
    with serve_stages({**environment(), **variables}) as warm:
        return run({**variables, **warm})


def _run_repro(
    workers: int | None, workspace: Path, keeps: Sequence[int], courses: Courses, variables: Mapping[str, str]
) -> int:
    """Run one stage after the other, or `workers` at once; return 0 or 1. KeyboardInterrupt after a Ctrl-C."""
    if workers is not None:
        from flows.runner import bring_side_by_side

        return courses(variables, lambda targets: bring_side_by_side(workspace, targets, workers, variables, keeps))
    command, own = [sys.executable, "-P", "-m", "palimpsest.work.repro"], {**environment(), **variables}
    return courses(variables, lambda targets: int(run_command([*command, *targets], workspace, own, keeps) != 0))


def _run_flow(
    stay: bool,
    workers: int | None,
    workspace: Path,
    keeps: Sequence[int],
    courses: Courses,
    variables: Mapping[str, str],
) -> int:
    try:
        from flows.ui import run_with_server
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    return run_with_server(workspace, stay, (), workers, variables, partial(courses, variables), keeps)


POOLS = ("process", "docker", "kubernetes")


@dataclass(frozen=True)
class Unattended:
    """A run that may begin."""

    targets: tuple[str, ...]  # what it brings up to date; none for all
    lock: int  # the descriptor that holds the workspace
    held_back: str  # why nothing is released, in two parts; empty if something is released, or nothing would be
    flags: tuple[str, ...]  # warnings about what is allowed but should be looked at; see `Params.flags`


@contextmanager
def hold_unattended(
    workspace: Path,
    targets: Sequence[str],
    overrides: Mapping[str, Any] = MappingProxyType({}),
    *,
    anyway: bool = False,
) -> Iterator[Unattended]:
    """Hold the workspace for a run that nobody watches, after the checks of `palimpsest run`.

    The owner's word comes from the environment of the process that serves the schedule. Without it nothing is released,
    and a run that would charge something a second time is refused, before it reads a row. `overrides` are written into
    params.yaml and stay there; see `params.override`. `anyway` charges also where noise is expected to decide.

    Raises:
        PalimpsestError: another run holds the workspace, or a check fails. Nothing was started or charged, and
            params.yaml is as it was.
    """
    with hold_workspace(workspace) as lock:
        with _override_params(workspace, overrides, keep=True):
            context = check_workspace(workspace, targets)
            changed = find_stale(workspace)
            spending = select_due(context, select_needed(context, targets, changed))
            check_budget(context, spending, anyway=anyway)
            require_given(context, spending)
        releases = RELEASING in changed and (not targets or RELEASING in targets)
        held_back = _explain_held_back(context) if releases else ""
        chosen = without_release(context, targets) if held_back else targets
        if targets and not chosen:
            word.require(os.environ)
        yield Unattended(tuple(chosen), lock, held_back, tuple(context.params.flags()))


def plan_unattended(
    workspace: Path, targets: Sequence[str], overrides: Mapping[str, Any] = MappingProxyType({})
) -> "PlanSummary":
    """Return what an unattended run would do and cost. Reads no row, charges nothing, leaves params.yaml as it was.

    Raises:
        PalimpsestError: another run holds the workspace, or the settings are not valid.
    """
    from palimpsest.work.plan import summarise_plan

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
    workspace: Path,
    targets: Sequence[str],
    *,
    cron: str | None,
    timezone: str | None,
    workers: int | None,
    anyway: bool = False,
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
            workspace, targets, cron=cron, timezone=when.timezone if when else None, workers=workers, anyway=anyway
        )
