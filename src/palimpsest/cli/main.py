"""The command line. Each command calls a plain function in its own module; heavy imports wait until then."""
# ruff: noqa: E402

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from palimpsest.parts import import_in_parts

# Before what they are about is imported.
import_in_parts("dp_accounting")
gc.set_threshold(100_000)  # what an import makes stays: looking for garbage in it takes a tenth of a command's time

from palimpsest import __version__, extensions
from palimpsest.cli.command import HELP, RICH, end, take_options
from palimpsest.cli.decisions import DataSource
from palimpsest.errors import PalimpsestError, ParamsError, machine_error
from palimpsest.files import restrict_to_owner

if TYPE_CHECKING:
    from palimpsest.cli.decisions import Decided

# In the order of use; what is not named here comes last.
ORDER = (
    "demo", "synth", "init", "plan", "run", "serve", "deploy", "sample", "samples", "compare", "sweep",
    "report", "status", "ledger", "params", "verify", "keys", "register", "render", "twins",
)  # fmt: skip
# Options of `Decisions` that are asked for on a terminal where they are missing.
ASKED = (
    "data", "text", "public", "n_public", "asset", "label", "labels", "labels_file", "unit", "persons", "max_rows",
    "language", "epsilon", "budget",
)  # fmt: skip
EXAMPLES = {
    "synth": (
        "palimpsest synth reviews.csv --text review --label stars --labels one,two,three,four,five --public public.csv "
        "--n-public 8000 --epsilon 3",
    ),
    "sample": ("palimpsest sample", "palimpsest sample select3 --rows 5 --label five --seed 1"),
    "samples": ("palimpsest samples", "palimpsest samples select3 public_only --rows 1000"),
    "compare": (
        "palimpsest compare",
        "palimpsest compare select3 dp3 --json",
        "palimpsest compare ~/reviews ~/tickets --plot compared.svg",
    ),
    "sweep": (
        "palimpsest sweep dp3 temperature=0.7,1.0 top_p=0.9,1.0 --plan",
        "palimpsest sweep dp3 model.model.epochs=3,6 --yes",
    ),
    "init": (
        "palimpsest init reviews.csv --text review --label stars --labels one,two,three,four,five --public public.csv "
        "--n-public 8000 --asset reviews --epsilon 3",
    ),
    "demo": ("palimpsest demo --dir demo",),
    "plan": ("palimpsest plan", "palimpsest plan --json | jq '.after'"),
    "run": ("palimpsest run", "palimpsest run pplm_generate@dp3", "palimpsest run --ui"),
    "serve": ("palimpsest serve --cron '0 3 * * *'", "palimpsest serve --cron '0 3 * * 1' --timezone Europe/Berlin"),
    "deploy": ("palimpsest deploy --on docker --cron '0 3 * * *' --notify slack-webhook/ops", "palimpsest deploy"),
    "report": ("palimpsest report", "palimpsest report --json | jq '.rows[].variant'"),
    "status": ("palimpsest status", "palimpsest status -w ~/reviews --json"),
    "ledger": ("palimpsest ledger", "palimpsest ledger --verify", "palimpsest ledger --refund 3f2a91c0"),
    "export": ("palimpsest ledger export ~/backup/ledger.jsonl",),
    "import": ("PALIMPSEST_LEDGER=postgresql+psycopg://owner@host/ledger palimpsest ledger import ledger.jsonl",),
    "team": ("palimpsest ledger team research 1.5",),
    "roles": ("palimpsest ledger roles | psql ledger",),
    "merge-check": ("palimpsest ledger merge-check ~/backup/ledger.jsonl ~/.local/share/palimpsest/ledger.db",),
    "params": ("palimpsest params", "palimpsest params --all"),
    "verify": ("palimpsest verify", "palimpsest verify release/ --key releaser.pem"),
    "keys": ("palimpsest keys new",),
    "new": ("palimpsest keys new", "palimpsest keys new --path ~/keys/release.pem"),
    "register": ("palimpsest register", "palimpsest register --amend"),
    "render": ("palimpsest render",),
    "twins": ("palimpsest twins select", "palimpsest twins dp_lm --out twins"),
}


