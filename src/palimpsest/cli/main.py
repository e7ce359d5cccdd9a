"""The command line. Each command calls a plain function in its own module; heavy imports wait until then."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from palimpsest.errors import PalimpsestError
from palimpsest.files import owner_only


class Commands(TyperGroup):
    """The commands; an error of ours becomes two lines and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named; what it makes is its user's alone."""
        try:
            with owner_only():
                return super().invoke(ctx)
        except PalimpsestError as error:
            print(f"error: {error.problem}\n  what to do: {error.remedy}", file=sys.stderr)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    help="Differentially private synthetic text, with a metered privacy budget and an audit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

keys = typer.Typer(help="The key that signs releases.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="The folder with params.yaml and dvc.yaml.")]
Lost = Annotated[
    bool, typer.Option("--lost", help="The data set's earlier ledger is lost, and what it spent is unknown.")
]


@app.command()
def plan(workspace: Workspace = Path()) -> None:
    """What each variant would cost and whether it fits the budget, before a row is read."""
    from palimpsest.cli.plan import show_plan

    show_plan(workspace)


@app.command("params")
def show_values(
    every: Annotated[
        bool, typer.Option("--all/--changed", help="Every value, or only what differs from its default.")
    ] = False,
    workspace: Workspace = Path(),
) -> None:
    """The values of the workspace, and where each comes from: params.yaml, worked out from it, or a default."""
    from palimpsest.params.load import resolved, written
    from palimpsest.params.origin import knobs
    from palimpsest.params.text import flow

    file = written(workspace)
    for knob in knobs(file, resolved(file)):
        if every or knob.changed:
            print(f"{knob.key}: {flow(knob.value)}  # {knob.origin}")


@app.command("render")
def render_files(workspace: Workspace = Path()) -> None:
    """Write what follows from params.yaml: every value, and the graph. `run` and `plan` do so by themselves."""
    from palimpsest.cli.render import render

    print("\n".join(f"written: {name}" for name in render(workspace)) or "up to date")


@app.command()
def migrate(workspace: Workspace = Path()) -> None:
    """Move a workspace whose params.yaml lists every value and what runs to today's short file; nothing is charged.

    Outputs and receipts of what spent stay as they are. It is refused while a stage that spends is stale or a charge is
    unfinished. Audits and pages run again afterwards, free.
    """
    from palimpsest.cli.migrate import migrate_workspace

    migrate_workspace(workspace)


@app.command()
def run(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages to bring up to date; none means all.")] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Run as a flow on a Prefect server with its web page.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="With --ui: keep the server open until Ctrl-C.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Give the word of the data's owner for a release.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why the word is given or not; kept in the private zone.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Stages that may run at once, the CPU cores divided among them; none: one."),
    ] = None,
    workspace: Workspace = Path(),
) -> None:
    """Bring the workspace up to date: `dvc repro`, after checks that cost nothing, and a question before a release."""
    from palimpsest.cli.run import run_workspace

    raise typer.Exit(run_workspace(workspace, targets or [], ui=ui, stay=stay, yes=yes, reason=reason, workers=workers))


@app.command()
def status(workspace: Workspace = Path()) -> None:
    """Which stages are up to date, and what is left of the budget."""
    from palimpsest.cli.graph import show_status

    show_status(workspace)


@app.command()
def ledger(
    verify: Annotated[bool, typer.Option("--verify", help="Recompute the chain of hashes.")] = False,
    refund: Annotated[
        str | None, typer.Option("--refund", help="Give back a reservation that never began: its id.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    workspace: Workspace = Path(),
) -> None:
    """Every charge to the data set's privacy budget."""
    from palimpsest.cli.ledger import show_ledger

    show_ledger(workspace, verify=verify, refund=refund, as_json=as_json)


@app.command()
def report(workspace: Workspace = Path()) -> None:
    """The final table, and where the pages are."""
    from palimpsest.cli.report import show_report

    show_report(workspace)


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
        from palimpsest.cli.verify_release import check_release

        raise typer.Exit(check_release(release, key))
    from palimpsest.cli.verify import verify_workspace

    raise typer.Exit(verify_workspace(workspace))


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
    workspace: Workspace = Path(),
) -> None:
    """Enter the data set of params.yaml into the ledger; makes the ledger where there is none."""
    from palimpsest.cli.context import register_asset

    register_asset(workspace, amend=amend, lost=lost)


@app.command()
def init(
    data: Annotated[Path, typer.Argument(help="The private file: CSV, TSV, JSONL or Parquet, plain or gzipped.")],
    text: Annotated[str, typer.Option(help="Name of the text column; '*': with --task json, a line is a record.")],
    public: Annotated[Path, typer.Option(help="Public text of the same kind, with the same text column.")],
    n_public: Annotated[int, typer.Option(help="Public, approximate number of private records.")],
    asset: Annotated[str, typer.Option(help="A name for the data set in the ledger.")],
    label: Annotated[str | None, typer.Option(help="Name of the label column.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="All labels, separated by commas; name=description describes one.")
    ] = None,
    labels_file: Annotated[
        Path | None,
        typer.Option(help="Instead of --labels: YAML with `label: description` lines, for texts with commas."),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Private test file; none cuts a part from DATA.")] = None,
    public_test: Annotated[Path | None, typer.Option(help="A labelled test file that is public.")] = None,
    public_labels: Annotated[bool, typer.Option(help="The public file has the label column too.")] = False,
    unit: Annotated[
        str | None,
        typer.Option(help="Column whose value is the person; the person is then protected, not the single record."),
    ] = None,
    max_rows: Annotated[int, typer.Option(help="With --unit: most rows kept of one person.")] = 1,
    persons: Annotated[int | None, typer.Option(help="With --unit: public, approximate number of persons.")] = None,
    max_length: Annotated[int, typer.Option(help="Longest text kept, in characters.")] = 1000,
    epsilon: Annotated[float, typer.Option(help="Epsilon of the first variant.")] = 3.0,
    budget: Annotated[float, typer.Option(help="Cap on the data set's total epsilon.")] = 10.0,
    delta: Annotated[float | None, typer.Option(help="The data set's delta; none: 1 / (n ln n), n units.")] = None,
    lm: Annotated[str, typer.Option(help="Causal LM: embedded, a folder, or a hub name.")] = "embedded",
    preset: Annotated[
        str, typer.Option(help="Training settings: modern, or paper (those of the published method).")
    ] = "modern",
    task: Annotated[
        str | None, typer.Option(help="classify, span, text or json; none: classify where there is a label, else text.")
    ] = None,
    json_schema: Annotated[
        Path | None, typer.Option(help="With --task json: a file with the public JSON schema of a record.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="How the first variant's rows are made: dp_lm or predict; none: dp_lm, predict for span."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite params.yaml.")] = False,
    lost: Lost = False,
    workspace: Workspace = Path(),
) -> None:
    """Make a workspace for a file of your own and register it. Reads neither labels nor sizes out of the data."""
    from palimpsest.cli.decisions import DataSource
    from palimpsest.cli.init import init_workspace, read_labels, read_schema

    source = DataSource(
        data, text, public, n_public, asset, label, read_labels(labels, labels_file), test, public_test, public_labels,
        unit, max_rows, persons, max_length, epsilon, budget, delta, lm, preset, task, read_schema(json_schema), method,
    )  # fmt: skip
    init_workspace(workspace, source, force=force, lost=lost)


if __name__ == "__main__":
    app()
