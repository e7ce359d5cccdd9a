"""Whether the decisions of `palimpsest init` can be, and whether the files are what they say."""

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.method import Method, Reads
from palimpsest.models.settings import Named
from palimpsest.params.preset import presets
from palimpsest.params.schema import LANGUAGE, LEAST_UNITS, MOST_BUDGET, MOST_RECORDS, NAME, USUAL_LENGTH
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.records import FILTERS, milestone_problem
from palimpsest.privacy.shown import delta_down
from palimpsest.records import schema, texts
from palimpsest.records import schema as attributes
from palimpsest.records.faults import FLATTEN, NOTES, OF_THE_RECORD, POLICIES, Kind, Place, RecordError
from palimpsest.records.fields import columns_of
from palimpsest.records.formats import MissingColumn, names
from palimpsest.records.preprocess import odd_labels, odd_public, odd_sizes
from palimpsest.records.read import Checked, ColumnNames, Found, check, iter_rows, nobody_error
from palimpsest.records.schema import LEAST_DELTA, PublicSchema
from palimpsest.records.sources import describe, is_address
from palimpsest.records.structured import WHOLE_ROW
from palimpsest.records.vouched import EMBEDDED
from palimpsest.work.console import owners_terminal, tell_owner
from palimpsest.work.decisions import DataSource
from palimpsest.work.lengths import find_room, fit_lengths
from palimpsest.workspace import FAULT, PRIVATE, ROWS_REPORT, Zone

_MODERN = "modern"
_WORDS = get_args(Named)
_TASKS = ("classify", "span", "text", "json")
_LEAST_EPSILON, _MOST_EPSILON = 0.05, 20.0
Problem = tuple[str, str]
NAME_ONE = (
    "Name public text of the kind with --public, or who is to write it: --author with an endpoint as URL#MODEL or a "
    "chat model, or --lm with a base model."
)
_APART = {
    "--public": "Name public text that holds none of the private rows.",
    "--test": "Name other rows, or leave --test out: a test part is then cut from the private file.",
    "--public-test": "Name other rows, which are public, or leave it out.",
}


def _may_be_first(known: Method) -> bool:
    """Whether a first variant can be of that method: it builds on no other charge, and is no baseline."""
    return not known.reads & {Reads.FITTED, Reads.SOURCE, Reads.SOURCES} and not known.baseline


FIRST: dict[str, Method] = {known.name: known for known in METHODS if _may_be_first(known)}


def find_problems(source: DataSource) -> Iterator[Problem]:
    """Yield each problem with the option, its value and what is allowed, and what to do."""
    return chain(
        _check_task(source), _check_public(source), _check_columns(source), _check_preset(source),
        _check_method(source), _check_words(source), _check_sizes(source),
        _check_budget(source), _check_files(source),
    )  # fmt: skip


def _check_task(source: DataSource) -> Iterator[Problem]:
    task, label, labels = source.task, source.label is not None, bool(source.labels)
    if task not in _TASKS:
        yield f"--task is {task!r}.", f"Choose one of {', '.join(_TASKS)}."
    if task in ("classify", "text") and label != labels:
        remedy = "Give both, or none for text without labels, or --task span for labels that are free text."
        yield "--label and --labels come together: labels are public, and are never taken from the data.", remedy
    if len(source.labels) == 1:
        alone = next(iter(source.labels))
        yield f"--labels is {alone!r} alone; allowed are at least two.", "Name all labels, with commas between."
    if task == "span" and (not label or labels):
        yield "--task span takes --label and no --labels: a label is free text.", "Give the column alone."
    if (task == "json") != (source.json_schema is not None):
        yield "--task json and --json-schema come together.", "Give both, or none."
    if source.fields and task not in ("classify", "text"):
        yield f"--fields is for tasks classify and text, not for {task}.", "Leave it out; json has fields of its own."
    if task == "json" and (label or labels):
        yield "--task json has no labels.", "Leave --label and --labels out."
    if task != "json" and source.text == WHOLE_ROW:
        yield f"--text is {WHOLE_ROW!r}.", "Name the text column; only for --task json is a row a record."


