"""`palimpsest report`: the final table and the pages; `palimpsest samples`: a page to look through rows with."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from palimpsest.audit.statistics import Estimate
from palimpsest.cli.console import console, table
from palimpsest.cli.context import environment, open_workspace
from palimpsest.cli.processes import run_command
from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.params.load import load
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.report.formats import MISSING, number, percent, points, shown_epsilon
from palimpsest.report.row import BASELINES, FinalTable, Fraction, Row
from palimpsest.workspace import PAGE, SAMPLES, SUMMARY

_Columns = Sequence[tuple[str, Callable[[Row], str]]]

_ONE_TABLE = 120  # columns of text that the whole result needs to fit on a line
_MARKS = {"membership": "", "text_membership": "rows "}
_ROWS = 10_000


def show_report(workspace: Path, *, as_json: bool = False) -> None:
    """Print the final table, what is left of the budget, and the report's path; or the content of the table as JSON.

    Raises:
        DataError: if there is no report yet.
    """
    context, out = open_workspace(workspace), console()
    found = read_table(workspace)
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    rows = found.rows
    show_conclusions(found)
    for part in result_tables(rows, out.width):
        out.print(part)
    refuted = [row.variant for row in rows if row.role == "release" and row.verdict == "refuted"]
    for name in refuted:
        out.print(f"[bold red]An attack refuted the privacy claim of {escape(name)}: a proof or the code is wrong.[/]")
    out.print(
        "Second lines are 95% intervals. n-gram excess is in percentage points: members minus a holdout; p: by chance."
    )
    balance = context.ledger.balance(context.asset.name)
    out.print(
        f"Budget left: epsilon [bold]{down(balance.left)}[/bold] of {balance.cap:g} at delta "
        f"{delta_up(context.asset.delta)} ({up(balance.spent)} spent)."
    )
    out.print(f"Report (private zone): [bold]{escape(str(page_of(workspace)))}[/bold]", soft_wrap=True)


def page_of(workspace: Path) -> Path:
    """The page's absolute path. It ends with `.html` where DVC has put a link there to a file of its cache, too."""
    return workspace.resolve() / PAGE


def read_table(workspace: Path) -> FinalTable:
    """Return the final table, or that of the first page, as stage `report` wrote it.

    Raises:
        DataError: there is none yet, or it is not what this version writes.
    """
    path = workspace / SUMMARY
    if not path.is_file():
        raise DataError("There is no report yet.", "Make it with `palimpsest run`.")
    with guard_reading(path):
        return FinalTable.from_json(read_json(path))


