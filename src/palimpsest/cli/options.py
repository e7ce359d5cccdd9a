"""The decisions of `palimpsest init`: given as options and checked, or asked on a terminal one at a time."""

import math
import re
import shlex
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import typer

from palimpsest.cli.decisions import DataSource
from palimpsest.errors import ParamsError
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.method import Method
from palimpsest.methods.shared.tools import Reads
from palimpsest.models.words import Named
from palimpsest.params.preset import presets
from palimpsest.params.schema import LANGUAGE, LEAST_UNITS, MOST_BUDGET, MOST_RECORDS, NAME
from palimpsest.privacy.ledger.records import FILTERS, milestone_problem
from palimpsest.privacy.shown import delta_down
from palimpsest.records import schema
from palimpsest.records.faults import POLICIES
from palimpsest.records.schema import LEAST_DELTA
from palimpsest.records.sources import describe, is_address
from palimpsest.records.structured import WHOLE_ROW

_MODERN = "modern"
_WORDS = get_args(Named)
_TASKS = ("classify", "span", "text", "json")
_LEAST_EPSILON, _MOST_EPSILON = 0.05, 20.0
_PREFIX = "One row of the results: "

Problem = tuple[str, str]
_APART = {
    "--public": "Name public text that holds none of the private rows.",
    "--test": "Name other rows, or leave --test out: a test part is then cut from the private file.",
    "--public-test": "Name other rows, which are public, or leave it out.",
}
_NEEDED = ("data", "text", "public", "n_public")  # these cannot be known in any other way


def _may_be_first(known: Method) -> bool:
    """Whether a first variant can be of that method: it builds on no other charge, and is no baseline."""
    return not known.reads & {Reads.FITTED, Reads.SOURCE, Reads.SOURCES} and not known.baseline


_FIRST: dict[str, Method] = {known.name: known for known in METHODS if _may_be_first(known)}


def method_help() -> str:
    """Return the help of `--method`: each method with its sentence and the tasks that it can do."""
    lines = [f"{name}: {_sentence(known)} ({', '.join(known.tasks)})" for name, known in _FIRST.items()]
    begin = "none: select where there are labels, predict for span, dp_lm for the rest. A preset has a paper's methods"
    return f"How the first variant's rows are made; {begin}. {'; '.join(lines)}."


def _sentence(known: Method) -> str:
    words = known.title.removeprefix(_PREFIX).rstrip(".")
    return words[0].lower() + words[1:]


def find_problems(source: DataSource) -> Iterator[Problem]:
    """Yield each problem with the option, its value and what is allowed, and what to do."""
    return chain(
        _check_task(source), _check_columns(source), _check_preset(source), _check_method(source), _check_words(source),
        _check_sizes(source),
        _check_budget(source), _check_files(source),
    )  # fmt: skip


def _check_task(source: DataSource) -> Iterator[Problem]:
    """Check that the columns, the labels and the schema are those of the task."""
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
    if task == "json" and (label or labels):
        yield "--task json has no labels.", "Leave --label and --labels out."
    if task != "json" and source.text == WHOLE_ROW:
        yield f"--text is {WHOLE_ROW!r}.", "Name the text column; only for --task json is a row a record."


def _check_columns(source: DataSource) -> Iterator[Problem]:
    for option, column in (("--text", source.text), ("--label", source.label), ("--unit", source.unit)):
        if column == "":
            yield f"{option} is empty.", "Name a column of the file."
    if source.text in schema.names(source.label):
        yield f"--text and --label are both {source.text!r}.", "Name two columns."
    if source.unit == source.text:
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
    """Check that there is such a preset, its methods can do the task, and no other method is asked for."""
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
    """Check that the first variant's method exists and can do the task."""
    known = _FIRST.get(source.method)
    if source.published is not None:
        return
    if known is None:
        yield f"--method is {source.method!r}.", f"Choose one of {', '.join(_FIRST)}."
    elif source.task in _TASKS and source.task not in known.tasks:
        able = [name for name, other in _FIRST.items() if source.task in other.tasks]
        yield (
            f"--method {source.method} is for task {' or '.join(known.tasks)}; the task is {source.task}.",
            f"Choose one of {', '.join(able)}; --label with --labels makes the task classify.",
        )


def _check_words(source: DataSource) -> Iterator[Problem]:
    """Check the language model, its prompts' word for a text, and the ledger's name for the data set."""
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
    """Check the numbers of records and persons, and what is kept of one."""
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
        yield (
            f"--max-length is {source.max_length}; allowed is at least 1.",
            "Give the most characters kept.",
        )


def _check_budget(source: DataSource) -> Iterator[Problem]:
    """Check how private the first variant is, and the data set as a whole."""
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


Given = Mapping[str, Any]


def _always(_: Given) -> bool:
    return True


def _no_default(_: Given) -> None:
    return None


def _has_labels(given: Given) -> bool:
    return given["label"] is not None and given["labels_file"] is None


def _has_unit(given: Given) -> bool:
    return given["unit"] is not None


def _parse_file(answer: str) -> Path | str:
    path = answer if is_address(answer) else Path(answer).expanduser()
    if isinstance(path, Path) and not path.is_file():
        raise ValueError("there is no such file")
    return path


def _parse_name(answer: str) -> str:
    if not re.fullmatch(NAME, answer):
        raise ValueError("a name is lower-case letters, digits and _, a letter first")
    return answer