def _check_public(source: DataSource) -> Iterator[Problem]:
    """Check that there is a public file, or somebody who writes one and needs none for it."""
    kind = None if source.writer is None else source.writer.get("kind")
    if source.public is not None and (source.author or source.about):
        yield "--public is given beside --author or --about, for texts that an author writes.", "Leave one of them out."
    elif source.public is None and kind is None:
        yield "--public is missing, and --lm is embedded, which learns from public text alone.", NAME_ONE
    elif source.public is None and (kind == "corpus" or (kind == "base" and source.lm == EMBEDDED)):
        yield f"--author is of kind {kind}, which has words from public text alone, and there is none.", NAME_ONE


def _check_columns(source: DataSource) -> Iterator[Problem]:
    for option, column in (("--text", source.text), ("--label", source.label), ("--unit", source.unit)):
        if column == "":
            yield f"{option} is empty.", "Name a column of the file."
    own = texts.names(source.text)
    if len(set(own)) < len(own) or ("" in own and source.text):
        yield f"--text names {', '.join(own)}.", "Name each column once."
    if source.text != WHOLE_ROW and own != (source.text,) and (source.task == "json" or source.public is None):
        yield "--text names several texts or turns, not for --task json or texts of an author.", "Give --public."
    if twice := set(own) & set(schema.names(source.label)):
        yield f"--text and --label are both {min(twice)!r}.", "Name two columns."
    if source.unit in own:
        yield f"--unit and --text are both {source.unit!r}.", "Name the column that tells persons apart."
    if wrong := schema.problem(tuple(source.labels), source.label):
        yield f"--label is {source.label!r}: {wrong}.", "Give --labels-file with a list of labels for each column."
    if source.public_labels and source.label is None:
        yield "--public-labels is given without --label.", "Give --label and --labels, or leave it out."
    if not re.fullmatch(LANGUAGE, source.language):
        yield f"--language is {source.language!r}.", "Give a tag of BCP 47, say en, de, pt-BR or zh-Hans."
    if source.bad_rows not in POLICIES:
        yield f"--bad-rows is {source.bad_rows!r}.", f"Choose one of {', '.join(POLICIES)}."


def _check_preset(source: DataSource) -> Iterator[Problem]:
    known = source.published
    if known is None and source.preset != _MODERN:
        yield f"--preset is {source.preset!r}.", f"Choose one of {_MODERN}, {', '.join(presets())}."
    elif known is not None and source.wanted is not None:
        yield (
            f"--method and --preset {known.name} are both given; the preset has all methods of its paper.",
            "Leave one of them out.",
        )
    elif known is not None and source.task in _TASKS and source.task not in known.tasks:
        able = [name for name, other in presets().items() if source.task in other.tasks]
        yield (
            f"--preset {known.name} is for task {' or '.join(known.tasks)}; the task is {source.task}.",
            f"Choose one of {', '.join(able)}; --label with --labels makes the task classify.",
        )


def _check_method(source: DataSource) -> Iterator[Problem]:
    known = FIRST.get(source.method)
    if source.published is not None:
        return
    if known is None:
        yield f"--method is {source.method!r}.", f"Choose one of {', '.join(FIRST)}."
    elif source.task in _TASKS and source.task not in known.tasks:
        able = [name for name, other in FIRST.items() if source.task in other.tasks]
        yield (
            f"--method {source.method} is for task {' or '.join(known.tasks)}; the task is {source.task}.",
            f"Choose one of {', '.join(able)}; --label with --labels makes the task classify.",
        )


def _check_words(source: DataSource) -> Iterator[Problem]:
    if source.words is not None and source.words not in _WORDS:
        yield (
            f"--words is {source.words!r}.",
            f"Choose one of {', '.join(_WORDS)}; params.yaml takes words of your own.",
        )
    elif source.words is not None and not source.worded:
        yield (
            "--words is given, and no model is prompted in words.",
            "Name a language model with --lm, without --preset paper-000, or leave --words out.",
        )
    if not source.lm:
        yield "--lm is empty.", "Give embedded, a folder, or a hub name."
    if not re.fullmatch(NAME, source.asset):
        yield f"--asset is {source.asset!r}.", "Use lower-case letters, digits and _, a letter first."


