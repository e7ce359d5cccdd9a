"""Parts that the commands share: how they are listed and end, the options of several, and their examples."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import EntryPoint
from inspect import Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from palimpsest import extensions
from palimpsest.errors import PalimpsestError, ParamsError, machine_error
from palimpsest.files import restrict_to_owner

RICH: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None  # a pipe gets plain lines
HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Command:
    """A command that a package brings (`extensions`)."""

    function: Callable[..., None]  # annotated as Typer reads it; its docstring is the command's help
    examples: tuple[str, ...] = ()  # lines to type, shown under the help

    def command(self, name: str) -> Any:
        """Return the command as the command line runs it."""
        alone = typer.Typer(context_settings=HELP, rich_markup_mode=RICH, add_completion=False)
        alone.command(name)(self.function)
        return typer.main.get_command(alone)


def end(code: int) -> NoReturn:
    """End with the exit status of a run."""
    from palimpsest.work.repro import STOPPED, leave

    if code == STOPPED:
        leave(code)
    raise typer.Exit(code)


def take_options(given: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of a function or a class: what it makes becomes the first argument."""
    shared = signature(given).parameters

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(command).parameters.values())[1:]

        @wraps(command)
        def called(**values: Any) -> None:
            command(given(**{name: values.pop(name) for name in shared}), **values)

        both = [*shared.values(), *own]
        vars(called).pop("__wrapped__")  # typer asks the outer one
        called.__annotations__ = {each.name: each.annotation for each in both}
        called.__signature__ = Signature(both)  # type: ignore[attr-defined]
        return called

    return taking


# In the order of use; what is not named here comes last.
ORDER = (
    "demo", "synth", "init", "plan", "run", "serve", "deploy", "sample", "samples", "compare", "sweep",
    "report", "status", "ledger", "params", "verify", "keys", "register", "render",
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


Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="The folder with params.yaml and dvc.yaml.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Charge also where noise is expected to decide over private rows.")
]
Lost = Annotated[
    bool, typer.Option("--lost", help="The data set's earlier ledger is lost, and what it spent is unknown.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
