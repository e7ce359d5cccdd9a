"""The commands that run stages: run, serve, deploy and sweep."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.cli.command import Anyway, Workspace, end
from palimpsest.cli.look import show_scores
from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.files import write_text
from palimpsest.params.file import FILE
from palimpsest.params.sweep import Point
from palimpsest.params.text import flow
from palimpsest.privacy.shown import delta_up, up
from palimpsest.report.formats import MISSING
from palimpsest.work.console import Rows, console, show

if TYPE_CHECKING:
    from palimpsest.work.plan import Offer, Sweep

commands = typer.Typer()
_SERVER, _IMAGE = "PREFECT_API_URL", "palimpsest:worker"


@commands.command()
def run(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages to bring up to date; none means all.")] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Run as a flow on a Prefect server with its web page.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="With --ui: keep the server open until Ctrl-C.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="The owner's word: to release, and to charge again.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why the word is given or not; kept in the private zone.")] = None,
    anyway: Anyway = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Stages that run at once, sharing the CPU cores; none: one, with --ui two or more."),
    ] = None,
    workspace: Workspace = Path(),
) -> None:
    """Bring the workspace up to date, after checks that cost nothing.

    It asks before a release, and before a run that was charged is charged again. Ctrl-C ends it within seconds and says
    what was charged; the next run goes on from there.
    """
    from palimpsest.work.run import run_workspace

    code = run_workspace(
        workspace, targets or [], ui=ui, stay=stay, yes=yes, reason=reason, anyway=anyway, workers=workers
    )
    end(code)


@commands.command()
def serve(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages to bring up to date; none means all.")] = None,
    cron: Annotated[
        str | None,
        typer.Option(help="When to run: minute hour day month weekday; none: only when asked in the interface."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of --cron, as Europe/Berlin; none: this machine's.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Stages that run at once, sharing the CPU cores; none: two or more.")
    ] = None,
    anyway: Anyway = False,
    workspace: Workspace = Path(),
) -> None:
    """Run by a schedule, on a Prefect server with its web page.

    It goes on until Ctrl-C. A run where nothing changed takes seconds and charges nothing. Nobody is asked: what needs
    the owner's word, a release or a second charge of one run, does not happen.
    """
    from palimpsest.work.run import serve_workspace

    end(serve_workspace(workspace, targets or [], cron=cron, timezone=timezone, workers=workers, anyway=anyway))


@commands.command()
def deploy(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages to bring up to date; none means all.")] = None,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Kind of work pool: process, docker or kubernetes; the first has the schedule."),
    ] = None,
    cron: Annotated[
        str | None, typer.Option(help="When to run: minute hour day month weekday; none: only when asked.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of --cron, as Europe/Berlin; none: this machine's.")
    ] = None,
    image: Annotated[str, typer.Option(help="Image of containers.")] = _IMAGE,
    notify: Annotated[str | None, typer.Option(help="Block that tells of refusals and failures: TYPE/NAME.")] = None,
    apply: Annotated[bool, typer.Option("--apply/--write", help="Apply prefect.yaml, or only write it.")] = True,
    anyway: Anyway = False,
    workspace: Workspace = Path(),
) -> None:
    """Put the workspace on a team's Prefect server.

    The server is that of PREFECT_API_URL, whose workers run it. This writes prefect.yaml where there is none, and
    applies it: work pools, limits, deployments, automations.
    """
    from palimpsest.work.before import check_workspace

    check_workspace(workspace, targets or [])
    try:
        from flows.environment import apply_environment

        apply_environment(workspace)
        from flows import serve
        from flows.ui import require_answer
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    pools = _check_pools(on or [])
    wanted = serve.Wanted(pools, tuple(targets or ()), cron, timezone, image, notify, anyway)
    asked = any((targets, on, cron, notify, anyway, image != _IMAGE))
    _write(workspace / serve.TEAM_FILE, serve.team_text(workspace, wanted), asked=asked)
    if not apply:
        return
    if _SERVER not in os.environ:
        raise ParamsError(
            f"{_SERVER} names no server, so {serve.TEAM_FILE} was applied nowhere.",
            f"Start one with `prefect server start`, set {_SERVER} to its address with /api, and run this again.",
        )
    require_answer(os.environ[_SERVER])
    for line in serve.apply_team(workspace):
        print(line)
    print(f"Applied. Start a worker: `prefect worker start --pool palimpsest-{pools[0]}`.")


def _check_pools(pools: Sequence[str]) -> tuple[str, ...]:
    from palimpsest.work.run import POOLS

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


@commands.command()
def sweep(
    variant: Annotated[str, typer.Argument(help="The variant to make others from.")],
    varied: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=a,b",
            help="A key of the variant with its values; model.KEY is of the model that it is drawn from.",
        ),
    ],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would run and cost, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Charge without asking, for scripts.")] = False,
    workspace: Workspace = Path(),
) -> None:
    """A variant for each point of a grid of settings.

    Prices all of them, asks, runs, and compares them. The points are written into params.yaml. The same line again goes
    on; what is finished stays.
    """
    end(_run_grid(workspace, variant, varied, only_plan=plan, yes=yes))


def _run_grid(workspace: Path, variant: str, varied: Sequence[str], *, only_plan: bool, yes: bool) -> int:
    """Return the exit status. A point that cannot run is left out; one that fails stops none of the others.

    Raises:
        PalimpsestError: no point can be made, nobody can be asked, or a run is at work.
    """
    from palimpsest.params.load import read_written
    from palimpsest.work.context import render
    from palimpsest.work.plan import insert_points, price_grid
    from palimpsest.work.run import hold_workspace

    read_written(workspace)  # where there is no workspace, no lock is made either
    # a run, or another sweep, reads the files that are written
    with nullcontext() if only_plan else hold_workspace(workspace):
        asked, offers = price_grid(workspace, variant, varied)
        _print_sweep(asked, offers)
        if only_plan:
            return 0
        wanted = [offer.point for offer in offers if not offer.why]
        if not wanted:
            print("No point can run: nothing was charged, and params.yaml is as it was.")
            return 1
        if not _may_charge(sum(offer.added for offer in offers), yes=yes):
            print("Nothing ran, nothing was charged, and params.yaml is as it was.")
            return 1
        write_text(workspace / FILE, insert_points(asked, wanted))
        render(workspace)
    return _run_points(asked, wanted, yes=yes)


def _print_sweep(asked: "Sweep", offers: "Sequence[Offer]") -> None:
    keys = list(offers[0].point.values)
    rows = [
        [
            offer.point.name,
            *(flow(offer.point.values[key]) for key in keys),
            MISSING if offer.why else "0 or " * offer.may_be_paid + up(offer.added),
            _point_state(asked, offer),
        ]
        for offer in offers
    ]
    out, headings = console(), ("point", *keys, "adds epsilon", "state")
    show(out, Rows(f"Sweep of {asked.variant}: no row was read", headings, rows, ("point", *keys, "state")))
    for text in _describe_sweep(asked, offers):
        out.print(text, markup=False, soft_wrap=True)


def _point_state(asked: "Sweep", offer: "Offer") -> str:
    from palimpsest.work.plan import is_finished

    if offer.why:
        return f"left out: {offer.why}"
    return "finished" if is_finished(asked, offer.point) else "will run"


def _describe_sweep(asked: "Sweep", offers: "Sequence[Offer]") -> Iterator[str]:
    from palimpsest.work.look import CHOICE
    from palimpsest.work.plan import MAY_BE_PAID

    asset, spent = asked.context.asset, asked.context.ledger.balance(asked.context.asset.name).spent
    added = sum(offer.added for offer in offers)
    open_offers = [offer for offer in offers if not offer.why]
    paid = any(offer.may_be_paid for offer in open_offers)
    most = "at most " * paid
    if any(item.pending and item.purpose == "release" for offer in open_offers for item in offer.charges):
        yield (
            f"{len(open_offers)} of {len(offers)} points fit. They add {most}epsilon {up(added)}: the total of "
            f"{asset.name} goes from {up(spent)} to {most}{up(spent + added)} of {asset.epsilon:g} at delta "
            f"{delta_up(asset.delta)}."
        )
    elif open_offers:
        yield f"{len(open_offers)} of {len(offers)} points can run. They charge 0: private rows are asked nothing new."
    if paid:
        yield MAY_BE_PAID
    yield CHOICE


def _may_charge(added: float, *, yes: bool) -> bool:
    from palimpsest.work.before import may_charge

    if yes or added <= 0.0:
        return True
    return may_charge("This sweep", f"epsilon {up(added)}", "Nothing was charged, and params.yaml is as it was.")


def _run_points(asked: "Sweep", wanted: Sequence[Point], *, yes: bool) -> int:
    from palimpsest.work.look import score_file
    from palimpsest.work.plan import is_finished
    from palimpsest.work.repro import STOPPED

    workspace, failed = asked.context.workspace, list[str]()
    for point in wanted:
        code = 0 if is_finished(asked, point) else _run_point(workspace, point.name, yes)
        if code == STOPPED:
            return code
        failed += [point.name] if code else []
    if failed:
        print(f"Failed: {', '.join(failed)}. The same line again goes on; what is finished stays.", file=sys.stderr)
    if scored := [point.name for point in wanted if score_file(workspace, point.name).is_file()]:
        show_scores([workspace], scored)
    return int(bool(failed))


def _run_point(workspace: Path, name: str, yes: bool) -> int:
    from palimpsest.work.context import open_workspace
    from palimpsest.work.plan import last_stage
    from palimpsest.work.run import run_workspace

    context = open_workspace(workspace)
    try:
        return run_workspace(workspace, [last_stage(context, name)], ui=False, stay=False, yes=yes)
    except PalimpsestError as error:
        print(error.lines, file=sys.stderr)
        return 1
