"""`palimpsest init`: a workspace for a file of one's own."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from palimpsest import __version__
from palimpsest.cli.context import environment
from palimpsest.cli.register import register_asset
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import atomic_path
from palimpsest.params.load import FILE, load
from palimpsest.records.read import Columns, iter_rows

_IGNORED = """# Everything here but the settings is private, or made again by `palimpsest run`.
/data/
/models/
/reports/
/.palimpsest/
"""


@dataclass(frozen=True)
class Source:
    """What `init` was told about the data. Nothing in it is read out of the data."""

    data: Path
    text: str
    public: Path
    n_public: int
    asset: str
    label: str | None
    labels: str | None
    test: Path | None
    public_test: Path | None
    public_labels: bool
    unit: str | None
    max_rows: int
    max_length: int
    epsilon: float
    budget: float
    delta: float | None
    lm: str

    @property
    def descriptions(self) -> dict[str, str]:
        """Label -> public description; a label without one describes itself."""
        if self.labels is None:
            return {}
        parts = [part.strip() for part in self.labels.split(",") if part.strip()]
        pairs = [part.partition("=") for part in parts]
        return {name.strip(): (words or name).strip() for name, _, words in pairs}

    @property
    def variant(self) -> str:
        """The first variant's name: dp3, dp0_5."""
        return f"dp{self.epsilon:g}".replace(".", "_")

    @property
    def batch(self) -> int:
        """An expected batch of about a twelfth of the data, a power of two from 16 to 1,024: large batches suit DP."""
        return 2 ** min(10, max(4, (self.n_public // 12).bit_length() - 1))


def init_workspace(workspace: Path, source: Source, *, force: bool) -> None:
    """Write params.yaml, dvc.yaml and the ignore files, initialise DVC, and register the asset.

    The first row of each file is read to find a missing column or a wrong format now rather than later.

    Raises:
        ParamsError: if params.yaml exists (without `force`), or an option is out of range.
        DataError: if a file is missing or cannot be read.
    """
    if (workspace / FILE).exists() and not force:
        raise ParamsError(
            f"{FILE} exists here.", "Choose another folder with --workspace, or overwrite it with --force."
        )
    check_source(source)
    workspace.mkdir(parents=True, exist_ok=True)
    for name, content in rendered(source).items():
        with atomic_path(workspace / name) as draft:
            draft.write_text(content, encoding="utf-8")
    load(workspace)
    _init_dvc(workspace)
    register_asset(workspace)
    print(f"workspace ready: {workspace.resolve()}\nnext: palimpsest plan, then palimpsest run")


def rendered(source: Source) -> dict[str, str]:
    """File name -> content of the workspace's settings."""
    template = _environment()
    params = template.get_template("params.yaml.j2").render(source=source, version=__version__, path=_absolute)
    graph = template.get_template("dvc.yaml.j2").render(
        clone=False, world=False, test=source.test is not None, labels=bool(source.descriptions)
    )
    return {FILE: params, "dvc.yaml": graph, ".gitignore": _IGNORED, ".dvcignore": "__pycache__/\n"}


def check_source(source: Source) -> None:
    """Files exist and have the columns; labels and label column come together."""
    if (source.label is None) != (source.labels is None):
        raise ParamsError("--label and --labels come together.", "Give both, or none for text without labels.")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", source.asset):
        raise ParamsError(f"--asset is {source.asset!r}.", "Use lower-case letters, digits and _, a letter first.")
    columns = Columns(source.text, source.label, source.unit)
    _first_row(source.data, columns)
    _first_row(source.public, Columns(source.text, source.label if source.public_labels else None))
    for path in (source.test, source.public_test):
        if path is not None:
            _first_row(path, Columns(source.text, source.label))


def _first_row(path: Path, columns: Columns) -> None:
    if not path.is_file():
        raise DataError(f"There is no file {path.name!r} where you said.", "Correct the path.")
    next(iter_rows(path, columns, max_length=1), None)


def _environment() -> Environment:
    loader = PackageLoader("palimpsest.cli")
    found = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=False, keep_trailing_newline=True)
    found.filters["yaml"] = _scalar
    return found


def _scalar(value: Any) -> str:
    """A YAML scalar that reads back as the same value: JSON strings and numbers are YAML too."""
    return json.dumps(value, ensure_ascii=False)


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _init_dvc(workspace: Path) -> None:
    if (workspace / ".dvc").is_dir():
        return
    in_git = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=workspace, capture_output=True, check=False)
    scm = [] if in_git.returncode == 0 and (workspace / ".git").exists() else ["--no-scm"]
    for arguments in (["init", "-q", *scm], ["config", "core.analytics", "false"], ["config", "core.check_update", "false"]):
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(command, cwd=workspace, env=environment(), capture_output=True, check=False)
        if done.returncode:
            raise DataError("DVC could not be initialised here.", "Check that the folder can be written.")