def _check_sizes(source: DataSource) -> Iterator[Problem]:
    records, persons = source.n_public, source.persons
    if records < LEAST_UNITS:
        remedy = "Give the approximate number of private records; with fewer than that no audit can be made."
        yield f"--rows-about is {records}; allowed is at least {LEAST_UNITS}.", remedy
    if records > MOST_RECORDS:
        remedy = "Give the approximate number of private records."
        yield f"--rows-about is {records}; allowed is at most {MOST_RECORDS:,}.", remedy
    if (source.unit is None) != (persons is None):
        yield (
            "--unit and --persons come together: the person is then protected, and delta and noise follow from how "
            "many persons there are.",
            "Give both, or neither for data in which one row is one person.",
        )
    if source.max_rows < 1:
        yield f"--max-rows is {source.max_rows}; allowed is at least 1.", "Keep one row of each person."
    if persons is None and source.max_rows > 1:
        yield "--max-rows is given without --unit: nothing would be capped.", "Name the column, too."
    if persons is not None and not LEAST_UNITS <= persons <= records:
        yield (
            f"--persons is {persons}; allowed is at least {LEAST_UNITS} and at most --rows-about, {records}.",
            "Give the approximate number of different persons in the column.",
        )
    if source.rows is not None and (source.rows < 1 or source.published is not None):
        yield (
            "--rows is below 1, or beside a preset, which has its own.",
            "Give a number of synthetic rows, or leave it out.",
        )
    if source.max_length is not None and source.max_length < 1:
        yield (f"--max-length is {source.max_length}; allowed is at least 1.", "Give the most characters kept.")


def _check_budget(source: DataSource) -> Iterator[Problem]:
    epsilon, budget, units = source.epsilon, source.budget, source.persons or source.n_public
    if not epsilon >= _LEAST_EPSILON:
        remedy = "Give 1 to 8, say 3; the smaller, the more private."
        yield f"--epsilon is {epsilon:g}; allowed is at least {_LEAST_EPSILON:g}: below, noise drowns any text.", remedy
    if math.isinf(epsilon):
        yield "--epsilon is inf.", "Give a finite one; params.yaml has a variant `inf` to add, a run without noise."
    elif epsilon > _MOST_EPSILON:
        yield (
            f"--epsilon is {epsilon:g}; allowed is at most {_MOST_EPSILON:g}: beyond, the odds that somebody is in the "
            f"data may grow by e^{_MOST_EPSILON:g}, half a billion times, which promises nothing.",
            "Give 1 to 8, say 3. If you mean it, write the larger one beside the variant in params.yaml.",
        )
    if not 0 < budget <= MOST_BUDGET:
        allowed = f"above 0 and at most {MOST_BUDGET:g}"
        yield f"--budget is {budget:g}; allowed is {allowed}.", "Give 10, say: the cap over all releases."
    elif budget < epsilon:
        yield _describe_shortfall(source, epsilon)
    if source.filter not in FILTERS:
        yield f"--filter is {source.filter!r}.", f"Choose one of {', '.join(FILTERS)}; it is fixed at registration."
    elif source.milestones and (why := milestone_problem(source.milestones, source.filter, budget)):
        yield f"--milestones cannot be these: {why}.", "Give what releases may state, say 1,3 under a budget of 10."
    if source.delta is not None and not LEAST_DELTA <= source.delta <= 1 / units:
        unit = "records" if source.persons is None else "persons"
        yield (
            f"--delta is {source.delta:g}; allowed is {LEAST_DELTA:g} to 1 / n for {units} {unit}, "
            f"{delta_down(1 / units)}.",
            "Leave it out: 1 / (n ln n) is the default.",
        )


def _describe_shortfall(source: DataSource, cost: float) -> Problem:
    rows = "the first variant" if source.published is None else f"all that {source.preset} fits and writes"
    return (
        f"--budget is {source.budget:g}; {rows}, at --epsilon {source.epsilon:g}, takes {cost:.2f} of it.",
        f"Raise --budget to {math.ceil(cost * 10) / 10:g} at least, more for later releases, or lower --epsilon.",
    )


