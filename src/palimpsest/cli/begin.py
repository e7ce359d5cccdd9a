"""The commands that make a workspace, and the questions that they ask: init, synth and demo."""

import re
import shlex
import sys
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import files
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from palimpsest.cli.command import Anyway, Lost, Workspace, end, take_options
from palimpsest.cli.look import sample, show_plan
from palimpsest.cli.release import make_key
from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.method import Method
from palimpsest.params.file import FILE
from palimpsest.params.schema import NAME
from palimpsest.privacy.shown import down, up
from palimpsest.work.decisions import DataSource
from palimpsest.workspace import SYNTHETIC

commands = typer.Typer()
# Options of `Decisions` that are asked for on a terminal where they are missing.
ASKED = (
    "data", "text", "public", "author", "n_public", "asset", "label", "labels", "labels_file", "unit", "persons",
    "max_rows", "language", "epsilon", "budget",
)  # fmt: skip
_FIELDS = {"task": "chosen", "method": "wanted", "counted": "filter"}  # option -> field of `DataSource`


class Init(TyperCommand):
    """A command whose help lists the methods there are: they are looked up when it is shown, and not before."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; the help of `--method` comes from the registry."""
        option = next(each for each in self.params if each.name == "method")
        option.help = method_help()  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


_PREFIX = "One row of the results: "


def method_help() -> str:
    """Return the help of `--method`: each method with its sentence and the tasks that it can do."""
    from palimpsest.work.check import FIRST

    lines = [f"{name}: {_sentence(known)} ({', '.join(known.tasks)})" for name, known in FIRST.items()]
    begin = "none: select where there are labels, predict for span, dp_lm for the rest. A preset has a paper's methods"
    return f"How the first variant's rows are made; {begin}. {'; '.join(lines)}."


def _sentence(known: Method) -> str:
    words = known.title.removeprefix(_PREFIX).rstrip(".")
    return words[0].lower() + words[1:]


