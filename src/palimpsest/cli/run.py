"""`palimpsest run`: checks that cost nothing, questions to a person, then DVC or the flow, alone in the workspace."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from palimpsest.cli import repro
from palimpsest.cli.alone import alone
from palimpsest.cli.check import tell_of_rows
from palimpsest.cli.checks import check_budget, check_files, check_release
from palimpsest.cli.consent import asked, without_release
from palimpsest.cli.context import Context, environment, opened
from palimpsest.cli.first_page import Bring, in_courses
from palimpsest.cli.processes import shown
from palimpsest.cli.render import render
from palimpsest.cli.report import show_report
from palimpsest.errors import ParamsError
from palimpsest.files import make_folder
from palimpsest.workspace import TWINS

HELD_BACK = 3  # exit status: all went well, and the owner's word for the release was not given


def run_workspace(
    workspace: Path, targets: list[str], *, ui: bool, stay: bool, yes: bool = False, reason: str | None = None
) -> int:
    """Bring the workspace up to date; the exit status of the runner, 130 after Ctrl-C, or `HELD_BACK`.

    No targets are all stages.

    Raises:
        PalimpsestError: found by the checks, before any stage starts and before any charge.
    """
    with alone(workspace) as lock:
        render(workspace)
        context = opened(workspace)
        check_release(context.params, targets)
        check_files(context)
        check_budget(context, targets)
        for flag in context.params.flags():
            print(f"flag: {flag}", file=sys.stderr)
        make_folder(workspace / TWINS)
        answers = asked(context, targets, yes=yes, reason=reason)
        if answers.again is None:
            print("Nothing ran and nothing was charged: a second charge was not wanted.")
            return 1
        chosen = without_release(context, targets) if answers.release is False else targets
        how = partial(_flow, stay=stay) if ui else _repro
        courses = partial(in_courses, workspace, targets, chosen)
        bring = partial(how, workspace, answers.variables, [lock], courses)
        code = _finished(context, bring) if chosen or not targets else 0
        tell_of_rows(workspace)
    if code == 0 and not targets:
        show_report(workspace)
    if answers.release is False and code != repro.STOPPED:
        print(f"Nothing was released: the owner's word was not given. Exit status {code or HELD_BACK}.")
        return code or HELD_BACK
    return code


def _finished(context: Context, bring: Callable[[], int]) -> int:
    """Run, and say after a Ctrl-C what this run charged and how to go on."""
    before = context.ledger.balance(context.asset.name).spent
    try:
        code = bring()
    except KeyboardInterrupt:
        code = repro.STOPPED
    if code == repro.STOPPED:
        balance = context.ledger.balance(context.asset.name)
        print(
            f"Stopped. This run charged epsilon {max(0.0, balance.spent - before):.3f}; {balance.spent:.3f} of "
            f"{balance.cap:g} is spent now. `palimpsest run` goes on from here, and asks before it charges again.",
            flush=True,
        )
    return code


def _repro(workspace: Path, variables: Mapping[str, str], keeps: Sequence[int], courses: Callable[[Bring], int]) -> int:
    """0 or 1; KeyboardInterrupt after a Ctrl-C."""
    command, own = [sys.executable, "-P", "-m", "palimpsest.cli.repro"], {**environment(), **variables}
    return courses(lambda targets: int(shown([*command, *targets], workspace, own, keeps) != 0))


def _flow(
    workspace: Path,
    variables: Mapping[str, str],
    keeps: Sequence[int],
    courses: Callable[[Bring], int],
    *,
    stay: bool,
) -> int:
    try:
        from flows.ui import run_with_server
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    return run_with_server(workspace, stay, variables=variables, keeps=keeps, courses=courses)