class Commands(TyperGroup):
    """The commands in the order of use; an error of ours becomes two lines and exit status 1."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of commands, as help lists them."""
        names = [*super().list_commands(ctx), *self._extension_commands(ctx)]
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with examples under its help."""
        found, examples = super().get_command(ctx, cmd_name), EXAMPLES.get(cmd_name, ())
        if found is None and cmd_name in self._extension_commands(ctx):
            brought = extensions.load(self._extension_commands(ctx)[cmd_name])
            found, examples = brought.command(cmd_name), brought.examples
        if found is not None and examples:
            found.epilog = "\n\n".join(["Examples:", *examples])
        return found

    def _extension_commands(self, ctx: Any) -> Mapping[str, EntryPoint]:
        """Return the commands that packages bring, which stand beside ours and in none of our groups."""
        inner = ctx is not None and ctx.parent is not None
        return {} if inner else extensions.find_entries(extensions.COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command; refuse an option given twice, of which the last would count silently."""
        name, found, rest = super().resolve_command(ctx, args)
        if isinstance(found, TyperCommand | TyperGroup):
            _require_once(found, ctx, rest)
        return name, found, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the named command; only its user can open what it makes."""
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # of a sign that the terminal does not have
        try:
            with restrict_to_owner():
                return super().invoke(ctx)
        except (PalimpsestError, OSError, MemoryError) as error:
            told = error if isinstance(error, PalimpsestError) else machine_error(error)
            if told is None:
                raise
            print(told.lines, file=sys.stderr)
            raise typer.Exit(1) from None


def _require_once(command: TyperCommand | TyperGroup, ctx: Any, args: list[str]) -> None:
    silent = command.context_class(command, parent=ctx, resilient_parsing=True)  # other faults are for the command
    _, _, given = command.make_parser(silent).parse_args(list(args))
    values = [each for each in given if isinstance(each, TyperOption) and not (each.is_flag or each.multiple)]
    twice = next((each for each in values if values.count(each) > 1), None)
    if twice is not None:
        raise ParamsError(f"{twice.opts[0]} is given twice.", "Give it once; several values have commas between them.")


class Init(TyperCommand):
    """A command whose help lists the methods there are: they are looked up when it is shown, and not before."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; the help of `--method` comes from the registry."""
        from palimpsest.cli.options import method_help

        option = next(each for each in self.params if each.name == "method")
        option.help = method_help()  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=Commands,
    help="Differentially private synthetic text, with a metered privacy budget and an audit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    rich_markup_mode=RICH,
)