@dataclass(frozen=True)
class Decisions:
    """The decisions of a person about a data set: the options of `init` and `synth`."""

    context: typer.Context
    data: Annotated[
        str | None,
        typer.Argument(
            help="The private table: CSV, TSV, JSONL, JSON or Parquet, plain or gzipped, or .xlsx; a file or address: "
            "s3://, hf://datasets/, https://, or 'postgresql://host/database#TABLE', where TABLE may be a query."
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            help="Name of the text column; several as 'title,body'; 'turns(messages)' for conversations; '*': with "
            "--task json, a line is a record."
        ),
    ] = None
    public: Annotated[
        str | None,
        typer.Option(help="Public text of the same kind, with the same text column; none: an author writes it."),
    ] = None
    author: Annotated[
        str | None,
        typer.Option(
            help="Without --public: who writes it, shown no record. An endpoint as URL#MODEL, a chat model's folder or "
            "hub name@commit, a YAML file with an author as params.yaml has it, or base, the model of --lm."
        ),
    ] = None
    about: Annotated[
        str | None, typer.Option(help="What the texts are, for the author: public, as 'questions to an encyclopedia'.")
    ] = None
    n_public: Annotated[
        int | None, typer.Option("--rows-about", "--n-public", help="About how many private records there are: public.")
    ] = None
    asset: Annotated[
        str | None, typer.Option(help="A name for the data set in the ledger; none: that of the file.")
    ] = None
    label: Annotated[str | None, typer.Option(help="Name of the label column; several, with commas between.")] = None
    labels: Annotated[
        str | None, typer.Option(help="All labels, separated by commas; name=description describes one.")
    ] = None
    labels_file: Annotated[
        Path | None,
        typer.Option(
            help="Instead of --labels: YAML with `label: description` lines, for texts with commas; of several "
            "columns, such lines under the name of each."
        ),
    ] = None
    fields: Annotated[
        str | None,
        typer.Option(
            help="Columns that come out beside the text, with public lists and bounds: 'priority:category(low|high), "
            "age:number(0..120, 5), sent:date(2024-01..2026-12, month)'."
        ),
    ] = None
    test: Annotated[str | None, typer.Option(help="Private test file; none cuts a part from DATA.")] = None
    public_test: Annotated[str | None, typer.Option(help="A labelled test file that is public.")] = None
    public_license: Annotated[
        str | None, typer.Option(help="Licence of the public file, stated where a method releases its texts.")
    ] = None
    public_labels: Annotated[bool, typer.Option(help="The public file has the label column too.")] = False
    unit: Annotated[
        str | None,
        typer.Option(help="Column whose value is the person; the person is then protected, not the single record."),
    ] = None
    max_rows: Annotated[int, typer.Option(help="With --unit: most rows kept of one person.")] = DataSource.max_rows
    persons: Annotated[int | None, typer.Option(help="With --unit: public, approximate number of persons.")] = None
    rows: Annotated[
        int | None, typer.Option(help="Synthetic rows to make; none: as many as is usual for the method.")
    ] = None
    max_length: Annotated[
        int | None,
        typer.Option(help="Longest text kept, in characters; none: 1,000, or what keeps 95% of public texts whole."),
    ] = DataSource.max_length
    language: Annotated[str, typer.Option(help="Language of the texts as a BCP 47 tag: en, de, pt-BR, zh-Hans.")] = (
        DataSource.language
    )
    epsilon: Annotated[
        float,
        typer.Option(
            help="Epsilon of the first variant, 0.05 to 20; of each row of a paper's preset, which has its own default."
        ),
    ] = DataSource.epsilon
    budget: Annotated[
        float, typer.Option(help="Cap on the data set's total epsilon; it must pay the first variant.")
    ] = DataSource.budget
    delta: Annotated[float | None, typer.Option(help="The data set's delta; none: 1 / (n ln n), n units.")] = None
    counted: Annotated[
        str,
        typer.Option(
            "--filter",
            help="What the total is counted in, for good: gdp (Gaussian DP), which costs most plans less, or renyi.",
        ),
    ] = DataSource.filter
    milestones: Annotated[
        str | None,
        typer.Option(
            help="With gdp: epsilons below the budget that releases may state, for good, as 1,3; none: proposed."
        ),
    ] = None
    lm: Annotated[str, typer.Option(help="Causal LM: embedded, a folder, or a hub name@commit.")] = DataSource.lm
    words: Annotated[
        str | None,
        typer.Option(
            help="With --lm: what prompts call a text and its label: texts, reviews, news, questions, tweets, tickets, "
            "notes or json. None: texts, or json with --task json."
        ),
    ] = None
    preset: Annotated[
        str,
        typer.Option(
            help="Settings: modern, or all methods of a paper as it prints them: paper-000 (DP fine-tuning, steered), "
            "paper-002 (evolution of texts), paper-003 (private prediction), paper-004 (evolution of embeddings)."
        ),
    ] = DataSource.preset
    task: Annotated[
        str | None, typer.Option(help="classify, span, text or json; none: classify where there is a label, else text.")
    ] = None
    json_schema: Annotated[
        Path | None, typer.Option(help="With --task json: a file with the public JSON schema of a record.")
    ] = None
    method: Annotated[
        str | None, typer.Option(help="How the first variant's rows are made.")  # `Init` says which there are
    ] = None
    bad_rows: Annotated[
        str,
        typer.Option(
            help="A record with a label that is not listed, or a field that cannot be decoded: stop, or drop it, and "
            "empty texts too. A public choice, kept in params.yaml."
        ),
    ] = DataSource.bad_rows
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Read every file once and say which kinds of faults there are. No setting is taken from what is read; "
            "the whole list is in data/private/check.json.",
        ),
    ] = True

    def read(self) -> DataSource:
        """Return what was decided about the data, after asking on a terminal for what is missing."""
        from palimpsest.work import begin

        said = {_FIELDS.get(name, name): value for name, value in (vars(self) | self._complete()).items()}
        del said["context"], said["check"]
        said["label"], said["author"] = begin.read_label(said["label"], said["data"]), begin.read_author(said["author"])
        said["text"] = begin.read_text(said["text"], said["data"], said["public"])
        said["labels"] = begin.read_labels(said["labels"], said.pop("labels_file"), said["label"])
        said |= {"fields": begin.read_fields(self.fields), "json_schema": begin.read_schema(self.json_schema)}
        return DataSource(**said | {"milestones": begin.read_milestones(self.milestones)})

    def _complete(self) -> dict[str, Any]:
        """Return the options that are asked for where they are missing, as given or answered."""
        from palimpsest.work.decisions import usual_epsilon

        epsilon = self.epsilon if _was_given(self.context, "epsilon") else usual_epsilon(self.preset)
        said = {name: getattr(self, name) for name in ASKED} | {"epsilon": epsilon}
        if self.public is None and self.author is None and self.lm != DataSource.lm:
            said["author"] = "base"
        given = {
            name: _was_given(self.context, name) for name in ("asset", "epsilon", "budget", "max_rows", "language")
        }
        return complete(said, given, str(self.context.info_name))


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