@contextmanager
def guard_reading(path: Path) -> Iterator[None]:
    """Report errors of the block, which reads what a stage wrote there, as errors of that file.

    Raises:
        DataError: the file is torn, or of another version.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(
            f"The file {str(path)!r} is not what this version writes.", "Make it again with `palimpsest run`."
        ) from None


def show_conclusions(found: FinalTable) -> None:
    """Print a sentence or two about each release, which audits came to no result, and what is still to be measured."""
    out = console()
    for name, sentence in found.conclusions.items():
        out.print(f"[bold]{escape(name)}[/bold]: {escape(sentence)}", soft_wrap=True)
    for sentence in found.unsettled:
        out.print(f"[bold yellow]{escape(sentence)}[/]", soft_wrap=True)
    if found.coming:
        out.print(f"Still to come: {escape('; '.join(found.coming))}.", soft_wrap=True)


def result_tables(rows: Sequence[Row], width: int) -> list[Table]:
    """Return the final table or, if it does not fit on a line, its two halves: usefulness, then attacks."""
    first: _Columns = [("variant", lambda row: escape(row.variant)), ("ε", _epsilon)]
    useful, attacked = _utility_columns(rows), _AUDIT
    if width >= _ONE_TABLE:
        return [_table("Result", [*first, *useful, *attacked], rows)]
    return [_table("Result: utility", [*first, *useful], rows), _table("Result: audit", [*first, *attacked], rows)]


def _table(title: str, columns: _Columns, rows: Iterable[Row]) -> Table:
    made = table(title)
    for heading, _ in columns:
        made.add_column(heading, overflow="fold", vertical="top")
    for row in rows:
        made.add_row(*(cell(row) for _, cell in columns))
    return made


def _epsilon(row: Row) -> str:
    return shown_epsilon(row.epsilon_proved, row.token_epsilon, row.role)


def _utility_columns(rows: Sequence[Row]) -> _Columns:
    """Return two columns per evaluator, and one if it predicts tokens."""
    names = list(dict.fromkeys(score.evaluator for row in rows for score in row.scores))
    foretold = [name for name in names if any(_perplexity(row, name) != MISSING for row in rows)]
    shares = [
        (f"{heading}\n{name}", lambda row, name=name, field=field: _ratio(row, name, field))  # type: ignore[misc]
        for name in names
        for heading, field in (("retention", "retention"), ("gap closed", "gap_closed"))
    ]
    return [*shares, *((f"perplexity\n{name}", partial(_perplexity, evaluator=name)) for name in foretold)]


def _perplexity(row: Row, evaluator: str) -> str:
    score = row.score(evaluator)
    found = None if score is None else score.perplexity
    return MISSING if found is None else f"{number(found.value)}\n{number(found.low)} to {number(found.high)}"


def _ratio(row: Row, evaluator: str, field: str) -> str:
    score = row.score(evaluator)
    if score is None or (field == "gap_closed" and row.role in BASELINES):
        return MISSING
    found = score.gap_closed if field == "gap_closed" else score.retention
    if found is None:
        return "n/a"
    return f"{percent(found.value)}\n{100 * found.low:.0f} to {percent(found.high, 0)}"


def _membership(row: Row) -> str:
    """Return the model's AUC and its interval, the AUC of other attacks, and the verdict over all of them."""
    lines = [line for name, audit in row.audits.items() for line in _auc(_MARKS[name], audit.auc)]
    lines += [f"{_MARKS[name]}inconclusive" for name in row.unsettled_attacks]
    return "\n".join([*lines, str(row.verdict)]) if lines else MISSING


def _auc(mark: str, auc: Estimate) -> list[str]:
    interval = [] if mark else [f"{auc.low:.3f} to {auc.high:.3f}"]
    return [f"{mark}{auc.value:.3f}", *interval]


def _excess(row: Row) -> str:
    if row.ngram_excess is None:
        return MISSING
    rate = row.ngram_excess.rate
    return f"{points(rate.value)}\n{points(rate.low)} to {points(rate.high)}\np = {number(row.ngram_excess.p, 2)}"


def _share(found: Fraction | None) -> str:
    return MISSING if found is None else f"{found.count}/{found.total}"


_AUDIT: _Columns = (
    ("membership\nAUC", _membership),
    ("5-gram\nexcess", _excess),
    ("facts\ncarried", lambda row: _share(row.facts_carried)),
    ("facts\nleaked", lambda row: _share(row.individual_leaked)),
    ("canaries\nleaked", lambda row: _share(row.canaries_leaked)),
)


def write_samples(workspace: Path, variants: Sequence[str] = (), *, rows: int = _ROWS) -> int:
    """Write the page and print its path; return the exit status.

    A process of its own reads the rows, started as stages are: there neither an error nor a library quotes one.

    Args:
        variants: the variants, and rows at epsilon 0, to show; none means all that have rows.
        rows: of each variant, drawn at random where it has more.

    Raises:
        ParamsError: this is no workspace.
    """
    done = f"Samples (private zone): {(workspace / SAMPLES).resolve()}"
    return run_private(workspace, "stages.samples", [str(rows), *variants], done)


def run_private(workspace: Path, program: str, told: Sequence[str], done: str) -> int:
    """Run a program of the private zone as stages are run, print a line when it is done, and return the exit status."""
    load(workspace)
    code = run_command([sys.executable, "-P", "-m", program, *told], workspace, environment())
    if code == 0 and done:
        print(done, flush=True)
    return code