keys = typer.Typer(cls=Commands, help="The key that signs releases.", no_args_is_help=True)
app.add_typer(keys, name="keys")
books = typer.Typer(cls=Commands)
app.add_typer(books, name="ledger")

Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="The folder with params.yaml and dvc.yaml.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Charge also where noise is expected to decide over private rows.")
]
Lost = Annotated[
    bool, typer.Option("--lost", help="The data set's earlier ledger is lost, and what it spent is unknown.")
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Differentially private synthetic text, with a metered privacy budget and an audit."""


@app.command()
def plan(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """What would run and why, what it costs and whether it fits the budget, before a row is read."""
    from palimpsest.cli.plan import show_plan

    show_plan(workspace, as_json=as_json)


@app.command("params")
def show_values(
    every: Annotated[
        bool, typer.Option("--all/--changed", help="Every value, or only what differs from its default.")
    ] = False,
    describe: Annotated[
        bool, typer.Option("--keys", help="What every key of params.yaml means, and its default.")
    ] = False,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """The values of the workspace, and where each comes from: params.yaml, worked out from it, or a default."""
    import json
    import math

    if describe:
        from palimpsest.params.reference import render as reference

        return print(reference())
    from palimpsest.params.load import read_written, resolve_params
    from palimpsest.params.shorten import knobs
    from palimpsest.params.text import flow

    file = read_written(workspace)
    shown = [knob for knob in knobs(file, resolve_params(file)) if every or knob.changed]
    if as_json:
        told = [knob._replace(value=".inf") if knob.value == math.inf else knob for knob in shown]  # JSON has none
        print(json.dumps([knob._asdict() for knob in told], indent=2, default=str))
        return
    for knob in shown:
        print(f"{knob.key}: {flow(knob.value)}  # {knob.origin}")


@app.command("render")
def render_files(workspace: Workspace = Path()) -> None:
    """Write what follows from params.yaml: every value, and the graph. `run` and `plan` do so by themselves."""
    from palimpsest.cli.context import render

    print("\n".join(f"written: {name}" for name in render(workspace)) or "up to date")


@app.command()
def run(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages to bring up to date; none means all.")] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Run as a flow on a Prefect server with its web page.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="With --ui: keep the server open until Ctrl-C.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="The owner's word: to release, and to charge again.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why the word is given or not; kept in the private zone.")] = None,
    anyway: Anyway = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stages that run at once, sharing the CPU cores; none: one, with --ui two or more.",
        ),
    ] = None,
    workspace: Workspace = Path(),
) -> None:
    """Bring the workspace up to date, after checks that cost nothing.

    It asks before a release, and before a run that was charged is charged again. Ctrl-C ends it within seconds and says
    what was charged; the next run goes on from there.
    """
    from palimpsest.cli.run import run_workspace

    code = run_workspace(
        workspace, targets or [], ui=ui, stay=stay, yes=yes, reason=reason, anyway=anyway, workers=workers
    )
    end(code)


@app.command()
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
    workspace: Workspace = Path(),
) -> None:
    """Run by a schedule, on a Prefect server with its web page, until Ctrl-C.

    A run where nothing changed takes seconds and charges nothing. Nobody is asked: what needs the owner's word, a
    release or a second charge of one run, does not happen.
    """
    from palimpsest.cli.serve import serve_workspace

    end(serve_workspace(workspace, targets or [], cron=cron, timezone=timezone, workers=workers))


@app.command()
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
    image: Annotated[str, typer.Option(help="Image of containers.")] = "palimpsest:worker",
    notify: Annotated[str | None, typer.Option(help="Block that tells of refusals and failures: TYPE/NAME.")] = None,
    apply: Annotated[bool, typer.Option("--apply/--write", help="Apply prefect.yaml, or only write it.")] = True,
    workspace: Workspace = Path(),
) -> None:
    """Put the workspace on a team's Prefect server, the one of PREFECT_API_URL, whose workers run it.

    It writes prefect.yaml where there is none, and applies it: work pools, limits, deployments, automations.
    """
    from palimpsest.cli.serve import deploy as put

    put(
        workspace, targets or [], pools=on or [], cron=cron, timezone=timezone, image=image, notify=notify, apply=apply
    )  # fmt: skip


@app.command()
def status(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """Which stages are up to date, and what is left of the budget."""
    from palimpsest.cli.graph import show_status

    show_status(workspace, as_json=as_json)


@books.callback(invoke_without_command=True)
def ledger(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Recompute the chain of hashes.")] = False,
    refund: Annotated[
        str | None, typer.Option("--refund", help="Give back a reservation that never began: its id.")
    ] = None,
    strike: Annotated[
        int | None, typer.Option("--strike", help="Take out a faulty entry, by the owner's word: its number.")
    ] = None,
    because: Annotated[str | None, typer.Option("--because", help="With --strike: why, in a few words.")] = None,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """Every charge to the data set's privacy budget."""
    if context.invoked_subcommand is not None:
        if (verify, refund, strike, because, as_json, workspace) != (False, None, None, None, False, Path()):
            raise ParamsError("An option of `palimpsest ledger` stands before its command.", "Put it behind that.")
        return
    from palimpsest.cli.ledger import show_ledger

    show_ledger(workspace, verify=verify, refund=refund, as_json=as_json, strike=strike, because=because)


@books.command("export")
def export_ledger(
    file: Annotated[Path, typer.Argument(help="A file that is not there yet, outside every workspace.")],
    workspace: Workspace = Path(),
) -> None:
    """Write the whole ledger, keys and all, into a file of JSON lines that ends with its own hash."""
    from palimpsest.cli.ledger import write_export

    write_export(workspace, file)


@books.command("import")
def import_ledger(
    file: Annotated[Path, typer.Argument(help="What `palimpsest ledger export` wrote.")],
    workspace: Workspace = Path(),
) -> None:
    """Write an exported ledger into one that holds nothing, such as a new database; its chain must hold."""
    from palimpsest.cli.ledger import read_import

    read_import(workspace, file)


@books.command("team")
def cap_team(
    team: Annotated[str, typer.Argument(help="Its name, which is public; a run says it in PALIMPSEST_TEAM.")],
    epsilon: Annotated[float, typer.Argument(help="Cap on the epsilon of all that this team is charged.")],
    workspace: Workspace = Path(),
) -> None:
    """Give a team that shares the data set a cap of its own; from the first one on, every run names a team."""
    from palimpsest.cli.context import open_workspace

    context = open_workspace(workspace)
    context.ledger.cap_team(context.asset.name, team, epsilon)
    print(f"{context.asset.name}: team {team} may spend epsilon {epsilon:g} of the {context.asset.epsilon:g} of all")


@books.command("roles")
def roles() -> None:
    """The SQL that makes owner, analyst and auditor of a ledger on PostgreSQL: `palimpsest ledger roles | psql`."""
    from importlib.resources import files

    print((files("palimpsest.privacy.ledger") / "roles.sql").read_text(encoding="utf-8"), end="")


@books.command("merge-check")
def merge_check(
    one: Annotated[str, typer.Argument(help="A ledger: an exported file, a SQLite file, or the URL of a database.")],
    other: Annotated[str, typer.Argument(help="Another one.")],
    as_json: Json = False,
) -> None:
    """Where two ledgers part, and what both have spent together. Nothing is merged; exit status 1 where they part."""
    from palimpsest.cli.ledger import check_merge

    raise typer.Exit(check_merge(one, other, as_json=as_json))


@app.command()
def report(as_json: Json = False, workspace: Workspace = Path()) -> None:
    """The final table, and where the pages are."""
    from palimpsest.cli.look import show_report

    show_report(workspace, as_json=as_json)


@app.command()
def verify(
    release: Annotated[
        Path | None, typer.Argument(help="A release to check, offline and on any machine; none checks the workspace.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The releaser's public key, a PEM file, or its fingerprint.")] = None,
    workspace: Workspace = Path(),
) -> None:
    """Recompute every epsilon from the ledger's events and check the chain; of a release, every byte and signature.

    Exit status: 0 where all holds, 1 where something does not. A release that holds ends with 3 without --key: the key
    that lies in the folder shows that it is whole, and not whose it is.
    """
    if release is not None:
        from palimpsest.cli.verify_release import verify_folder

        raise typer.Exit(verify_folder(release, key))
    from palimpsest.cli.verify import verify_workspace

    raise typer.Exit(verify_workspace(workspace))


@app.command()
def twins(
    method: Annotated[str, typer.Argument(help="Whose code; that of an installed package too, if it brings a scene.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result, as METHOD.json; none: it is printed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Invents other records and models; no seed fixes coins or noise.")] = 7,
) -> None:
    """Attack a method's own code end to end on invented records: as it is, and broken on purpose.

    No workspace is read and no ledger but its own. Exit status: 0 where the claim stands and every broken version is
    caught, else 1.
    """
    from palimpsest.cli.twins import audit_method

    raise typer.Exit(audit_method(method, seed, out))


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="A folder for it; one that has the demo goes on.")] = Path(),
) -> None:
    """The whole pipeline on invented support tickets, offline: all families of methods, the audits and a release."""
    from palimpsest.cli.demo import run_demo

    raise typer.Exit(run_demo(folder))