def _name_from_file(given: Given) -> str:
    """Return a name for a data set: its file's without accents; a checksum stands for letters that are not Latin."""
    stem = unicodedata.normalize("NFKD", Path(describe(given["data"])).name.partition(".")[0].lower())
    name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"[\u0300-\u036f]", "", stem)).strip("_")
    if any(letter.isalpha() and not letter.isascii() for letter in stem):
        name = f"{name or 'data'}_{zlib.crc32(stem.encode('utf-8', 'replace')):08x}"
    return name if re.fullmatch(NAME, name) else f"data_{name}".strip("_")


def _parse_whole(answer: str) -> int:
    if not answer.isdecimal():
        raise ValueError("that is no whole number")
    return int(answer)


def _parse_number(answer: str) -> float:
    try:
        return float(answer)
    except ValueError:
        raise ValueError("that is no number") from None


@dataclass(frozen=True)
class _Question:
    """One thing to ask.

    Attributes:
        name: the option's, as `init` has it.
        words: the question, in a line.
        kind: how an answer is read.
        needed: whether an empty answer is asked again.
        asked: whether it is asked, given what is known so far.
        again: the words for an empty answer where one is needed.
        offered: the meaning of an empty answer where there is no default.
    """

    name: str
    words: str
    kind: Callable[[str], Any] = str
    needed: bool = True
    asked: Callable[[Given], bool] = _always
    again: str = "This is needed."
    offered: Callable[[Given], Any] = _no_default


def option_of(name: str) -> str:
    """Return the option of a decision.

    >>> option_of("max_rows"), option_of("n_public")
    ('--max-rows', '--rows-about')
    """
    return "--rows-about" if name == "n_public" else f"--{name.replace('_', '-')}"


_QUESTIONS = (
    _Question("data", "The private table: a CSV, TSV, JSONL, JSON, Parquet or .xlsx file, or an address.", _parse_file),
    _Question("public", "Public text of the same kind, in a file of its own, with the same text column.", _parse_file),
    _Question("text", "The column that holds the text."),
    _Question("label", "The column that holds the label; leave it empty for text without labels.", needed=False),
    _Question(
        "labels",
        "All labels, separated by commas; name=description describes one. They are public and come from you.",
        asked=_has_labels,
        again="Labels are never taken from the data: a rare one would tell that somebody has it. Name them all.",
    ),
    _Question(
        "n_public",
        "About how many private records there are. It is public: noise follows from it. A round number is best.",
        _parse_whole,
    ),
    _Question("unit", "The column that names the person, where one has several rows; else empty.", needed=False),
    _Question(
        "persons",
        "About how many persons that column names. It is public: noise and delta follow from it.",
        _parse_whole,
        asked=_has_unit,
    ),
    _Question(
        "max_rows",
        "How many rows are kept of a person. It is public: the rest are left out.",
        _parse_whole,
        needed=False,
        asked=_has_unit,
    ),
    _Question("language", "The language of the texts, as en, de, pt-BR, zh-Hans. It is public.", needed=False),
    _Question(
        "asset",
        "A name for the data set in the ledger: lower-case letters, digits and _. It is public.",
        _parse_name,
        needed=False,
        offered=_name_from_file,
    ),
    _Question(
        "epsilon",
        "How much the first variant may tell of one record, or person: 1 is strict, 8 is loose. It is public.",
        _parse_number,
        False,
    ),
    _Question(
        "budget", "The cap on epsilon over all that is ever made of these data. It is public.", _parse_number, False
    ),
)


def complete(given: Given, chosen: Mapping[str, bool], command: str) -> dict[str, Any]:
    """Return the options after asking for what was missing; if nothing is missing, nothing is asked.

    Args:
        given: name -> value, None where there is none.
        chosen: name -> whether the user gave the option, of those that have a default.
        command: the command that they are for.

    Raises:
        ParamsError: something is missing, and there is no terminal to ask on.
    """
    missing = [name for name in _NEEDED if given[name] is None]
    if not missing:
        return {**given, "asset": _name_from_file(given) if given["asset"] is None else given["asset"]}
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        option = "DATA" if missing[0] == "data" else option_of(missing[0])
        remedy = (
            f"`palimpsest {command} --help` has an example; on a terminal, `palimpsest {command}` asks for each thing."
        )
        raise ParamsError(f"{option} is missing.", remedy)
    answers = dict(given)
    for question in _QUESTIONS:
        if _is_open(question, answers, chosen):
            answers[question.name] = _answer(question, answers[question.name] or question.offered(answers))
    typer.echo(f"\nthe same without questions, beside what else you gave: palimpsest {command} {_line(answers)}\n")
    return answers


def _line(answers: Given) -> str:
    """Return the options of the command line that give these answers; of an address only what may be shown."""
    named = {question.name: answers[question.name] for question in _QUESTIONS if question.name != "data"}
    told = {name: value for name, value in named.items() if value is not None}
    if told.get("unit") is None:
        told.pop("max_rows", None)
    options = [part for name, value in told.items() for part in (option_of(name), describe(str(value)))]
    return shlex.join([describe(answers["data"]), *options])


def _is_open(question: _Question, known: Given, chosen: Mapping[str, bool]) -> bool:
    told = chosen.get(question.name, known[question.name] is not None)
    return not told and question.asked(known)


def _answer(question: _Question, default: Any) -> Any:
    typer.echo(f"\n{question.words}")
    while True:
        text = typer.prompt(question.name, default="" if default is None else str(default), show_default=bool(default))
        if not text.strip():
            if not question.needed:
                return default
            typer.echo(question.again)
            continue
        try:
            return question.kind(text.strip())
        except ValueError as error:
            typer.echo(f"{text.strip()!r}: {error}.")