@commands.command(cls=Init)
@take_options(Decisions)
def init(
    decisions: Decisions,
    force: Annotated[bool, typer.Option("--force", help="Overwrite params.yaml.")] = False,
    lost: Lost = False,
    workspace: Workspace = Path(),
) -> None:
    """Make a workspace for a file of your own and register it.

    Reads neither labels nor sizes out of the data. Without DATA or another thing that is needed, it asks for each in
    turn, on a terminal.
    """
    from palimpsest.work.begin import init_workspace

    init_workspace(workspace, decisions.read(), force=force, lost=lost, check=decisions.check)
    print("next: palimpsest plan, then palimpsest run")


@commands.command(cls=Init)
@take_options(Decisions)
def synth(
    decisions: Decisions,
    yes: Annotated[bool, typer.Option("--yes", help="Charge without asking, for scripts.")] = False,
    anyway: Anyway = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A folder for the workspace; none: one named after the asset, here.")
    ] = None,
) -> None:
    """From a file of your own to rows in one line.

    Makes a workspace, shows the plan, asks, runs, and prints some rows. The same line again goes on where it stopped,
    and charges nothing again. On a terminal, what is missing is asked.
    """
    end(_synthesise(decisions.read(), folder, check=decisions.check, yes=yes, anyway=anyway))


def _synthesise(source: DataSource, folder: Path | None, *, check: bool, yes: bool, anyway: bool) -> int:
    """Return the exit status. A folder with a workspace of the same decisions is continued.

    Raises:
        PalimpsestError: an option or a file is wrong, the folder has another workspace, or nobody can be asked.
    """
    from palimpsest.work.begin import init_workspace, require_same, use_copies
    from palimpsest.work.check import check_source, fit_to_public
    from palimpsest.work.context import open_workspace
    from palimpsest.work.plan import summarise_plan
    from palimpsest.work.run import run_workspace

    workspace = folder or Path(f"{source.asset}-workspace")
    if (workspace / FILE).exists():
        source = use_copies(source, workspace)
        require_same(workspace, fit_to_public(source) if check else source)
        check_source(source)
        print(f"going on with the workspace {workspace}, which this line has made before")
    else:
        init_workspace(workspace, source, force=False, check=check)
    show_plan(workspace)
    plan = summarise_plan(open_workspace(workspace))
    if not plan.writing and any(line.cost.may_be_paid for line in plan.lines):  # to write may cost money
        print("The file is read first, which charges nothing, to see whether its rows were charged before.", flush=True)
        if code := run_workspace(workspace, ["preprocess"], ui=False, stay=False, workers=0):
            return code
        show_plan(workspace)
    if not _may_charge(workspace, yes=yes):
        print(f"Nothing ran and nothing was charged. The workspace {workspace} stays; the same line asks again.")
        return 1
    show = partial(_show_first, workspace)
    code = run_workspace(workspace, [], ui=False, stay=False, workers=0, anyway=anyway, then=show)
    if code == 0:
        _show_rows(workspace)
        print(f"{workspace / 'README.md'} says what the folders hold, what may be shared, and how to go on.")
    return code


def _may_charge(workspace: Path, *, yes: bool) -> bool:
    """Ask whether to charge what the plan says; where it charges nothing, or does not fit, there is nothing to ask.

    Raises:
        LedgerError: there is no terminal, and no `yes`.
    """
    from palimpsest.work.before import may_charge
    from palimpsest.work.context import open_workspace
    from palimpsest.work.plan import summarise_plan

    plan = summarise_plan(open_workspace(workspace))
    asked = plan.after - plan.spent
    if yes or (round(asked, 6) <= 0 and not plan.writing) or not plan.fits:
        return True
    charge = f"epsilon {up(asked)} of the {down(plan.left)} that is left of the budget of {plan.asset}"
    charge += f", after public text is written ({plan.writing.rstrip('.')})" if plan.writing else ""
    return may_charge("This run", charge, "The workspace is made, and nothing was charged.")


def _show_first(workspace: Path) -> None:
    _show_rows(workspace)
    print("\nThe rows are made. Audits of them follow; Ctrl-C stops these, and the same line goes on.", flush=True)


def _show_rows(workspace: Path) -> None:
    from palimpsest.params.load import read
    from palimpsest.work.look import list_showable

    for name in list_showable(read(workspace), workspace):
        print(f"\nSome rows of {name}, all in {workspace / SYNTHETIC / f'{name}.jsonl'}:")
        sample(name, workspace=workspace)