@keys.command("new")
def new_key(
    path: Annotated[Path | None, typer.Option(help="Where to put it, outside any workspace.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the key that is there, if there is one.")] = False,
) -> None:
    """Make the key that signs releases, readable by its owner alone, and print its fingerprint."""
    from palimpsest.cli.verify_release import make_key

    make_key(path, keep=keep)


@app.command()
def register(
    amend: Annotated[
        bool, typer.Option("--amend", help="Set the cap to privacy.budget.epsilon of params.yaml.")
    ] = False,
    lost: Lost = False,
    same_rows: Annotated[
        str | None,
        typer.Option(help="The owner's word that another data set in the ledger has the same rows: the reason."),
    ] = None,
    workspace: Workspace = Path(),
) -> None:
    """Enter the data set of params.yaml into the ledger; makes the ledger where there is none."""
    from palimpsest.cli.context import register_asset

    register_asset(workspace, amend=amend, lost=lost, same_rows=same_rows)


@dataclass(frozen=True)
class Decisions:
    """What a person decides of a data set: the options of `init` and `synth`."""

    context: typer.Context
    data: Annotated[
        str | None,
        typer.Argument(
            help="The private table: CSV, TSV, JSONL, JSON or Parquet, plain or gzipped, or .xlsx; a file or address: "
            "s3://, hf://datasets/, https://, or 'postgresql://host/database#TABLE', where TABLE may be a query."
        ),
    ] = None
    text: Annotated[
        str | None, typer.Option(help="Name of the text column; '*': with --task json, a line is a record.")
    ] = None
    public: Annotated[str | None, typer.Option(help="Public text of the same kind, with the same text column.")] = None
    n_public: Annotated[
        int | None,
        typer.Option("--rows-about", "--n-public", help="About how many private records there are: public."),
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
        str | None,
        typer.Option(help="How the first variant's rows are made."),  # `Init` says which there are
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

    def decided(self) -> "Decided":
        """Return what was decided, after asking on a terminal for what is missing."""
        from palimpsest.cli.decisions import Decided
        from palimpsest.cli.init import read_label, read_labels, read_milestones, read_schema

        said = self._complete()
        said["label"] = read_label(said["label"], said["data"])
        named = read_labels(said.pop("labels"), said.pop("labels_file"), said["label"])
        source = DataSource(
            **said, labels=named, test=self.test, public_test=self.public_test, public_labels=self.public_labels,
            public_license=self.public_license,
            max_length=self.max_length, delta=self.delta, lm=self.lm, words=self.words, preset=self.preset,
            chosen=self.task, json_schema=read_schema(self.json_schema), wanted=self.method, bad_rows=self.bad_rows,
            filter=self.counted, rows=self.rows, milestones=read_milestones(self.milestones),
        )  # fmt: skip
        return Decided(source, self.check)

    def _complete(self) -> dict[str, Any]:
        """Return the options that are asked for where they are missing, as given or answered."""
        from palimpsest.cli.decisions import usual_epsilon
        from palimpsest.cli.options import complete

        epsilon = self.epsilon if _was_given(self.context, "epsilon") else usual_epsilon(self.preset)
        said = {name: getattr(self, name) for name in ASKED} | {"epsilon": epsilon}
        given = {
            name: _was_given(self.context, name) for name in ("asset", "epsilon", "budget", "max_rows", "language")
        }
        return complete(said, given, str(self.context.info_name))


@app.command(cls=Init)
@take_options(Decisions)
def init(
    decisions: Decisions,
    force: Annotated[bool, typer.Option("--force", help="Overwrite params.yaml.")] = False,
    lost: Lost = False,
    workspace: Workspace = Path(),
) -> None:
    """Make a workspace for a file of your own and register it. Reads neither labels nor sizes out of the data.

    Without DATA or another thing that is needed, it asks for each in turn, on a terminal.
    """
    from palimpsest.cli.init import init_workspace

    decided = decisions.decided()
    init_workspace(workspace, decided.source, force=force, lost=lost, check=decided.check)
    print("next: palimpsest plan, then palimpsest run")


@app.command(cls=Init)
@take_options(Decisions)
def synth(
    decisions: Decisions,
    yes: Annotated[bool, typer.Option("--yes", help="Charge without asking, for scripts.")] = False,
    anyway: Anyway = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A folder for the workspace; none: one named after the asset, here.")
    ] = None,
) -> None:
    """From a file of your own to rows in one line: make a workspace, show the plan, ask, run, print some rows.

    The same line again goes on where it stopped, and charges nothing again. On a terminal, what is missing is asked.
    """
    from palimpsest.cli.synth import synthesise

    end(synthesise(decisions.decided(), folder, yes=yes, anyway=anyway))


