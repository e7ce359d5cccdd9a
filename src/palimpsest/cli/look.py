"""The commands that look, and change nothing: plan, status, report, sample, samples and compare."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palimpsest.cli.command import Json, Workspace, end
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_text
from palimpsest.graph.state import State
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.method import PlanTable
from palimpsest.params.file import FILE
from palimpsest.privacy.shown import delta_down, delta_up, down, up
from palimpsest.records.picked import pick_rows
from palimpsest.records.record import Record, list_fields
from palimpsest.report.formats import MISSING, number, percent, shown_epsilon
from palimpsest.work.console import Rows, console, show, show_json
from palimpsest.workspace import SAMPLES, SYNTHETIC

if TYPE_CHECKING:
    from palimpsest.audit.statistics import Estimate
    from palimpsest.work.look import Compared, Comparison, Difference, Scored, Scores
    from palimpsest.work.plan import Cost, PlanLine, PlanSummary

commands = typer.Typer()
_STATES = {"cached": "up to date", "restorable": "restorable, free", "will run": "will run"}
_Place = tuple[str, str, str]


@commands.command()
def plan(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """What would run and why, what it costs, and whether that fits.

    No row is read for it.
    """
    show_plan(workspace, as_json=as_json)


def show_plan(workspace: Path, *, as_json: bool = False) -> None:
    """Print what would run and why, the cost of it by both accountants and to the budget, and what would be left."""
    from palimpsest.work.plan import plan_workspace

    summary = plan_workspace(workspace)
    if as_json:
        show_json(summary)
        return
    _print_plan(summary)


def _print_plan(summary: "PlanSummary") -> None:
    out = console()
    for flag in summary.flags:
        out.print(f"[yellow]flag:[/yellow] {flag}", soft_wrap=True)
    for columns in dict.fromkeys(known.columns for known in METHODS):
        if shown := [line for line in summary.lines if method(line.method).columns is columns]:
            show(out, plan_table(columns, shown, whole=not out.is_terminal))
    if out.is_terminal:
        for line in summary.lines:
            if reason := _reason(line):
                out.print(f"{line.stage} {line.state}: {reason}.", markup=False)
    for text in _describe_plan(summary):
        out.print(text, markup=False, soft_wrap=not out.is_terminal)


def _describe_plan(summary: "PlanSummary") -> Iterator[str]:
    from palimpsest.work.plan import MAY_BE_PAID, budget_sentence

    for line in summary.lines:
        yield from (f"{line.cost.name}: {note}" for note in line.cost.notes)
    if summary.writing:
        yield f"public text: {summary.writing}"
    others = ", ".join(f"{count} {state}" for state, count in summary.others.items())
    yield f"Stages that spend nothing: {others}."
    if summary.minutes:
        measured, total = len(summary.minutes), _time(sum(summary.minutes.values()))
        memory = "" if summary.memory is None else f" The largest took {summary.memory:.1f} GiB of memory."
        stages = f"{measured} of {measured + summary.unmeasured} stages"
        yield f"Expected: {total} for what was measured here, {stages}.{memory}"
    yield budget_sentence(summary)
    if any(line.cost.may_be_paid for line in summary.lines):
        yield MAY_BE_PAID
    if summary.fits:
        yield f"After them, what is released will say: {summary.states}"
    if team := summary.team:
        yield (
            f"Share of team {team.name}: epsilon {team.cap:g}; spent {up(team.spent)}, after the pending runs "
            f"{up(team.after)}: {'fits' if team.fits else 'does not fit'}."
        )
    if summary.beside:
        yield (
            f"Deltas that no event carries: {delta_up(summary.beside)} after the pending runs, of at most "
            f"{delta_down(summary.most_beside)}."
        )
    yield (
        "Budget cost: what one run adds to the data set's total. It is above the variant's own epsilon because the "
        "total also holds for plans chosen after looking at earlier results; several costs do not simply add up."
    )
    yield (
        "A cached or restorable model spends nothing; one that runs again is charged again. A discriminator's epsilon "
        "counts the language model that it builds on. Whatever is drawn from a model is free."
    )


def plan_table(columns: PlanTable, lines: "Sequence[PlanLine]", *, whole: bool) -> Rows:
    """Return one table for the methods that share columns; with `whole`, it has the reasons of each row, too."""
    headings = (columns.row, *(column.heading for column in columns.columns), "epsilon", "epsilon\nRDP", "budget\ncost")
    rows = []
    for line in lines:
        shown = partial(_format_first, line.cost)
        title = line.stage if whole else line.cost.name
        cells = [_title(title, line, columns), *(column.cell(shown) for column in columns.columns)]
        rows.append([*cells, *_prices(line), _state(line), *([_reason(line)] if whole else [])])
    names = (*headings, "state", *(["why"] if whole else []))
    colours = (("infeasible", "red"),)
    return Rows("Plan: no private row was read", names, rows, left=(columns.row, "state"), colours=colours)


def _title(title: str, line: "PlanLine", columns: PlanTable) -> str:
    """The model or variant, its method, and what is drawn from it without a further charge."""
    lines = [title, f"{line.method} {line.purpose}"]
    lines += [_format_first(line.cost, columns.way)] if columns.way else []
    return "\n".join([*lines, *([f"draws: {', '.join(line.draws)}"] if line.draws else [])])


def _format_first(cost: "Cost", *keys: str, digits: int = 3) -> str:
    """The first of these numbers that the plan has."""
    return number(next((cost.numbers[key] for key in keys if key in cost.numbers), None), digits)


def _prices(line: "PlanLine") -> list[str]:
    cost = line.cost
    if not cost.feasible:
        return [MISSING] * 3
    adds = "0 or\n" * cost.may_be_paid + up(cost.budget_cost)
    return [f"{_plan_epsilon(cost.epsilon)}\n({cost.accountant})", _plan_epsilon(cost.epsilon_rdp), adds]


def _state(line: "PlanLine") -> str:
    if not line.cost.feasible:
        return "infeasible"
    return f"{line.state}\n{_time(line.minutes)}" if line.state == State.RUNS else line.state


def _time(minutes: float | None) -> str:
    if minutes is None:
        return f"{MISSING} min"
    return f"{minutes:.1f} min" if minutes >= 1.0 else f"{60 * minutes:.0f} s"


def _reason(line: "PlanLine") -> str:
    before = [f"it needs {', '.join(line.after)}, which will run"] if line.after else []
    return "; ".join([*dict.fromkeys(line.why), *before]) if line.state != State.CACHED else ""


def _plan_epsilon(value: float | None) -> str:
    return "∞" if value is None else up(value)


@commands.command()
def status(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """Which stages are up to date, and what is left of the budget."""
    from palimpsest.work.context import open_workspace
    from palimpsest.work.look import summarise_status

    summary = summarise_status(open_workspace(workspace))
    if as_json:
        show_json(summary)
        return
    out = console()
    rows = [[one.name, _STATES[one.state]] for one in summary.stages]
    show(out, Rows("", ("stage", "state"), rows, ("stage", "state"), (("will run", "yellow"), ("up to date", "green"))))
    out.print(
        f"Budget of {summary.asset}: epsilon {up(summary.spent)} spent, {down(summary.left)} left of {summary.cap:g} "
        f"at delta {delta_up(summary.delta)}.",
        soft_wrap=not out.is_terminal,
    )
    for said in summary.said:
        out.print(said, markup=False, soft_wrap=not out.is_terminal)


@commands.command()
def report(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """The final table, and where the pages are."""
    from palimpsest.work.look import show_report

    show_report(workspace, as_json=as_json)


@commands.command()
def sample(
    variant: Annotated[str | None, typer.Argument(help="Whose rows; none: the one that there is.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each label; without labels, rows in all.")] = 3,
    label: Annotated[str | None, typer.Option(help="Rows of this label alone.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same rows each time; none: others.")] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="The owner's word: rows of a reference, too, on a terminal alone.")
    ] = False,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """Some synthetic rows of a variant.

    To share them, release them: `palimpsest run release`.
    """
    from palimpsest.params.load import read
    from palimpsest.params.sources import describe_public_rows
    from palimpsest.records.write import read_synthetic
    from palimpsest.work.look import find_only, require_there

    params = read(workspace)
    name = variant or find_only(params, workspace)
    require_there(params, workspace, name)
    _require_shown(workspace, name, reference=reference)
    data = params.dataset
    records = read_synthetic(workspace / SYNTHETIC / name, data.text, data.label, data.fields)
    if label is not None:
        records = [record for record in records if record.label == label]
        if not records:
            known = f"Its labels are {', '.join(data.labels)}." if data.labels else "Leave --label out."
            raise ParamsError(f"--label is {label!r}: no row of {name} has it.", known)
    chosen = pick_rows(records, rows, by_label=bool(data.labels), seed=seed)
    if as_json:
        print(json.dumps([_to_json(record, data.text) for record in chosen], indent=2, ensure_ascii=False))
        return
    _print_rows(chosen)
    if copied := describe_public_rows(params, [name]):
        print(f"note: {copied}")


def on_a_terminal() -> bool:
    """Whether a person reads the output now, and it lands in no file."""
    return sys.stdout.isatty()


def _require_shown(workspace: Path, name: str, *, reference: bool) -> None:
    """Raise DataError where rows may not be shown here.

    Guarantee: rows whose receipt does not let them leave, such as a reference's, are shown only on a terminal, and
    there on the owner's word.
    """
    from palimpsest.work.look import may_be_shown, require_shareable

    if not reference:
        require_shareable(workspace, name, "--reference shows them on your terminal")
    elif not may_be_shown(workspace, name) and not on_a_terminal():
        raise DataError(f"The rows of {name} are private, and standard output is no terminal.", "Look at them on one.")


def _print_rows(records: Sequence[Record]) -> None:
    """Print each row on a line, under its label, without characters that would control a terminal."""
    heading = None
    for record in records:
        if record.label != heading:
            print(f"{_strip_controls(record.label or '')}:")
            heading = record.label
        print(f"  {_strip_controls(record.text)}")
        if record.fields:
            print(f"    {_strip_controls(list_fields(record.fields))}")
    sys.stdout.flush()


def _to_json(record: Record, columns: str) -> dict[str, Any]:
    from palimpsest.records import texts

    fields = {"fields": dict(record.fields)} if record.fields else {}
    apart = texts.names(columns) if texts.is_turns(columns) or len(texts.names(columns)) > 1 else ("text",)
    own = dict(zip(apart, texts.cells_of(record.text, columns), strict=True))
    return {**own, "label": record.label, **fields}


def _strip_controls(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


@commands.command("samples")
def browse(
    variants: Annotated[list[str] | None, typer.Argument(help="Which; none: all, and the baselines.")] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Most rows of each variant, drawn at random where it has more.")
    ] = 10_000,
    workspace: Workspace = Path(),
) -> None:
    """A private page of rows, each beside the nearest private one.

    Its path is printed.
    """
    from palimpsest.work.look import run_private

    done = f"Samples (private zone): {(workspace / SAMPLES).resolve()}"
    end(run_private(workspace, "stages.samples", [str(rows), *(variants or [])], done))


@commands.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="VARIANT|WORKSPACE", help="Which; none: all of this one, and the baselines."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the scores with their intervals: a file that ends with .svg.")
    ] = None,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """The variants side by side: epsilon, utility, gain, attacks.

    Gain is over public text alone; all of it is of the private zone. With folders of workspaces, or --plot, the scores
    of all of them by each evaluator, and which differences are noise.
    """
    names = names or []
    variants = [name for name in names if not (Path(name) / FILE).is_file()]
    folders = [Path(name) for name in names if name not in variants]
    if folders and variants:
        raise ParamsError(
            f"{variants[0]!r} is no workspace, and others are.", "Name workspaces alone, or variants alone."
        )
    if folders or plot is not None:
        once = list({folder.resolve(): folder for folder in folders}.values())
        show_scores(once or [workspace], variants, plot=plot, as_json=as_json)
    else:
        _show_comparison(workspace, variants, as_json=as_json)


def show_scores(
    workspaces: Sequence[Path], variants: Sequence[str] = (), *, plot: Path | None = None, as_json: bool = False
) -> None:
    """Print a line for each row of the workspaces, or for those that are named; draw them where a file is named.

    Raises:
        DataError: nothing was measured yet.
        ParamsError: a workspace has no params.yaml, a named row was never measured, or the drawing is no SVG.
    """
    from palimpsest.work.look import CHOICE, RULE, scores_of

    if plot is not None and plot.suffix != ".svg":
        raise ParamsError(f"--plot is {str(plot)!r}.", "Name a file that ends with .svg.")
    found = scores_of(workspaces, variants)
    if plot is not None:
        write_text(plot, _draw_chart(found.scores))
    if as_json:
        show_json(found)
        return
    out = console()
    show(out, _score_table(found))
    for text in (RULE, CHOICE, *([f"written: {plot}; it is private, as the test rows are"] if plot else [])):
        out.print(text, markup=False, soft_wrap=True)


def _score_table(found: "Scores") -> Rows:
    evaluators = tuple(dict.fromkeys(one.evaluator for one in found.scores))
    headings = ("workspace", "variant", "method", "epsilon", *evaluators)
    alike, lines = _find_alike(found.differences), defaultdict[tuple[str, str], dict[str, "Scored"]](dict)
    for one in found.scores:
        lines[one.workspace, one.variant][one.evaluator] = one
    rows = [
        [
            *line,
            next(iter(by.values())).method or MISSING,
            _epsilon(next(iter(by.values()))),
            *(_cell(by[name], alike.get((*line, name), ())) if name in by else MISSING for name in evaluators),
        ]
        for line, by in lines.items()
    ]
    return Rows("Accuracy on real test rows", headings, rows, ("workspace", "variant", "method"))


def _epsilon(one: "Scored | Compared") -> str:
    return shown_epsilon(one.epsilon, one.token_epsilon, one.role)


def _find_alike(differences: "Sequence[Difference]") -> dict[_Place, list[str]]:
    """Return (workspace, row, evaluator) -> the rows from which it may differ only by noise."""
    found = defaultdict[_Place, list[str]](list)
    for pair in differences:
        if pair.noise:
            found[pair.workspace, pair.first, pair.evaluator].append(pair.second)
            found[pair.workspace, pair.second, pair.evaluator].append(pair.first)
    return found


def _cell(one: "Scored", alike: Sequence[str]) -> str:
    accuracy = one.accuracy
    said = f"{percent(accuracy.value)}\n({100 * accuracy.low:.1f} to {percent(accuracy.high)})"
    return f"{said}\n≈ {', '.join(alike)}" if alike else said


def _draw_chart(found: "Sequence[Scored]") -> str:
    from palimpsest.report.drawing import draw_svg

    return draw_svg("Accuracy on real test rows", [_point(one) for one in found])


def _point(one: "Scored") -> dict[str, Any]:
    epsilon = " ".join(_epsilon(one).split())
    row = one.variant if epsilon == MISSING else f"{one.variant}, epsilon {epsilon}"
    return {"data": one.workspace, "row": row, "whose": one.evaluator, **asdict(one.accuracy)}


def _show_comparison(workspace: Path, variants: Sequence[str] = (), *, as_json: bool = False) -> None:
    from palimpsest.work.look import compare_variants

    found = compare_variants(workspace, variants)
    if as_json:
        show_json(found)
        return
    out = console()
    show(out, _comparison_table(found.variants))
    for text in _describe_comparison(found):
        out.print(text, markup=False, soft_wrap=True)


def _comparison_table(lines: "Sequence[Compared]") -> Rows:
    """Return a table with a line for each: what was proved, what it is good for, what attacks found."""
    headings = ("variant", "epsilon", "utility", "gain over\npublic text", "attacks")
    rows = [[one.variant, _epsilon(one), _utility(one), _gain(one), _attacks(one)] for one in lines]
    return Rows("Variants", headings, rows, left=("variant", "attacks"), colours=(("refuted", "bold red"),))


def _utility(one: "Compared") -> str:
    beside = "" if one.perplexity is None else f"\nperplexity {number(one.perplexity.value)}"
    return f"{_interval(one.utility, 1)}{beside}"


def _gain(one: "Compared") -> str:
    return "n/a" if one.no_gain else _interval(one.gain, 0)


def _interval(found: "Estimate | None", digits: int) -> str:
    if found is None:
        return MISSING
    return f"{percent(found.value, digits)}\n({100 * found.low:.{digits}f} to {percent(found.high, digits)})"


def _attacks(one: "Compared") -> str:
    """Return the verdict, and the strongest attack whose control passed: the others say nothing."""
    sound = [attack for attack in one.attacks.values() if attack.control_passed]
    if not sound:
        return one.verdict or MISSING
    auc = max(sound, key=lambda attack: attack.epsilon_lower).auc
    return f"{one.verdict}\nAUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})"


def _describe_comparison(found: "Comparison") -> list[str]:
    from palimpsest.work.look import CHOICE

    evaluator = next((one.evaluator for one in found.variants if one.evaluator), None)
    told = [f"{one.variant}: {one.conclusion}" for one in found.variants if one.conclusion]
    if evaluator is not None:
        told.append(
            f"Utility: accuracy of {evaluator}, trained on the rows, on real test rows. Gain: how much of the gap from "
            "public text alone to the private rows is closed. Intervals are of 95%."
        )
    told += fit_of_labels(found)
    told += [f"n/a, {one.variant}: {one.no_gain}." for one in found.variants if one.no_gain and not one.conclusion]
    told += [
        f"Inconclusive, {one.variant}: {kind.replace('_', ' ')}, because {why}."
        for one in found.variants
        for kind, why in one.unsettled.items()
    ]
    return [*told, CHOICE, *([f"Still to come: {'; '.join(found.coming)}."] if found.coming else [])]


def fit_of_labels(found: "Comparison") -> list[str]:
    """Return a sentence on whether rows fit their labels, and what that means."""
    fits = [(one.variant, one.label_fit) for one in found.variants if one.label_fit]
    if not fits:
        return []
    shares = [f"{variant} {_format_share(fit.synthetic)}" for variant, fit in fits]
    return [
        "Fit of labels: the share of rows to which tfidf_lr, trained on the real rows, gives the label that they bear: "
        f"{', '.join(shares)}; real test rows {_format_share(fits[0][1].real)}."
    ]


def _format_share(found: "Estimate") -> str:
    return _interval(found, 1).replace("\n", " ")