def budget_problem(source: DataSource, cost: float) -> Problem | None:
    """Return the problem, in the words of `find_problems`, if the budget cannot pay what the first variant costs."""
    return _describe_shortfall(source, cost) if cost > source.budget else None


def _check_files(source: DataSource) -> Iterator[Problem]:
    """Check that each file is one, and that none stands for another."""
    named = {
        "DATA": source.data, "--public": source.public, "--test": source.test, "--public-test": source.public_test,
    }  # fmt: skip
    seen: dict[Path | str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        try:
            real = path if is_address(path) else Path(path).expanduser().resolve()
        except (OSError, RuntimeError):  # also a link that leads to itself
            yield f"{option} is {str(path)!r}, which leads nowhere.", "Name a file."
            continue
        if real in seen:
            yield f"{option} is the same file as {seen[real]}, {describe(path)!r}.", _APART[option]
        seen.setdefault(real, option)


_FOR_EVER = "What is declared never changes once something was charged: to correct it now, run init again with --force."
_UNNAMED = "Some rows name no person and will be left out."
LIST = PRIVATE / "check.json"
_MOST_NAMES, _LONGEST_NAME, _MOST_WORDS = 30, 40, 3
_HINTS = {
    Kind.LABEL: "Labels are compared exactly, case, spaces and how accents are written too. One with a comma in it is "
    "named by --labels-file; an empty one is no label.",
    Kind.CODING: "Save the file as UTF-8.",
    Kind.TYPE: "Write texts and labels as strings; null is an empty text.",
    Kind.NESTED: FLATTEN,
    Kind.RETURN: "Save the file with line ends of Unix or Windows; what follows could not be checked.",
    Kind.KEY: "Write every key in every line; null stands for none.",
}


@dataclass(frozen=True)
class _Named:
    """A file, the option that names it, and the columns that are read."""

    option: str
    path: Path
    columns: ColumnNames


def files_of(source: DataSource) -> Iterator[_Named]:
    """Yield all files of a data set."""
    keys, label = source.keys, source.label
    own = ColumnNames(source.text, label, source.unit, keys, nobody=True, fields=source.fields)
    yield _Named("DATA", Path(source.data), own)
    if source.public is not None:
        public = ColumnNames(source.text, label if source.public_labels else None, keys=keys, plain=True)
        yield _Named("--public", Path(source.public), public)
    if source.test is not None:
        yield _Named("--test", Path(source.test), ColumnNames(source.text, label, keys=keys, fields=source.fields))
    if source.public_test is not None:
        columns = ColumnNames(source.text, label, keys=keys, plain=True)
        yield _Named("--public-test", Path(source.public_test), columns)


def check_source(source: DataSource) -> None:
    """Check that options fit each other, and that files exist and have the columns.

    Raises:
        ParamsError, DataError: the first that is wrong.
    """
    for problem, remedy in find_problems(source):
        raise ParamsError(problem, remedy)
    check_first_rows(source)


def check_first_rows(source: DataSource) -> None:
    """Check that files exist, may be read, and have the columns and a first row.

    Raises:
        DataError: the first that is wrong, with its option.
    """
    for file in files_of(source):
        _check_there(file)
        _check_first(file, source)


def _check_there(file: _Named) -> None:
    said = f"{file.option} is {str(file.path)!r}"
    if file.path.is_dir():
        raise DataError(f"{said}, a folder.", "Name one data file in it.")
    if not file.path.exists():
        raise DataError(f"{said}: there is no such file.", "Correct the path; it counts from the folder you are in.")
    if not os.access(file.path, os.R_OK):
        raise DataError(f"{said}: it may not be read.", "Give yourself permission to read it, say with chmod u+r.")


def _check_first(file: _Named, source: DataSource) -> None:
    missing = None
    try:
        next(iter_rows(file.path, file.columns, max_length=1, bad=lambda _: False), None)
    except (MissingColumn, RecordError) as error:
        missing = error.column
    if missing is not None:
        there = _describe_columns(names(file.path), source.labels) if owners_terminal() else ""
        option = next(name for name, columns in _columns_by_option(source).items() if missing in columns)
        said = f"{option} is {missing!r}: {file.path.name!r} has no such column.{there}"
        if file.option != "DATA":
            raise DataError(said, f"Name the columns of {file.path.name!r} as those of DATA are named.")
        header = "" if ".json" in file.path.name.lower() else ", or name the file's columns in its first row"
        raise DataError(said, f"Correct {option}{header}. Case and spaces count.")


def _columns_by_option(source: DataSource) -> Mapping[str, Sequence[str | None]]:
    labels, fields = attributes.names(source.label), columns_of(source.fields)
    return {"--text": texts.names(source.text), "--label": labels, "--unit": [source.unit], "--fields": fields}


def tell_of_unread(source: DataSource) -> None:
    """Name the columns of the private file that nothing reads, on the terminal of their owner alone.

    Where one looks like a value, the header may be missing: the first row is then shown nowhere.
    """
    read = {column for columns in _columns_by_option(source).values() for column in columns}
    left = [name for name in names_of(source.data) if name not in read]
    if source.text == WHOLE_ROW or not left or not owners_terminal():
        return
    named = ", ".join(map(repr, left[:_MOST_NAMES])) + ", ..." * (len(left) > _MOST_NAMES)
    shown = "" if any(_is_value(name, source.labels) for name in left) else f": {named}"
    whole = '--task json --text "*" writes whole rows, of JSON lines'
    tell_owner(f"note: synthetic rows will not have the columns that nothing reads{shown}. ({whole}.)")


def _describe_columns(columns: Sequence[str], labels: Collection[str]) -> str:
    """Return a sentence with the column names, unless they look like a record, which is shown nowhere."""
    if any(_is_value(name, labels) for name in columns):
        return " Its first row looks like a record, not like names."
    return f" It has: {', '.join(map(repr, columns[:_MOST_NAMES]))}{', ...' if len(columns) > _MOST_NAMES else ''}."


def _is_value(name: str, labels: Collection[str]) -> bool:
    number = name.strip().replace(".", "", 1).isdigit()
    return number or name in labels or len(name) > _LONGEST_NAME or len(name.split()) > _MOST_WORDS


def names_of(path: Path | str | None) -> list[str]:
    """Return the names of a file's columns; none where it cannot be read, which is told later."""
    with suppress(DataError):
        return [] if path is None else names(Path(path))
    return []


Pass = Mapping[str, tuple[_Named, Checked]]  # option -> the file and what was found in it


def check_all(source: DataSource, schema: PublicSchema, workspace: Path, books: Books | None = None) -> Pass:
    """Go through each file once, and tell the owner of what is found.

    Args:
        source, schema: the data set.
        workspace: where it will be.
        books: of the ledger that it will be entered into, where there is one: it may know the rows by another name.

    Raises:
        DataError: a run would stop at one of the records; the list is then kept.
    """
    print("reading the files once, to check them; no setting is taken from private rows (--no-check leaves this out)")
    labels = tuple(source.labels) or None
    key = books.rows_key if books is not None and books.entries else None
    found = {
        file.option: (file, check(file.path, file.columns, source.max_length or USUAL_LENGTH, labels, key))
        for file in files_of(source)
    }
    try:
        for file, checked in found.values():
            _judge(file, checked, source.bad_rows, workspace)
    except DataError:
        keep(found, workspace)
        raise
    own = found["DATA"][1]
    public = found["--public"][1].marks if "--public" in found else None
    if public is not None and not public:
        raise DataError("--public holds no text with a word.", "Name a file with public text of the same kind.")
    if own.rows and not own.marks:
        tell_owner("note: no text has a word: models may write from such rows, and hardly any audit can read them.")
    if source.unit is not None and own.rows and not own.persons:
        raise nobody_error(source.data, source.unit)
    for told in _describe_odd(own, schema, public or frozenset()):
        tell_owner(f"note: {told}")
    if books is not None and own.likeness is not None and (other := books.same_rows(source.asset, own.likeness)):
        agreed = "palimpsest register --same-rows REASON"
        tell_owner(f"note: asset {other!r} has these rows. A run stops there until `{agreed}`.")
    return found


def keep(found: Pass, workspace: Path) -> None:
    """Write the whole list into the private zone; where there is no fault, there is no list."""
    if any(checked.faults for _, checked in found.values()):
        write_json(workspace / LIST, {"zone": Zone.PRIVATE, "files": [_entry(*each) for each in found.values()]})
    else:
        (workspace / LIST).unlink(missing_ok=True)


def _entry(file: _Named, checked: Checked) -> dict[str, Any]:
    return {
        "option": file.option,
        "file": file.path.name,
        "rows": checked.rows,
        "cut": checked.cut,
        "faults": [fault._asdict() for fault in checked.faults],
    }


def _judge(file: _Named, checked: Checked, policy: str, workspace: Path) -> None:
    """Raise DataError where a run would stop at a record; else say which records are left out, and what is odd."""
    droppable = OF_THE_RECORD if policy == "drop" and checked.rows else frozenset[Kind]()
    stops = [fault for fault in checked.faults if fault.kind not in NOTES | droppable]
    if stops:
        place = file.path.name if file.path.parent.suffix == ".part" else str(file.path)  # a copy is a draft as yet
        shown, remedy = "", "Correct them."
        if owners_terminal():
            shown, remedy = f": {_describe_faults(stops)}", _remedy(stops, checked.rows)
        raise DataError(
            f"{file.option} is {place!r}, which has records that a run would stop at{shown}.",
            f"{remedy} {str(workspace / LIST)!r} lists each with its kind and place.",
        )
    for words, kinds in (("records are left out", droppable), ("worth a look", NOTES - droppable)):
        if faults := [fault for fault in checked.faults if fault.kind in kinds]:
            tell_owner(f"note: {file.path.name!r}, {words}: {_describe_faults(faults)}.")


def _describe_faults(faults: list[Found]) -> str:
    """Return the kinds of faults, and the place of the first."""
    first = faults[0]
    column = "" if first.column is None else f", column {first.column!r}"
    kinds = "; ".join(dict.fromkeys(fault.kind for fault in faults))
    return f"{kinds}. The first is {Place(first.row, first.line)}{column}"


def _remedy(stops: list[Found], readable: int) -> str:
    kinds = {fault.kind for fault in stops}
    if Kind.QUOTE in kinds:
        return "Close every quote, and double the quotes inside a quoted field; what follows could not be checked."
    hints = "".join(f" {hint}" for kind, hint in _HINTS.items() if kind in kinds)
    if not kinds <= OF_THE_RECORD:
        return f"Correct them: faults of the file's structure always stop, for they may hide other records.{hints}"
    leave = ", or leave such records out with --bad-rows drop, which is public" if readable else ""
    return f"Correct them{leave}.{hints}"


def _describe_odd(checked: Checked, schema: PublicSchema, public: frozenset[int]) -> list[str]:
    """Return what is far from what was declared, or is public as well, without a count."""
    seen = {label: checked.labels.get(label, 0) for label in schema.label_names}
    sizes = [each.told for each in odd_sizes(checked.rows, checked.persons, schema)]
    unnamed = [_UNNAMED] if schema.unit_column is not None and checked.nobody else []
    others = [*odd_labels(seen), *odd_public(len(checked.marks & public))]
    return [*sizes, *[_FOR_EVER] * bool(sizes), *unnamed, *(each.told for each in others)]


def tell_of_rows(workspace: Path) -> None:
    """Tell what `preprocess` found odd about the rows, or could not read, on their owner's terminal and in no log."""
    found = next((path for path in (ROWS_REPORT, FAULT) if (workspace / path).is_file()), None)
    if owners_terminal() and found is not None:
        for told in read_json(workspace / found).get("told", ()):
            tell_owner(f"note: {told}")


def fit_to_public(source: DataSource) -> DataSource:
    """Return the source with the limits that its public texts need; the private file is not looked at."""
    if source.public is None:
        return source
    fitted = fit_lengths(source, next(one.columns for one in files_of(source) if one.option == "--public"))
    if (most := fitted.text_tokens) is not None:
        full = ", the most that the language model has room for" * (most == find_room(source.lm))
        print(f"limits, from the public texts: {fitted.max_length:,} characters, about {most} tokens{full}")
    return fitted
