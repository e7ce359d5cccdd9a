"""palimpsest from Python: the workspaces, the ledger and the graph of the commands, with values instead of pages.

import palimpsest as p
work = p.create("work", tickets, public, text="body", label="team", labels=teams, n_public=12000, asset="tickets")
work.plan()
work.run()
work.samples("select3")
work.audit()
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields
from numbers import Real
from operator import index
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from palimpsest.errors import DataError, PalimpsestError, ParamsError
from palimpsest.files import atomic_path, restrict_to_owner
from palimpsest.params.load import read
from palimpsest.privacy.ledger.records import Balance
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.privacy.shown import up
from palimpsest.records import schema, texts
from palimpsest.records.conformity import record_problem
from palimpsest.records.write import read_synthetic
from palimpsest.report.results import Metric, Results, Row
from palimpsest.report.sections import METRICS
from palimpsest.report.summary import summarise
from palimpsest.work.begin import init_workspace, read_author, read_fields, require_free
from palimpsest.work.context import open_workspace
from palimpsest.work.decisions import DataSource, usual_epsilon
from palimpsest.work.look import page_of, require_shareable, require_there
from palimpsest.work.plan import PlanSummary, plan_workspace
from palimpsest.work.run import HELD_BACK, run_workspace
from palimpsest.workspace import GIVEN, SUMMARY, SYNTHETIC
from stages.report import read_receipts, read_results

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

_FILES = frozenset({"test", "public_test"})
_OTHERS = {"data", "public", "wanted", "chosen"}  # fields of `DataSource` that are given in another way here
_NEEDED = {own.name for own in fields(DataSource) if own.default is own.default_factory is MISSING} - _OTHERS
_WHOLE = frozenset({"n_public", "rows", "persons", "max_rows", "max_length", "text_tokens"})
_NAMES = ("text", "unit", "asset", "language", "method", "task", "lm", "preset", "filter", "about")
_NUMBERS = ("epsilon", "budget", "delta")
_NUMBER, _NAME, _LIST = "Give a number.", "Give a name, as text.", (list, tuple, NoneType)
_LABELS = "Give a list, or a mapping from each label to its description: labels are public, and come from you."
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {  # of decision -> its types, and what to give
    **dict.fromkeys(_NUMBERS, ((Real,), _NUMBER)),
    "delta": ((Real, NoneType), _NUMBER),
    **dict.fromkeys(_NAMES, ((str, NoneType), _NAME)),
    "label": ((str, *_LIST), _NAME),
    "text": ((str, list, tuple), _NAME),
    "labels": ((Mapping, *_LIST), _LABELS),
    "milestones": (_LIST, "Give a list of numbers."),
    "author": ((Mapping, str, NoneType), "Give it as `palimpsest init` takes it, or as params.yaml has an author."),
    "json_schema": ((Mapping, NoneType), "Give it as a mapping."),
    "fields": ((Mapping, str), "Give a mapping, or a line as --fields takes it: lists and bounds are public."),
}
_DECISIONS = frozenset({own.name for own in fields(DataSource)} - _OTHERS | {"method", "task"})


@runtime_checkable
class Frameable(Protocol):
    """A table that becomes a DataFrame, such as a `datasets.Dataset`."""

    def to_pandas(self) -> "DataFrame":
        """Return the table as a DataFrame."""


Table: TypeAlias = "Path | str | DataFrame | Frameable | Sequence[str]"


class RunFailed(PalimpsestError):
    """A run did not bring everything up to date."""


@dataclass(frozen=True)
class PricedPlan:
    """A plan of what a run would do and cost; no private row was read for it."""

    summary: PlanSummary

    @property
    def frame(self) -> "DataFrame":
        """One line a stage that spends: stage, state, epsilon, what it adds to the total, minutes, why.

        Where "may be paid" is true, it adds nothing if the file, which only a run reads, holds rows charged before.
        """
        lines = [
            {
                "stage": line.stage, "method": line.method, "state": line.state, "epsilon": line.cost.epsilon,
                "budget cost": line.cost.budget_cost, "may be paid": line.cost.may_be_paid, "minutes": line.minutes,
                "why": "; ".join(line.why),
            }
            for line in self.summary.lines
        ]  # fmt: skip
        return _frame(lines)

    def __str__(self) -> str:
        return f"{self._shown.to_string(index=False)}\n{self._verdict}"

    def _repr_html_(self) -> str:
        return f"{self._shown.to_html(index=False, na_rep='')}<p>{self._verdict}</p>"

    @property
    def _shown(self) -> "DataFrame":
        """The frame as a person reads it: `0 or 1.59` where a price may be paid already."""
        costs = ["0 or " * line.cost.may_be_paid + up(line.cost.budget_cost) for line in self.summary.lines]
        return self.frame.drop(columns="may be paid").assign(**{"budget cost": costs})

    @property
    def _verdict(self) -> str:
        found = self.summary
        fits = "fits" if found.fits else "does not fit"
        return f"Epsilon {up(found.spent)} of {found.cap:g} is spent; after this run {up(found.after)}: {fits}."


@dataclass(frozen=True)
class AuditResults:
    """The measurements of every variant. They are of the private zone and never leave it."""

    rows: tuple[Row, ...]  # the final table, releases first, then references, `real` and `public_only`
    results: Results
    page: Path  # the audit page

    def of(self, variant: str) -> dict[str, Any]:
        """Kind of measurement -> its typed result, for one variant: `membership`, `ngrams`, `utility`, ...

        `Inconclusive` stands in place of one where an audit came to no result.
        """
        known = {metric.name: self._get_result(metric, variant) for metric in METRICS}
        return {name: result for name, result in known.items() if result is not None}

    def _get_result(self, metric: Metric[Any], variant: str) -> Any:
        return self.results.get(metric, variant) or self.results.find_unsettled(metric).get(variant)

    @property
    def frame(self) -> "DataFrame":
        """One line a variant: its proved epsilon, retention by each evaluator, and the verdict over all attacks."""
        return _frame([_line(row) for row in self.rows])

    def __str__(self) -> str:
        return str(self.frame.to_string(index=False))

    def _repr_html_(self) -> str:
        return f"{self.frame.to_html(index=False, na_rep='')}<p>Private zone. The page: {self.page}</p>"


@dataclass(frozen=True)
class Workspace:
    """A folder with params.yaml, as the commands know it: everything here is in the same files and the same ledger."""

    folder: Path

    def plan(self) -> PricedPlan:
        """Plan a run: what it would do and cost. Reads no row.

        Raises:
            PalimpsestError: params.yaml is wrong or names as public what is not, or the ledger does not know this data
                set.
        """
        return PricedPlan(plan_workspace(self.folder))

    def run(self, *targets: str, yes: bool = False, reason: str | None = None) -> None:
        """Bring the workspace, or some stages, up to date.

        Args:
            targets: names of stages; none are all.
            yes: the word of the data's owner for what `palimpsest run` would ask about.
            reason: why it is given; kept in the private zone.

        Raises:
            RunFailed: it did not finish. The stages that finished are kept.
            PalimpsestError: found by checks, before any stage starts and before any charge.
        """
        with restrict_to_owner():
            code = run_workspace(self.folder, list(targets), ui=False, stay=False, yes=yes, reason=reason)
        if code == HELD_BACK:
            raise RunFailed(
                "Nothing was released: the owner's word was not given.",
                "Give it with yes=True, which also answers for what would be charged again.",
            )
        if code:
            raise RunFailed(f"The run ended with status {code}.", "Read what it printed above, then run again.")

    def samples(self, variant: str, *, reference: bool = False) -> "DataFrame":
        """The synthetic rows of a variant, with your column names.

        Args:
            reference: your word that you may see private rows, for those whose receipt does not let them leave.

        Raises:
            ParamsError: there is no such variant.
            DataError: it has no rows yet, or they are private.
        """
        params = read(self.folder)
        require_there(params, self.folder, variant)
        if not reference:
            require_shareable(self.folder, variant, "say reference=True")
        data = params.dataset
        rows = read_synthetic(self.folder / SYNTHETIC / variant, data.text, data.label, data.fields)
        names = (*texts.names(data.text), *schema.names(data.label))
        cells = ((*texts.cells_of(row.text, data.text), *schema.parts(row.label, data.label)) for row in rows)
        told = [dict(zip(names, own, strict=True)) for own in cells]
        return _frame([own | dict(row.fields) for own, row in zip(told, rows, strict=True)])

    def dataset(self, variant: str, *, reference: bool = False) -> "Dataset":
        """Return the rows of `samples` as a `datasets.Dataset`; needs that package."""
        try:
            from datasets import Dataset
        except ModuleNotFoundError:
            raise ParamsError("datasets is not installed.", "Install it: pip install datasets.") from None
        return Dataset.from_pandas(self.samples(variant, reference=reference), preserve_index=False)

    def audit(self) -> AuditResults:
        """Return what the last run measured. Raises DataError if nothing was measured yet."""
        if not (self.folder / SUMMARY).is_file():
            raise DataError("There is no report yet.", "Make it with run().")
        context = open_workspace(self.folder)
        params, results = context.params, read_results(context.params, self.folder)
        receipts = read_receipts(params.run.evaluate, self.folder)
        summary = summarise(results, receipts, ledger_summary(context.ledger.books(), context.asset.name))
        return AuditResults(summary.rows, results, page_of(self.folder))

    def budget(self) -> Balance:
        """Return what this data set has spent, and what is left."""
        context = open_workspace(self.folder)
        return context.ledger.balance(context.asset.name)


def open(folder: Path | str = ".") -> Workspace:
    """A workspace that exists. Raises ParamsError if the folder has no params.yaml, or one that is wrong."""
    read(folder)
    return Workspace(Path(folder))


def create(
    folder: Path | str,
    data: Table,
    public: "Table | None" = None,
    *,
    check: bool = True,
    force: bool = False,
    **decisions: Any,
) -> Workspace:
    """Make a workspace for a private table and register it in the ledger, as `palimpsest init` does.

    Args:
        folder: where; it may exist.
        data: the private table: a path, an address as text, a DataFrame, a `datasets.Dataset`, or a list of texts. One
            that is no path is written into the workspace, readable only by you.
        public: public text of the same kind, with the same text column; None: `author` or a named `lm` writes it.
        check: go through both tables once, to find what a run would stop at.
        force: overwrite params.yaml.
        decisions: text (of several columns a list), n_public and asset always; label with labels, as names or
            name -> description (of several columns a list, with a mapping of columns to such labels); whatever else
            `palimpsest init` takes, under the names of `DataSource`, and method and task. A JSON schema is a mapping.

    Raises:
        PalimpsestError: a decision or a table is wrong, or the ledger knows the data set on other terms.
    """
    if unknown := sorted(decisions.keys() - _DECISIONS):
        raise ParamsError(f"{', '.join(unknown)}: nothing is decided so.", f"Use {', '.join(sorted(_DECISIONS))}.")
    if missing := sorted(_NEEDED - decisions.keys()):
        raise ParamsError(f"{', '.join(missing)}: this is not decided.", f"Give {', '.join(sorted(_NEEDED))} always.")
    decisions = {name: _take(name, value) for name, value in decisions.items()}
    told = schema.join_columns({"label": None, **decisions, "labels": decisions.pop("labels", None) or ()})
    folder, labels = Path(folder), told["labels"]
    require_free(folder, force=force)
    named = dict(labels) if isinstance(labels, Mapping) else {str(name): str(name) for name in labels}
    usual = {"epsilon": usual_epsilon(decisions.get("preset", DataSource.preset))}
    made = usual | {"wanted": decisions.pop("method", None), "chosen": decisions.pop("task", None), **decisions}
    tables = {"data": data} | {name: made[name] for name in _FILES if made.get(name) is not None}
    tables |= {} if public is None else {"public": public}
    with restrict_to_owner(), ExitStack() as drafts:  # on an error they are removed, and what was there stays
        column = texts.names(told["text"])[0]
        places = {name: _place_table(table, folder, name, column, drafts) for name, table in tables.items()}
        made |= {"public": None, "label": told["label"], "labels": named, "text": told["text"]}
        source = DataSource(**made | {name: now for name, (now, _) in places.items()})
        stays = DataSource(**made | {name: later for name, (_, later) in places.items()})
        init_workspace(folder, source, force=force, check=check, stays=stays)
    return Workspace(folder)


def _take(name: str, value: Any) -> Any:
    """Return a decision as it is meant: a whole number of any kind as an int, another number as a float.

    Raises:
        ParamsError: it is of another type, which is named, as the value may be a column of private rows, also in place
            of the labels; or the schema is none.
    """
    if name in _WHOLE and value is not None:
        try:
            return index(value)
        except TypeError:
            raise ParamsError(f"{name} is a {type(value).__name__}.", "Give a whole number.") from None
    kinds, remedy = _KINDS.get(name, ((object,), ""))
    if not issubclass(type(value), kinds):
        raise ParamsError(f"{name} is a {type(value).__name__}.", remedy)
    if name == "json_schema" and value is not None and (problem := record_problem(value)):
        raise ParamsError(f"{name} {problem}.", "Correct it.")
    if name == "author" and isinstance(value, str):
        return read_author(value)
    if name == "fields":
        return read_fields(value)
    return float(value) if name in _NUMBERS and value is not None else value


def _place_table(table: Table, folder: Path, name: str, column: str, drafts: ExitStack) -> tuple[Path | str, ...]:
    """Return where a table is now and where it stays. A value is a draft until `drafts` end well.

    A list or a Series is a table of one column, the texts.
    """
    if isinstance(table, (str, Path)):
        return table, table
    frame = table.to_pandas() if isinstance(table, Frameable) else table
    if isinstance(frame, (list, tuple)) or hasattr(frame, "to_frame"):
        frame = _frame({column: text} for text in frame)
    if isinstance(frame, Sequence) or not hasattr(frame, "to_parquet"):
        raise ParamsError(f"{name} is a {type(table).__name__}.", "Give a path, a DataFrame, or a list of texts.")
    path = folder / GIVEN / f"{name}.parquet"
    draft = drafts.enter_context(atomic_path(path))
    _write(frame, draft, name)
    return draft, path


def _write(frame: "DataFrame", path: Path, name: str) -> None:
    """Write a table as Parquet; whole numbers beside empty cells stay whole. An error quotes no value."""
    if not frame.columns.map(str).is_unique:  # as Parquet would name them
        raise DataError(f"The table {name!r} has two columns of one name.", "Give each a name of its own.")
    truths = frame.select_dtypes("bool").columns
    try:
        frame.astype(dict.fromkeys(truths, str)).convert_dtypes().to_parquet(path, index=False)
        return
    except (TypeError, ValueError):  # Arrow's are of both kinds, and quote the cell
        pass
    raise DataError(
        f"The table {name!r} has a column of mixed types.", "Make each column texts, or whole numbers, and try again."
    )


def _frame(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        raise ParamsError("pandas is not installed.", "Install the extra: pip install palimpsest[pandas].") from None
    return DataFrame(list(rows))


def _line(row: Row) -> dict[str, Any]:
    retention = {
        f"retention {score.evaluator}": None if score.retention is None else score.retention.value
        for score in row.scores
    }
    about = {"variant": row.variant, "role": row.role, "epsilon": row.epsilon_proved}
    return {**about, **retention, "attacks": row.verdict}
