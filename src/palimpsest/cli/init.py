"""`palimpsest init`: a workspace for a file of one's own."""

import math
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.cli.context import environment
from palimpsest.cli.decisions import DataSource, params_text
from palimpsest.cli.register import enter
from palimpsest.cli.render import contents
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import atomic_path, close_workspace, make_folder
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.records.conformity import schema_problem
from palimpsest.records.read import ColumnNames, iter_rows
from palimpsest.records.structured import WHOLE_ROW
from palimpsest.workspace import GRAPH, TWINS
from stages.vouching import require_vouched

PRESETS = ("modern", "paper")
TASKS = ("classify", "span", "text", "json")
METHODS = ("dp_lm", "predict", "select", "evolve", "embed")
_FEWEST = 20  # the smallest audit subset
_IGNORED = {
    ".gitignore": """# Everything here but the settings is private, or made again by `palimpsest run`.
/data/
/models/
/reports/
/release/
/.palimpsest/
/.dvc/cache/
/.dvc/tmp/
/.dvc/config.local
# dvc.lock holds plain hashes of private files: who can guess a file learns from its hash who is in it. In a private
# repository, take the next line away; `dvc config core.no_scm false` then lets DVC compare commits, and not before:
# DVC runs nothing beside a dvc.lock that it knows git to ignore.
/dvc.lock
""",
    ".dvcignore": "__pycache__/\n",
}


def read_labels(listed: str | None, path: Path | None) -> dict[str, str]:
    """Label -> public description, from `name=description,...` or from a YAML file; one without describes itself.

    Raises:
        ParamsError: if both are given, the file is no mapping, or a label is empty or named twice.
    """
    if listed is not None and path is not None:
        raise ParamsError("--labels and --labels-file are both given.", "Give one of them.")
    if path is not None:
        return _labels_of_file(path)
    pairs = [part.partition("=") for part in (listed or "").split(",") if part.strip()]
    names = [name.strip() for name, _, _ in pairs]
    if "" in names or len(set(names)) < len(names):
        raise ParamsError(f"--labels is {listed!r}: a label is empty or named twice.", "Name each label once.")
    return {name: words.strip() or name for name, (_, _, words) in zip(names, pairs, strict=True)}


