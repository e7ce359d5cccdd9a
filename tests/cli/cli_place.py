"""A small workspace, its ledger and the user's files in one folder; no stage runs here."""

from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.params.load import LEDGER_VARIABLE
from tests.settings_file import edit_settings

_OPTIONS = {
    "text": "body", "label": "team", "labels": "a=The first, b=The second",
    "n-public": 600, "asset": "notes", "budget": 9, "method": "dp_lm",
}  # fmt: skip


def write_files(home: Path) -> Path:
    """The user's two files; returns their folder."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "own.csv").write_text("body,team\nsome text,a\n", encoding="utf-8")
    (home / "public.csv").write_text("body\npublic text\n", encoding="utf-8")
    return home


def call(*arguments: object, ledger: Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(part) for part in arguments], env={LEDGER_VARIABLE: str(ledger)})


def init(home: Path, workspace: Path, *flags: str, **options: Any) -> Result:
    """`palimpsest init` on the files of `write_files`, with the ledger beside them; None leaves an option out."""
    given = _OPTIONS | {"public": home / "public.csv"} | {name.replace("_", "-"): v for name, v in options.items()}
    arguments = [str(part) for name, v in given.items() if v is not None for part in (f"--{name}", v)]
    return call("init", home / "own.csv", *flags, *arguments, "--workspace", workspace, ledger=home / "ledger.db")


class Place:
    """One test's own copy of the made folder."""

    def __init__(self, home: Path) -> None:
        self.home, self.workspace, self.ledger = home, home / "work", home / "ledger.db"

    def call(self, command: str, *arguments: object) -> Result:
        """Run a command on the workspace."""
        return call(command, *arguments, "--workspace", self.workspace, ledger=self.ledger)

    def edit(self, *path: str, **values: Any) -> None:
        """Change values of params.yaml."""
        edit_settings(self.workspace, *path, **values)
