"""`palimpsest run`: free checks, questions to a person, then DVC or the flow, as the workspace's only run."""

import hashlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from palimpsest.audit.inconclusive import inconclusive
from palimpsest.cli import repro
from palimpsest.cli.alone import alone
from palimpsest.cli.checks import (
    RELEASING,
    check_budget,
    check_device,
    check_files,
    check_release,
    due,
    emulated,
    idle,
    needed,
)
from palimpsest.cli.consent import Answers, asked, without_release
from palimpsest.cli.context import Context, environment, opened
from palimpsest.cli.first_page import Courses, Then, in_courses
from palimpsest.cli.graph import stale, standings
from palimpsest.cli.init_files import tell_of_rows
from palimpsest.cli.processes import shown
from palimpsest.cli.render import render
from palimpsest.cli.report import show_report
from palimpsest.errors import ParamsError
from palimpsest.files import read_json
from palimpsest.graph.state import State
from palimpsest.privacy.shown import up
from palimpsest.workspace import METRICS
from stages.warm import serving

HELD_BACK = 3  # exit status: all went well, and the owner's word for the release was not given


def run_workspace(
    workspace: Path,
    targets: list[str],
    *,
    ui: bool,
    stay: bool,
    yes: bool = False,
    reason: str | None = None,
    workers: int | None = None,
    then: Then = lambda: None,
) -> int:
    """Bring the workspace up to date; return the exit status of the runner, 130 after Ctrl-C, or `HELD_BACK`.

    No targets means all stages. `workers` is how many stages run at once; 0 means as many as suit the machine. `then`
    is called once the first page is there.

    Raises:
        PalimpsestError: found by the checks, before any stage starts and before any charge.
    """
    with alone(workspace) as lock:
        context = checked(workspace, targets)
        forget_failed(workspace)
        if not (ui or targets) and all(one.state is State.CACHED for one in standings(context, fresh=True)):
            print("Everything is up to date: nothing ran, and nothing was charged.")
            show_report(workspace)
            return 0
        changed = stale(workspace)  # asked once: nothing moves before the first stage
        answers = _answered(context, targets, changed, yes, reason)
        if answers.again is None:
            print("Nothing ran and nothing was charged: a second charge was not wanted.")
            return 1
        chosen = without_release(context, targets) if answers.release is False else targets
        runner = partial(_flow, stay, workers) if ui else partial(_repro, workers)
        courses = partial(in_courses, workspace, targets, chosen, changed, then=then)
        run = partial(_warm, partial(runner, workspace, [lock], courses), answers.variables)
        code = _finished(context, run) if chosen or not targets else 0
        tell_of_rows(workspace)
    if code == 0 and not targets:
        show_report(workspace)
    if answers.release is False and code != repro.STOPPED:
        print(f"Nothing was released: the owner's word was not given. Exit status {code or HELD_BACK}.")
        return code or HELD_BACK
    return code


def checked(workspace: Path, targets: Sequence[str]) -> Context:
    """Return the opened workspace, after the checks that need not know what changed.

    Raises:
        PalimpsestError: one of them fails.
    """
    render(workspace)
    context = opened(workspace)
    check_release(context.params, targets)
    check_files(context)
    check_device(workspace)
    return context


def forget_failed(workspace: Path) -> None:
    """Remove the files of audits that failed themselves in the last run, so that this run tries them again.

    DVC would put a file back if it has kept its content, and not run the stage: so the kept copy goes too. The file of
    an audit for which the rows allow no result stays: it would end the same way.
    """
    failed = [path for path in (workspace / METRICS).rglob("*.json") if _failed(path)]
    if not failed:
        return
    from dvc.repo import Repo

    with Repo(str(workspace)) as repo:
        for path in failed:
            kept = repo.cache.local.oid_to_path(hashlib.md5(path.read_bytes()).hexdigest())
            Path(kept).unlink(missing_ok=True)
            path.unlink()


def _failed(path: Path) -> bool:
    try:
        why = inconclusive(read_json(path))
    except (OSError, TypeError, ValueError, KeyError):
        return False  # its reader reports what is wrong with it
    return why is not None and why.failed


def _answered(
    context: Context, targets: Sequence[str], changed: Collection[str], yes: bool, reason: str | None
) -> Answers:
    """Return the answers of a person, after the checks that know what changed."""
    runs = needed(context, targets, changed)
    spending = due(context, runs)
    check_budget(context, spending)
    for flag in (*context.params.flags(), *emulated(context.params, runs), *idle(context.params, runs)):
        print(f"flag: {flag}", file=sys.stderr)
    releases = RELEASING in changed and (not targets or RELEASING in targets)
    return asked(context, spending, releases=releases, yes=yes, reason=reason)


def _finished(context: Context, run: Callable[[], int]) -> int:
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


def _warm(run: Callable[[Mapping[str, str]], int], variables: Mapping[str, str]) -> int:
    """Run with these variables in the environment of stages, which start from one process that knows the libraries."""
    with serving({**environment(), **variables}) as warm:
        return run({**variables, **warm})


def _repro(
    workers: int | None,
    workspace: Path,
    keeps: Sequence[int],
    courses: Courses,
    variables: Mapping[str, str],
) -> int:
    """Run one stage after the other, or `workers` at once; return 0 or 1. KeyboardInterrupt after a Ctrl-C."""
    if workers is not None:
        from flows.side_by_side import bring

        return courses(variables, lambda targets: bring(workspace, targets, workers, variables, keeps))
    command, own = [sys.executable, "-P", "-m", "palimpsest.cli.repro"], {**environment(), **variables}
    return courses(variables, lambda targets: int(shown([*command, *targets], workspace, own, keeps) != 0))


def _flow(
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