def _labels_of_file(path: Path) -> dict[str, str]:
    """Every scalar is read as text, so that labels such as 1, yes and null are what they look like."""
    try:
        found = YAML(typ="base", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ParamsError(
            f"--labels-file cannot be read ({type(error).__name__}).", "Correct the path or the YAML."
        ) from None
    if not isinstance(found, dict) or not all(isinstance(words, str) for words in found.values()):
        raise ParamsError(
            "--labels-file holds no mapping of labels to texts.", "Write one `label: description` a line."
        )
    return {name: words.strip() or name for name, words in found.items()}


def read_schema(path: Path | None) -> dict[str, Any] | None:
    """The JSON schema of the records, from a JSON or YAML file.

    Raises:
        ParamsError: if the file cannot be read, or is not the JSON schema of an object.
    """
    if path is None:
        return None
    try:
        found = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ParamsError(
            f"--json-schema cannot be read ({type(error).__name__}).", "Correct the path, the JSON or the YAML."
        ) from None
    problem = schema_problem(found) if isinstance(found, dict) else "is no mapping"
    if problem:
        raise ParamsError(f"--json-schema {problem}.", "Correct the file.")
    return dict(found)


def init_workspace(workspace: Path, source: DataSource, *, force: bool, lost: bool = False) -> None:
    """Register the asset, write params.yaml, dvc.yaml and the ignore files, and initialise DVC.

    The first row of each file is read to find a missing column or a wrong format now rather than later. Everything
    that can be wrong with the options is found before anything is written.

    Raises:
        ParamsError: if params.yaml exists (without `force`), or an option is out of range.
        DataError: if a file is missing or cannot be read.
        LedgerError: if the ledger knows the asset on other terms, or another ledger has charged it that is not `lost`.
    """
    taken = [name for name in (FILE, GRAPH.name) if (workspace / name).exists()]
    if taken and not force:
        raise ParamsError(
            f"{taken[0]} exists here.", "Choose another folder with --workspace, or overwrite it with --force."
        )
    check_source(source)
    made = rendered(source)
    params = loads(made[FILE])
    require_vouched(params, workspace)
    enter(params, workspace, lost=lost)
    try:
        _write(workspace, made)
    except OSError as error:
        raise DataError(
            f"The workspace cannot be written ({type(error).__name__}).", "Choose another folder with --workspace."
        ) from None
    _init_dvc(workspace)
    close_workspace(workspace)
    print("git: dvc.lock is left out by .gitignore, which says how to keep it in a private repository")
    print(f"workspace ready: {workspace.resolve()}\nnext: palimpsest plan, then palimpsest run")


def rendered(source: DataSource) -> dict[str, str]:
    """File name -> content of the workspace's settings."""
    text = params_text(source)
    return {FILE: text, **contents(loads(text))}


def _write(workspace: Path, files: Mapping[str, str]) -> None:
    make_folder(workspace)
    make_folder(workspace / TWINS)
    for name, lines in _IGNORED.items():
        path = workspace / name
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if lines not in kept:
            path.write_text(kept + lines, encoding="utf-8")
    for name, content in files.items():
        with atomic_path(workspace / name) as draft:
            draft.write_text(content, encoding="utf-8")


def check_source(source: DataSource) -> None:
    """Options fit each other; files exist and have the columns."""
    _check_task(source)
    if source.method not in METHODS:
        raise ParamsError(f"--method is {source.method!r}.", f"Choose one of {', '.join(METHODS)}.")
    if source.method == "select" and not source.labels:
        raise ParamsError("--method select chooses texts for labels.", "Give --label and --labels, or another method.")
    if source.method == "evolve" and source.task == "span":
        raise ParamsError("--method evolve writes no free label.", "Use --method predict for --task span.")
    if source.method == "embed" and source.task not in ("classify", "text"):
        raise ParamsError("--method embed writes plain text.", "Use --method predict for --task span or json.")
    if source.preset not in PRESETS:
        raise ParamsError(f"--preset is {source.preset!r}.", f"Choose one of {', '.join(PRESETS)}.")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", source.asset):
        raise ParamsError(f"--asset is {source.asset!r}.", "Use lower-case letters, digits and _, a letter first.")
    _check_numbers(source)
    if math.isinf(source.epsilon):
        raise ParamsError("--epsilon is inf.", "Give a finite one; params.yaml has a variant `inf` to add to `run`.")
    _first_row(source.data, ColumnNames(source.text, source.label, source.unit, source.keys, nobody=True))
    public_label = source.label if source.public_labels else None
    _first_row(source.public, ColumnNames(source.text, public_label, keys=source.keys, plain=True))
    for path in (source.test, source.public_test):
        if path is not None:
            _first_row(path, ColumnNames(source.text, source.label, keys=source.keys))


def _check_numbers(source: DataSource) -> None:
    """How many records and persons there are, and how many rows are kept of one."""
    if source.n_public < _FEWEST:
        raise ParamsError(f"--n-public is {source.n_public}; allowed is at least {_FEWEST}.", "Bring more records.")
    if (source.unit is None) != (source.persons is None):
        raise ParamsError(
            "--unit and --persons come together: the person is then protected, and delta and noise follow from how "
            "many persons there are.",
            "Give both, or neither for data in which one row is one person.",
        )
    if source.max_rows < 1:
        raise ParamsError(f"--max-rows is {source.max_rows}; allowed is at least 1.", "Keep one row of each person.")
    if source.persons is None:
        if source.max_rows > 1:
            raise ParamsError("--max-rows is given without --unit: nothing would be capped.", "Name the column, too.")
        return
    if not _FEWEST <= source.persons <= source.n_public:
        raise ParamsError(
            f"--persons is {source.persons}; allowed is at least {_FEWEST} and at most --n-public, {source.n_public}.",
            "Give the approximate number of different persons in the column.",
        )


def _check_task(source: DataSource) -> None:
    """The columns, the labels and the schema are those of the task."""
    if source.task not in TASKS:
        raise ParamsError(f"--task is {source.task!r}.", f"Choose one of {', '.join(TASKS)}.")
    if source.task in ("classify", "text") and (source.label is None) != (not source.labels):
        raise ParamsError(
            "--label and --labels come together.",
            "Give both, or none for text without labels, or --task span for labels that are free text.",
        )
    if source.task == "span" and (source.label is None or source.labels):
        raise ParamsError("--task span takes --label and no --labels: a label is free text.", "Give the column alone.")
    if (source.task == "json") != (source.json_schema is not None):
        raise ParamsError("--task json and --json-schema come together.", "Give both, or none.")
    if source.task == "json" and (source.label is not None or source.labels):
        raise ParamsError("--task json has no labels.", "Leave --label and --labels out.")
    if source.task != "json" and source.text == WHOLE_ROW:
        raise ParamsError(f"--text is {WHOLE_ROW!r}.", "Name the text column; only for --task json is a row a record.")


def _first_row(path: Path, columns: ColumnNames) -> None:
    if not path.is_file():
        raise DataError(f"There is no file {path.name!r} where you said.", "Correct the path.")
    next(iter_rows(path, columns, max_length=1), None)


def _init_dvc(workspace: Path) -> None:
    """Without git: DVC refuses to run where it knows git to ignore dvc.lock."""
    for arguments in (
        *([] if (workspace / ".dvc").is_dir() else [["init", "-q", "--no-scm"]]),
        ["config", "core.no_scm", "true"],
        ["config", "core.analytics", "false"],
        ["config", "core.check_update", "false"],
    ):
        command = [sys.executable, "-P", "-m", "dvc", *arguments]
        done = subprocess.run(command, cwd=workspace, env=environment(), capture_output=True, check=False)
        if done.returncode:
            raise DataError("DVC could not be initialised here.", "Check that the folder can be written.")