@app.command()
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
    """Some synthetic rows of a variant. To share them, release them: `palimpsest run release`."""
    from palimpsest.cli.sample import show_sample

    show_sample(workspace, variant, rows=rows, label=label, seed=seed, reference=reference, as_json=as_json)


@app.command("samples")
def browse(
    variants: Annotated[list[str] | None, typer.Argument(help="Which; none: all, and the baselines.")] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Most rows of each variant, drawn at random where it has more.")
    ] = 10_000,
    workspace: Workspace = Path(),
) -> None:
    """A page to look through rows with: each beside the nearest private row. It is private; its path is printed."""
    from palimpsest.cli.look import write_samples

    end(write_samples(workspace, variants or [], rows=rows))


@app.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VARIANT...|WORKSPACE...]", help="Which; none: all of this one, and the baselines."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the scores with their intervals: a file that ends with .svg.")
    ] = None,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """The variants side by side: epsilon, utility, gain over public text alone, attacks. Of the private zone.

    With folders of workspaces, or --plot, the scores of all of them by each evaluator, and which differences are noise.
    """
    from palimpsest.cli.look import compare_all

    compare_all(workspace, names or [], plot=plot, as_json=as_json)


@app.command("sweep")
def sweep_variant(
    variant: Annotated[str, typer.Argument(help="The variant to make others from.")],
    varied: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=a,b ...",
            help="A key of the variant with its values; model.KEY is of the model that it is drawn from.",
        ),
    ],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would run and cost, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Charge without asking, for scripts.")] = False,
    workspace: Workspace = Path(),
) -> None:
    """A variant for each point of a grid of settings: price all of them, ask, run, and compare them.

    The points are written into params.yaml. The same line again goes on; what is finished stays.
    """
    from palimpsest.cli.sweep import sweep

    end(sweep(workspace, variant, varied, plan=plan, yes=yes))


def _was_given(context: typer.Context, name: str) -> bool:
    """Whether an option that has a default was given."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


if __name__ == "__main__":
    app(prog_name="palimpsest")
