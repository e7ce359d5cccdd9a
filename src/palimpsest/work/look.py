"""Reads what a run left: the final table, the pages, the scores and comparisons, and the rows."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from palimpsest.audit.groups import LabelFit
from palimpsest.audit.inconclusive import read_inconclusive
from palimpsest.audit.statistics import Estimate, difference
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json
from palimpsest.graph.state import Standing
from palimpsest.params.load import load, read
from palimpsest.params.schema import Params
from palimpsest.privacy.receipt import read_receipt
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.report.formats import MISSING, number, percent, points, shown_epsilon
from palimpsest.report.results import BASELINES, FinalTable, Fraction, Membership, Row, measured_subjects
from palimpsest.work.console import console, table
from palimpsest.work.context import Context, environment, load_or_compute, open_workspace, standings
from palimpsest.work.ledger import describe_total
from palimpsest.work.repro import run_command
from palimpsest.workspace import INTERNAL, METRICS, PAGE, RECEIPTS, SUMMARY, SYNTHETIC

_Columns = Sequence[tuple[str, Callable[[Row], str]]]
_ONE_TABLE = 120  # columns of text that the whole result needs to fit on a line
_MARKS = {"membership": "", "text_membership": "rows "}
CHOICE = (
    "To choose by accuracy on real test rows, or by audits, is to choose by private rows: no epsilon counts it, and "
    "nothing is charged for it. A variant of method choose charges its choice. To choose by public scores "
    "(dataset.public_test), or by synthetic rows alone, is free."
)
RULE = (
    "≈ names rows of the same workspace whose difference may be noise: its 95% interval, by the normal approximation "
    "from both intervals as if they were independent, holds 0. All are scored on the same test rows, so a paired "
    "interval would mostly be narrower. The best of many looks better than it is."
)


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
    facts = _FACTS if any(row.facts_carried is not None for row in rows) else ()  # only the invented world has any
    useful, attacked = _utility_columns(rows), (*_AUDIT, *facts)
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
    if not row.ngram_excess.judges:
        return "cannot judge"
    rate = row.ngram_excess.rate
    return f"{points(rate.value)}\n{points(rate.low)} to {points(rate.high)}\np = {number(row.ngram_excess.p, 2)}"


def _share(found: Fraction | None) -> str:
    return MISSING if found is None else f"{found.count}/{found.total}"


_AUDIT: _Columns = (
    ("membership\nAUC", _membership),
    ("5-gram\nexcess", _excess),
)
_FACTS: _Columns = (
    ("facts\ncarried", lambda row: _share(row.facts_carried)),
    ("facts\nleaked", lambda row: _share(row.individual_leaked)),
    ("canaries\nleaked", lambda row: _share(row.canaries_leaked)),
)


@dataclass(frozen=True)
class StatusSummary:
    """The output of `palimpsest status --json`."""

    asset: str
    delta: float  # the delta at which epsilon holds; cap, spent and left are epsilons
    cap: float
    spent: float
    left: float
    stages: tuple[Standing, ...]  # each after those it needs; state is cached, restorable or will run
    said: tuple[str, ...] = ()  # whose charges are in `spent`, and what is wrong with an entry of the ledger


def summarise_status(context: Context) -> StatusSummary:
    """Every stage of an opened workspace, and what is left of the budget."""
    asset, books = context.asset, context.ledger.books()

    def worked_out() -> dict[str, Any]:
        return {"spent": books.balance(asset.name).spent, "said": list(describe_total(books, asset.name))}

    found = load_or_compute(context.workspace, "spent", [asset.name, books.head], worked_out)
    left, said = max(0.0, asset.epsilon - found["spent"]), tuple(found["said"])
    return StatusSummary(asset.name, asset.delta, asset.epsilon, found["spent"], left, tuple(standings(context)), said)


def run_private(workspace: Path, program: str, told: Sequence[str], done: str) -> int:
    """Run a program of the private zone, print a line when it is done, and return the exit status.

    It is a process of its own, started as stages are: there neither an error nor a library quotes a row.
    """
    load(workspace)
    code = run_command([sys.executable, "-P", "-m", program, *told], workspace, environment())
    if code == 0 and done:
        print(done, flush=True)
    return code


@dataclass(frozen=True)
class Scored:
    """The score of one row by one evaluator."""

    workspace: str  # as it was named
    variant: str  # or a baseline: real, public_only, public_lm
    role: str  # by its receipt, release or reference; for a baseline its name
    method: str | None  # None for a baseline
    epsilon: float | None  # proved, by its receipt; None if it has none
    token_epsilon: float | None  # of one word, where a method protects only words
    evaluator: str
    accuracy: Estimate  # on real test rows, with its 95 % interval


@dataclass(frozen=True)
class Difference:
    """Two rows of one workspace by one evaluator."""

    workspace: str
    evaluator: str
    first: str
    second: str
    value: Estimate  # the first's accuracy minus the second's, with its 95 % interval
    noise: bool  # whether that interval holds 0


@dataclass(frozen=True)
class Scores:
    """The output of `palimpsest compare WORKSPACE ... --json`."""

    zone: str
    scores: tuple[Scored, ...]
    differences: tuple[Difference, ...]
    rule: str
    choice: str


def score_file(workspace: Path, variant: str) -> Path:
    """Return the file of the scores of a variant, or a baseline, once it was evaluated."""
    return workspace / METRICS / variant / "utility.json"


def scores_of(workspaces: Sequence[Path], variants: Sequence[str] = ()) -> Scores:
    """Return the scores of the workspaces as values."""
    every = [one for workspace in workspaces for one in _read_scores(workspace)]
    if not every:
        raise DataError("Nothing was scored there yet.", "Run `palimpsest run`, or `palimpsest sweep`, first.")
    require_measured(variants, dict.fromkeys(one.variant for one in every))
    found = tuple(one for one in every if not variants or one.variant in variants)
    return Scores(INTERNAL, found, tuple(_differences(found)), RULE, CHOICE)


def require_measured(variants: Sequence[str], measured: Collection[str]) -> None:
    """Refuse a name that was not measured. Raises ParamsError if there is one."""
    for name in variants:
        if name not in measured:
            raise ParamsError(
                f"VARIANT is {name!r}, which was not measured.", f"Name some of {', '.join(measured)}, or none for all."
            )


def _read_scores(workspace: Path) -> Iterator[Scored]:
    params = read(workspace)
    for variant, path in ((name, score_file(workspace, name)) for name in measured_subjects(params)):
        if not path.is_file():
            continue
        row, (role, epsilon, token_epsilon) = params.variants.get(variant), _read_guarantee(workspace, variant)
        method = None if row is None else row.method
        for evaluator, accuracy in _accuracies(path).items():
            yield Scored(str(workspace), variant, role, method, epsilon, token_epsilon, evaluator, accuracy)


def _accuracies(path: Path) -> dict[str, Estimate]:
    """Return evaluator -> accuracy; empty where there is no result."""
    with guard_reading(path):
        body = read_json(path)
        told = {} if read_inconclusive(body) else body["evaluators"]
        return {name: Estimate(body["accuracy"], body["low"], body["high"]) for name, body in told.items()}


def _read_guarantee(workspace: Path, variant: str) -> tuple[str, float | None, float | None]:
    """Return the role, epsilon and the epsilon of one word, by the receipt."""
    path = workspace / RECEIPTS / f"{variant}.json"
    if not path.is_file():
        return variant, None, None
    receipt = read_receipt(path)
    return receipt.purpose, receipt.epsilon, (receipt.plan or {}).get("token_epsilon")


def _differences(found: Sequence[Scored]) -> Iterator[Difference]:
    for first, second in combinations(found, 2):
        if (first.workspace, first.evaluator) == (second.workspace, second.evaluator):
            value = difference(first.accuracy, second.accuracy)
            noise = value.low <= 0.0 <= value.high
            yield Difference(first.workspace, first.evaluator, first.variant, second.variant, value, noise)


@dataclass(frozen=True)
class Compared:
    """One variant, or a baseline."""

    variant: str
    role: str  # release, reference, or a baseline: real (the private rows), public_only, public_lm
    method: str | None
    epsilon: float | None  # proved; None if it has none
    token_epsilon: float | None  # of one word, where a method protects only words
    evaluator: str | None  # the classifier behind utility and gain; None where none was used
    utility: Estimate | None  # its accuracy on real test rows
    gain: Estimate | None  # the share of the gap from a row of public text only to the private rows that is closed
    no_gain: str | None  # why that is unknown
    attacks: Mapping[str, Membership]  # kind -> the strongest attack of that kind
    verdict: str | None  # over all attacks
    conclusion: str | None  # gain and attacks in words; None if it is no release
    perplexity: Estimate | None = None  # of an evaluator that predicts tokens, on the same rows
    # how often a classifier of the real rows gives its rows their labels; None for rows without labels
    label_fit: LabelFit | None = None
    unsettled: Mapping[str, str] = field(default_factory=dict)  # kind of measurement -> why it came to no result


@dataclass(frozen=True)
class Comparison:
    """The output of `palimpsest compare --json`. It belongs to the private zone."""

    variants: tuple[Compared, ...]
    coming: tuple[str, ...]  # measurements that are still to be made


def compare_variants(workspace: Path, variants: Sequence[str] = ()) -> Comparison:
    """Return the comparison as values; no variants means all of them, and the baselines."""
    found = read_table(workspace)
    lines = {row.variant: _compare_row(row, found.conclusions.get(row.variant)) for row in found.rows}
    require_measured(variants, lines)
    return Comparison(tuple(lines[name] for name in variants or lines), found.coming)


def _compare_row(row: Row, conclusion: str | None) -> Compared:
    """Return a row as compared by the first evaluator, which shares no weights with any generator."""
    score = row.scores[0] if row.scores else None
    baseline = row.role in BASELINES
    return Compared(
        row.variant, row.role, row.method, row.epsilon_proved, row.token_epsilon,
        evaluator=None if score is None else score.evaluator,
        utility=None if score is None else score.accuracy,
        gain=None if score is None or baseline else score.gap_closed,
        no_gain=None if score is None or baseline else score.gap_note,
        attacks=row.audits, verdict=row.verdict, conclusion=conclusion,
        perplexity=None if score is None else score.perplexity,
        label_fit=row.label_fit,
        unsettled=row.unsettled,
    )  # fmt: skip


def list_showable(params: Params, workspace: Path) -> list[str]:
    """Return the variants that are meant for release and have rows with a receipt that lets them be shown."""
    there = [name for name in params.may_leave if _file(workspace, name).is_file()]
    return [name for name in there if _receipt(workspace, name).is_file() and may_be_shown(workspace, name)]


def may_be_shown(workspace: Path, name: str) -> bool:
    """Whether rows may be shown, by the receipt that came with them: params.yaml may name another purpose since."""
    return read_receipt(_receipt(workspace, name)).private


def _file(workspace: Path, name: str) -> Path:
    return workspace / SYNTHETIC / f"{name}.parquet"


def _receipt(workspace: Path, name: str) -> Path:
    return workspace / RECEIPTS / f"{name}.json"


def find_only(params: Params, workspace: Path) -> str:
    """Return the one variant whose rows may be shown; raise ParamsError where there is none or several."""
    there = list_showable(params, workspace)
    if len(there) != 1:
        raise ParamsError(
            f"VARIANT is missing; {_describe_rows(there)}.", "Name one, or make them with `palimpsest run`."
        )
    return there[0]


def _describe_rows(there: Sequence[str]) -> str:
    return f"rows have: {', '.join(there)}" if there else "none has rows yet that may be shown"


def require_there(params: Params, workspace: Path, name: str) -> None:
    """Raise ParamsError where there is no such variant, DataError where it has no rows yet."""
    if name not in params.run.evaluate:
        raise ParamsError(
            f"VARIANT is {name!r}, which params.yaml does not have.", f"Name one of {', '.join(params.run.evaluate)}."
        )
    if not _file(workspace, name).is_file():
        raise DataError(
            f"{name} has no rows yet; {_describe_rows(list_showable(params, workspace))}.", "Run `palimpsest run`."
        )


def require_shareable(workspace: Path, name: str, word: str) -> None:
    """Raise DataError if a receipt does not let its rows leave; `word` says how to see them all the same."""
    if not may_be_shown(workspace, name):
        raise DataError(
            f"The rows of {name} are not differentially private: they are a reference's, or their noise was fixed.",
            f"They stay in the private zone. If you may see the private rows, {word}.",
        )
