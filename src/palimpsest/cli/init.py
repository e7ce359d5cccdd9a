"""`palimpsest init`: a workspace for a file of one's own."""

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.cli.context import enter, environment
from palimpsest.cli.decisions import DataSource, params_text
from palimpsest.cli.render import contents
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import close_workspace, make_folder, write_text
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.params.sections import NAME
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
    labels = _yaml(path, "base", "--labels-file", "the path or the YAML")
    if not isinstance(labels, dict) or not all(isinstance(words, str) for words in labels.values()):
        raise ParamsError(
            "--labels-file holds no mapping of labels to texts.", "Write one `label: description` a line."
        )
    return {name: words.strip() or name for name, words in labels.items()}


def read_schema(path: Path | None) -> dict[str, Any] | None:
    """The JSON schema of the records, from a JSON or YAML file.

    Raises:
        ParamsError: if the file cannot be read, or is not the JSON schema of an object.
    """
    if path is None:
        return None
    schema = _yaml(path, "safe", "--json-schema", "the path, the JSON or the YAML")
    problem = schema_problem(schema) if isinstance(schema, dict) else "is no mapping"
    if problem:
        raise ParamsError(f"--json-schema {problem}.", "Correct the file.")
    return dict(schema)


def _yaml(path: Path, kind: str, option: str, parts: str) -> Any:
    try:
        return YAML(typ=kind, pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ParamsError(f"{option} cannot be read ({type(error).__name__}).", f"Correct {parts}.") from None


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
    make_workspace(workspace, made)
    print("git: dvc.lock is left out by .gitignore, which says how to keep it in a private repository")
    print(f"workspace ready: {workspace.resolve()}\nnext: palimpsest plan, then palimpsest run")


def rendered(source: DataSource) -> dict[str, str]:
    """File name -> content of the workspace's settings."""
    text = params_text(source)
    return {FILE: text, **contents(loads(text))}


def make_workspace(workspace: Path, files: Mapping[str, str]) -> None:
    """Write the settings of a workspace and the ignore files, and initialise DVC.

    Raises:
        DataError: the folder cannot be written.
    """
    try:
        _write(workspace, files)
    except OSError as error:
        raise DataError(
            f"The workspace cannot be written ({type(error).__name__}).", "Choose another folder with --workspace."
        ) from None
    _init_dvc(workspace)
    close_workspace(workspace)


def _write(workspace: Path, files: Mapping[str, str]) -> None:
    make_folder(workspace)
    make_folder(workspace / TWINS)
    for name, lines in _IGNORED.items():
        path = workspace / name
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if lines not in kept:
            path.write_text(kept + lines, encoding="utf-8")
    for name, content in files.items():
        write_text(workspace / name, content)


def check_source(source: DataSource) -> None:
    """Options fit each other; files exist and have the columns.

    Raises:
        ParamsError, DataError: the first that is wrong.
    """
    for problem, remedy in chain(_task(source), _method(source), _numbers(source)):
        raise ParamsError(problem, remedy)
    _first_row(source.data, ColumnNames(source.text, source.label, source.unit, source.keys, nobody=True))
    public_label = source.label if source.public_labels else None
    _first_row(source.public, ColumnNames(source.text, public_label, keys=source.keys, plain=True))
    for path in (source.test, source.public_test):
        if path is not None:
            _first_row(path, ColumnNames(source.text, source.label, keys=source.keys))


def _task(source: DataSource) -> Iterator[tuple[str, str]]:
    """The columns, the labels and the schema are those of the task."""
    task, label, labels = source.task, source.label is not None, bool(source.labels)
    if task not in TASKS:
        yield f"--task is {task!r}.", f"Choose one of {', '.join(TASKS)}."
    if task in ("classify", "text") and label != labels:
        remedy = "Give both, or none for text without labels, or --task span for labels that are free text."
        yield "--label and --labels come together.", remedy
    if task == "span" and (not label or labels):
        yield "--task span takes --label and no --labels: a label is free text.", "Give the column alone."
    if (task == "json") != (source.json_schema is not None):
        yield "--task json and --json-schema come together.", "Give both, or none."
    if task == "json" and (label or labels):
        yield "--task json has no labels.", "Leave --label and --labels out."
    if task != "json" and source.text == WHOLE_ROW:
        yield f"--text is {WHOLE_ROW!r}.", "Name the text column; only for --task json is a row a record."


def _method(source: DataSource) -> Iterator[tuple[str, str]]:
    """The first variant's method can do the task."""
    if source.method not in METHODS:
        yield f"--method is {source.method!r}.", f"Choose one of {', '.join(METHODS)}."
    if source.method == "select" and not source.labels:
        yield "--method select chooses texts for labels.", "Give --label and --labels, or another method."
    if source.method == "evolve" and source.task == "span":
        yield "--method evolve writes no free label.", "Use --method predict for --task span."
    if source.method == "embed" and source.task not in ("classify", "text"):
        yield "--method embed writes plain text.", "Use --method predict for --task span or json."
    if source.preset not in PRESETS:
        yield f"--preset is {source.preset!r}.", f"Choose one of {', '.join(PRESETS)}."
    if not re.fullmatch(NAME, source.asset):
        yield f"--asset is {source.asset!r}.", "Use lower-case letters, digits and _, a letter first."


def _numbers(source: DataSource) -> Iterator[tuple[str, str]]:
    """How many records and persons there are, how many rows are kept of one, and how private the first variant is."""
    records, persons = source.n_public, source.persons
    if records < _FEWEST:
        yield f"--n-public is {records}; allowed is at least {_FEWEST}.", "Bring more records."
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
    if persons is not None and not _FEWEST <= persons <= records:
        yield (
            f"--persons is {persons}; allowed is at least {_FEWEST} and at most --n-public, {records}.",
            "Give the approximate number of different persons in the column.",
        )
    if math.isinf(source.epsilon):
        yield "--epsilon is inf.", "Give a finite one; params.yaml has a variant `inf` to add to `run`."


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