@commands.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="A folder for it; one that has the demo goes on.")] = Path(),
) -> None:
    """The whole pipeline on invented support tickets, offline.

    All families of methods, the audits and a release.
    """
    raise typer.Exit(run_demo(folder))


_CLONE = Path(__file__).parents[3]  # of the sources; an installation has no params.yaml there


def run_demo(folder: Path, settings: Path | None = None) -> int:
    """Make the demo's workspace where there is none, and bring it up to date; return the exit status of `run`.

    `settings` is a params.yaml of an invented world to use in place of the one that ships.

    The rows are invented, so the person who runs it owns them: nobody is asked before the release.

    Raises:
        ParamsError: the folder holds a workspace of other data, or another project.
    """
    from palimpsest.params.load import loads, read
    from palimpsest.work.begin import make_workspace, require_free
    from palimpsest.work.context import contents
    from palimpsest.work.ledger import register_asset
    from palimpsest.work.run import run_workspace

    if not (folder / FILE).exists():
        require_free(folder, force=False)
        text = (settings or _settings()).read_text(encoding="utf-8")
        make_workspace(folder, {FILE: text, **contents(loads(text))})
    if read(folder).world is None:
        raise ParamsError("This folder has a workspace of other data.", "Name another folder with --dir.")
    register_asset(folder)
    make_key(None, keep=True)
    return run_workspace(folder, [], ui=False, stay=False, yes=True, workers=0)


def _settings() -> Path:
    """Return the demo's settings: of the clone, or as they were installed."""
    installed = [Path(str(each.locate())) for each in files("palimpsest") or () if each.name == FILE]
    found = next((path for path in (_CLONE / FILE, *installed) if path.is_file()), None)
    if found is None:
        raise DataError("The demo's params.yaml is not in this installation.", "Install the wheel again.")
    return found


_NEEDED = ("data", "text", "public", "n_public")  # these cannot be known in any other way
Given = Mapping[str, Any]


def _has_unit(given: Given) -> bool:
    return given["unit"] is not None


def _parse_file(answer: str) -> Path | str:
    from palimpsest.records.sources import is_address

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
    from palimpsest.records.sources import describe

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
    name: str  # the option's, as `init` has it
    words: str  # the question, in a line
    kind: Callable[[str], Any] = str  # how an answer is read
    needed: bool = True  # whether an empty answer is asked again
    asked: Callable[[Given], bool] = lambda _: True  # whether it is asked, given what is known so far
    again: str = "This is needed."  # the words for an empty answer where one is needed
    offered: Callable[[Given], Any] = lambda _: None  # the meaning of an empty answer where there is no default


def option_of(name: str) -> str:
    """Return the option of a decision.

    >>> option_of("max_rows"), option_of("n_public")
    ('--max-rows', '--rows-about')
    """
    return "--rows-about" if name == "n_public" else f"--{name.replace('_', '-')}"


_QUESTIONS = (
    _Question("data", "The private table: a CSV, TSV, JSONL, JSON, Parquet or .xlsx file, or an address.", _parse_file),
    _Question(
        "public",
        "Public text of the same kind, in a file of its own, with the same text column; empty where you have none.",
        _parse_file,
        needed=False,
        asked=lambda given: given["author"] is None,
    ),
    _Question(
        "author",
        "Who writes public text instead: an endpoint as URL#MODEL, a chat model, or base beside --lm.",
        asked=lambda given: given["public"] is None,
        again="Without public text somebody has to write it; nobody is shown a record.",
    ),
    _Question("text", "The column that holds the text."),
    _Question("label", "The column that holds the label; leave it empty for text without labels.", needed=False),
    _Question(
        "labels",
        "All labels, separated by commas; name=description describes one. They are public and come from you.",
        asked=lambda given: given["label"] is not None and given["labels_file"] is None,
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
    spared = ["public"] * (given.get("author") is not None)
    missing = [name for name in _NEEDED if given[name] is None and name not in spared]
    if not missing:
        return {**given, "asset": _name_from_file(given) if given["asset"] is None else given["asset"]}
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        others = [name for name in missing if name != "public"]
        if not others:  # who could write it is checked together with all else
            return {**given, "asset": given["asset"] or _name_from_file(given)}
        option = "DATA" if others[0] == "data" else option_of(others[0])
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
    from palimpsest.records.sources import describe

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
