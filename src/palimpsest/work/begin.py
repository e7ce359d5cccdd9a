"""Makes a workspace: reads what options name, checks it, writes settings, and enters the data set."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import DataError, ParamsError
from palimpsest.files import atomic_path, close_workspace, make_folder, read_json, write_json, write_text
from palimpsest.models.chat.settings import is_english
from palimpsest.models.sources import require_usable
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.params.load import file_of, loads, read_written
from palimpsest.params.schema import Params
from palimpsest.params.written import describe_writing
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.ledger.total import propose_milestones
from palimpsest.records import schema as attributes
from palimpsest.records import texts
from palimpsest.records.conformity import record_problem
from palimpsest.records.fields import Declared, domains_of, parse_fields
from palimpsest.records.formats import Wanted, cells
from palimpsest.records.read import is_unicode
from palimpsest.records.sources import copied_suffix, copy, describe, describe_origin
from palimpsest.records.structured import unique_members
from palimpsest.work.check import (
    budget_problem,
    check_all,
    check_source,
    find_problems,
    fit_to_public,
    keep,
    names_of,
    tell_of_unread,
)
from palimpsest.work.context import asset_of, contents
from palimpsest.work.decisions import DataSource, params_text
from palimpsest.work.ledger import books_of, enter
from palimpsest.work.lengths import describe_cuts, longest_text
from palimpsest.workspace import DVC, GIVEN, GRAPH, ORIGINS
from stages.inputs import LANGUAGE_MODELS
from stages.vouching import named_sources, place_of, require_vouched

_LOOKED_AT = 1 << 30  # bytes of each file of a model's weights
README = """\
# A workspace of palimpsest

It turns a private data set into synthetic rows, and audits them. The private file stays where it was.

| here | what it is | zone | may it be shared? |
|---|---|---|---|
| `params.yaml` | what you decided; `params.resolved.yaml`, `dvc.yaml` follow from it | public | if its paths may be |
| `data/private/` | your records in their splits, and what was measured on them | private | never |
| `data/public/`, `data/inputs/` | the public text, and digests of code and models | public | yes |
| `data/synthetic/` | the synthetic rows of each variant, as `.jsonl` and `.parquet` | dp | through `release/` alone |
| `data/`, all else | what stages keep between runs | private | never |
| `models/` | models that were fitted or copied here | private | never |
| `reports/card.html` | one page about the releases | public | yes |
| `reports/`, all else | the audit page, samples, the table, what each audit measured, receipts | private | never |
| `release/` | signed rows, card and statement | public | yes: hand on a copy of it |
| `dvc.lock`, `.dvc/`, `.palimpsest/` | what ran on which files, and a cache | private | never |

Zones: *private* holds records, or something measured on them. *dp* follows from answers that the privacy ledger paid
for; rows of a reference, at epsilon infinity, lie beside them and are private. *public* has nobody behind it.

The ledger, which remembers what was spent, lies outside this folder. Deleting the folder gives nothing back.

## How to go on

In this folder:

    palimpsest sample       # some of the synthetic rows
    palimpsest samples      # a page of them beside private ones: private
    palimpsest compare      # the variants side by side
    palimpsest report       # the table, and where the pages are
    palimpsest plan         # what a run would do and cost, after a change of params.yaml
    palimpsest run          # do it; what is up to date costs nothing
    palimpsest params --keys  # every setting

To try another epsilon or method, add a variant to `params.yaml`; its comments have examples. To share rows, make a key
with `palimpsest keys new`, name the variants under `release`, and run `palimpsest run release`.
"""
_TABLES = ("data", "public", "test", "public_test")
_OPTIONS = {"dataset.public": "--public", "dataset.public_test": "--public-test", "models.lm": "--lm"}
_FOREIGN = """\
language: the texts are {language}. The embedded models read English, so name models of that language in params.yaml:
models.lm, models.encoder (a multilingual one, such as sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2 with
its commit) and models.classifier. Prompts of models.words are English: give them in words of your own, or take an
instruction-following author, which is told the language. Audits find names of persons by their capitals alone."""
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


def read_label(column: str | None, path: Path | str | None = None) -> str | None:
    """Return the label column as it is named; several, separated by commas, as one name.

    Where the file has a column with this very name, its commas separate nothing.
    """
    if column is None or "," not in column or column in names_of(path):
        return column
    return attributes.join_parts([name.strip() for name in column.split(",")])


def read_text(column: str, path: Path | str, public: Path | str | None) -> str:
    """Return the text column as `records.texts` has it: several joined; of turns where the public file has turns there.

    That the private file has turns there is never looked at: the form of texts is public.
    """
    named = read_label(column, path)
    assert named is not None
    with suppress(DataError, ValueError):
        first = next(cells(Path(public or ""), [Wanted(named)]), None) if texts.names(named) == (named,) else None
        if first is not None and isinstance(first[1][0], list) and texts.split_turns(texts.join_turns(first[1][0])):
            return f"turns({named})"
    return named


def read_labels(listed: str | None, path: Path | None, column: str | None = None) -> dict[str, str]:
    """Return label -> public description, from `name=description,...` or a YAML file; without one, the label itself.

    The file may hold such a mapping for each of several label columns; their labels are then joined.

    Raises:
        ParamsError: if both are given, the file is no mapping, or a label is empty or named twice.
    """
    if listed is not None and path is not None:
        raise ParamsError("--labels and --labels-file are both given.", "Give one of them.")
    if path is not None:
        return _labels_of_file(path, column)
    pairs = [part.partition("=") for part in (listed or "").split(",") if part.strip()]
    names = [name.strip() for name, _, _ in pairs]
    if "" in names or len(set(names)) < len(names):
        raise ParamsError(f"--labels is {listed!r}: a label is empty or named twice.", "Name each label once.")
    return {name: words.strip() or name for name, (_, _, words) in zip(names, pairs, strict=True)}


def _labels_of_file(path: Path, column: str | None) -> dict[str, str]:
    """Read labels from a file, every scalar as text, so that labels such as 1, yes and null are what they look like."""
    written = _read_document(path, "base", "--labels-file", "the path or the YAML")
    labels = attributes.join_columns({"label": column, "labels": written})["labels"]
    if not isinstance(labels, dict) or not all(isinstance(words, str) for words in labels.values()):
        raise ParamsError(
            "--labels-file holds no mapping of labels to texts.", "Write one `label: description` a line."
        )
    return {name: words.strip() or name for name, words in labels.items()}


def read_fields(told: str | Mapping[str, Any] | None) -> dict[str, Declared]:
    """Return name -> declaration of the fields given to --fields, or from Python; none where they are not given.

    Raises:
        ParamsError: they are not as the option has them, or, from Python, a list is of another type, which may be a
            column of private rows.
    """
    remedy = "Lists and bounds are public, and are never taken from data."
    try:
        if told is None or isinstance(told, str):
            return parse_fields(told or "")
        for name, declared in told.items():
            if not isinstance(declared, str | list | tuple):
                raise ParamsError(f"fields.{name} is a {type(declared).__name__}.", f"Give text or a list. {remedy}")
        domains_of(told)
    except ValueError as error:
        raise ParamsError(f"--fields: {error}.", remedy) from None
    return dict(told)


def read_milestones(listed: str | None) -> tuple[float, ...] | None:
    """Read epsilons with commas between; return None if none are given."""
    try:
        return None if listed is None else tuple(map(float, listed.split(",")))
    except ValueError:
        raise ParamsError(f"--milestones is {listed!r}.", "Give numbers with commas between, as 1,3.") from None


def read_author(said: str | None) -> dict[str, Any] | None:
    """Return who writes public text, as params.yaml has an author.

    `said` is base, an endpoint as URL#MODEL, a YAML file with an author's settings, or a chat model's folder or name.
    """
    if said is None or said == "base":
        return None if said is None else {"kind": said}
    if said.startswith(("http://", "https://")):
        url, _, model = said.partition("#")
        if not model:
            raise ParamsError(f"--author is {said!r}, which names no model.", "End it with # and the model's name.")
        return {"kind": "endpoint", "url": url, "model": model}
    if Path(said).suffix in (".yaml", ".yml"):
        return dict(_read_document(Path(said), "safe", "--author", "the path or the YAML"))
    return {"kind": "local", "model": str(Path(said).resolve()) if Path(said).is_dir() else said}


def read_schema(path: Path | None) -> dict[str, Any] | None:
    """Read the JSON schema of the records from a JSON or YAML file.

    Raises:
        ParamsError: if the file cannot be read, or is not the JSON schema of an object.
    """
    if path is None:
        return None
    schema = _read_document(path, "safe", "--json-schema", "the path, the JSON or the YAML")
    problem = record_problem(schema) if isinstance(schema, dict) else "is no mapping"
    if problem:
        raise ParamsError(f"--json-schema {problem}.", "Correct the file.")
    return dict(schema)


def _read_document(path: Path, kind: str, option: str, parts: str) -> Any:
    """Read a file of JSON or YAML, JSON first: a YAML reader would take an escaped character of JSON for two halves."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = _parse_json(text, as_text=kind == "base")
        found = YAML(typ=kind, pure=True).load(text) if found is None else found
    except (OSError, ValueError, YAMLError, RecursionError) as error:
        raise ParamsError(f"{option} cannot be read ({type(error).__name__}).", f"Correct {parts}.") from None
    if any("\0" in words or not is_unicode(words) for words in _walk_texts(found)):
        raise ParamsError(f"{option} holds a NUL character or half of a sign.", f"Correct {parts}.")
    return found


def _parse_json(text: str, *, as_text: bool) -> Any:
    """Read JSON; return None if it is none. With `as_text`, each scalar is the text that it looks like."""
    read = partial(json.loads, parse_int=str, parse_float=str, parse_constant=str) if as_text else json.loads
    with suppress(ValueError, RecursionError):
        return read(text, object_pairs_hook=_spell_scalars if as_text else unique_members)
    return None


def _spell_scalars(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: json.dumps(v) if v is None or isinstance(v, bool) else v for name, v in unique_members(pairs).items()}


def _walk_texts(found: Any) -> Iterator[str]:
    """Yield every text in it, each part once: a YAML file can refer to a part again, even within itself."""
    left, seen = [found], set[int]()
    while left:
        part = left.pop()
        if isinstance(part, str):
            yield part
        elif id(part) not in seen:
            seen.add(id(part))
            left += [*part, *part.values()] if isinstance(part, dict) else part if isinstance(part, list) else []


def init_workspace(
    workspace: Path,
    source: DataSource,
    *,
    force: bool,
    lost: bool = False,
    check: bool = True,
    stays: DataSource | None = None,
) -> None:
    """Register the asset, write params.yaml, dvc.yaml and the ignore files, and initialise DVC.

    Everything that can be wrong with the options is found before anything is written. Tables that lie elsewhere are
    then copied, and stay if all ends well. The first rows of each file are read to find a missing column or a wrong
    format now rather than later, and with `check` all rows, to find those that a run would stop at; these are then
    listed in `data/private/check.json`, and nothing else is written.

    Args:
        stays: the source with the places where its files will be, if those of `source` are drafts.

    Raises:
        ParamsError: if params.yaml exists (without `force`), or an option is out of range.
        DataError: if a file is missing or cannot be read.
        LedgerError: if the ledger knows the asset on other terms, or another ledger has charged it that is not `lost`.
    """
    require_free(workspace, force=force)
    for problem, remedy in find_problems(source):  # before anything is copied
        raise ParamsError(problem, remedy)
    with ExitStack() as drafts:
        copies = find_copies(source, workspace)
        now, later = _copy_tables(source, copies, workspace, drafts), replace(stays or source, **copies)
        _init_copied(workspace, now, later, lost=lost, check=check)


def find_copies(source: DataSource, workspace: Path) -> dict[str, Any]:
    """Return field -> path of the copy in the workspace, of tables that are not read where they are."""
    suffixes = {name: copied_suffix(getattr(source, name) or "") for name in _TABLES}
    return {name: workspace / GIVEN / f"{name}{suffix}" for name, suffix in suffixes.items() if suffix}


def _copy_tables(source: DataSource, copies: Mapping[str, Path], workspace: Path, drafts: ExitStack) -> DataSource:
    now: dict[str, Any] = {name: drafts.enter_context(atomic_path(path)) for name, path in copies.items()}
    if copies:
        print("copying into the workspace:", *(describe(getattr(source, name)) for name in copies))
    origins = {path.name: copy(getattr(source, name), now[name]) for name, path in copies.items()}
    if origins or (workspace / ORIGINS).exists():
        write_json(drafts.enter_context(atomic_path(workspace / ORIGINS)), origins)
    return replace(source, **now)


def _init_copied(workspace: Path, source: DataSource, stays: DataSource, *, lost: bool, check: bool) -> None:
    check_source(source)
    tell_of_unread(source)
    if check:
        source = fit_to_public(source)
    stays = replace(stays, max_length=source.max_length, text_tokens=source.text_tokens)
    milestones = _milestones(source, loads(params_text(stays)), workspace)
    source, stays = (replace(each, milestones=milestones) for each in (source, stays))
    made = render_settings(stays)
    params = loads(made[FILE])
    for text in {params_text(source), made[FILE]}:  # a draft must not come to stay where a public file is
        _require_vouched(loads(text), workspace)
    if check:
        _require_usable(params, workspace)
    found = check_all(source, params.schema_of_data, workspace, books_of(params, workspace)) if check else None
    enter(params, workspace, lost=lost)
    make_workspace(workspace, made)
    if found is not None:
        keep(found, workspace)
        for told in describe_cuts(params, workspace):
            print(f"limits: {told}")
    if not is_english(source.language):
        print(_FOREIGN.format(language=source.language))
    if params.run.write_public:
        print(f"public text: {describe_writing(params)}")
    print("git: dvc.lock is left out by .gitignore, which says how to keep it in a private repository")
    print(f"workspace ready: {workspace.resolve()}")


def _require_vouched(params: Params, workspace: Path) -> None:
    """Check that nothing named as public is a copy of what is not; an error names the option instead of the key."""
    try:
        require_vouched(params, workspace)
    except DataError as error:
        problem = error.problem
        for key, option in _OPTIONS.items():
            problem = problem.replace(f"{key} in params.yaml", option)
        raise DataError(problem, error.remedy) from None


def _require_usable(params: Params, workspace: Path) -> None:
    """Check the models that will run, as far as they are on this machine; a run looks at all of their weights."""
    for source in named_sources(params).values():
        if source.on_disk and source.used and (place := place_of(source, workspace)) is not None and place.is_dir():
            tokens = longest_text(params) if source.key == "models.lm" else 0
            require_usable(place, writes=source.key in LANGUAGE_MODELS, tokens=tokens, most=_LOOKED_AT)


def render_settings(source: DataSource) -> dict[str, str]:
    """File name -> content of the workspace's settings."""
    text = params_text(source)
    return {FILE: text, **contents(loads(text))}


def require_free(workspace: Path, *, force: bool) -> None:
    """Check that the folder may become a workspace.

    Raises:
        ParamsError: it is one already, and that may not be overwritten; or it is a DVC project of another kind, whose
            settings would become a workspace's.
    """
    if (workspace / DVC).exists() and not (workspace / RESOLVED).exists():
        raise ParamsError(
            "A DVC project is in this folder, and its settings and .gitignore would be changed.",
            "Make the workspace in a folder of its own, which may lie in the project: --workspace work, or for synth "
            "and demo --dir work.",
        )
    taken = [name for name in (FILE, GRAPH.name) if (workspace / name).exists()]
    if taken and not force:
        raise ParamsError(
            f"{taken[0]} exists here.", "Choose another folder with --workspace, or overwrite it with --force."
        )


def make_workspace(workspace: Path, files: Mapping[str, str]) -> None:
    """Write the settings of a workspace, a page about it and the ignore files, and initialise DVC.

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
    for name, lines in _IGNORED.items():
        path = workspace / name
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if lines not in kept:
            path.write_text(kept + lines, encoding="utf-8")
    if not (workspace / "README.md").exists():
        write_text(workspace / "README.md", README)
    for name, content in files.items():
        write_text(workspace / name, content)


def _milestones(source: DataSource, params: Params, workspace: Path) -> tuple[float, ...] | None:
    """Return the milestones given, or registered before; else at most two, from the budget and the first plan.

    Raises:
        ParamsError: the budget cannot pay that plan.
    """
    books, name = books_of(params, workspace), params.dataset.asset
    known = None if books is None else books.find_asset(name)
    said = source.milestones
    if said is None and known is not None and known.filter == source.filter:
        said = known.milestones
    proposes = said is None and source.filter == "gdp"
    # one release costs the total at most twice its epsilon and 1 more; a preset of a paper has several
    if not proposes and source.published is None and source.budget >= 2 * source.epsilon + 1:
        return said
    cost = _first_cost(params)
    if found := budget_problem(source, cost):
        raise ParamsError(*found)
    return propose_milestones(cost, asset_of(params)) if proposes else said


def _first_cost(params: Params) -> float:
    """Return the total after the first plan, which is known without a row."""
    from stages.spenders import Prices, spenders

    prices = Prices(params)
    counted = [each.name for each in spenders(params) if each.target.purpose == "release"]
    queries = {(name, 1): prices.plan_of(name).queries for name in counted}
    return preview(asset_of(params), [], queries).spent


def _init_dvc(workspace: Path) -> None:
    """Initialise DVC without git: with it, DVC refuses to run where git ignores dvc.lock."""
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")  # DVC reads it when it is imported
    from dvc.config import Config, ConfigError
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.ERROR)  # it says that it did
    try:
        if not (workspace / Repo.DVC_DIR).is_dir():
            Repo.init(str(workspace), no_scm=True).close()
        with Config(str(workspace / Repo.DVC_DIR), validate=False).edit("repo") as settings:
            settings.setdefault("core", {}).update(no_scm=True, analytics=False, check_update=False)
            # no setting of the user or the system moves it; DVC takes a path from the working directory
            settings.setdefault("cache", {}).setdefault("dir", os.path.relpath(workspace / Repo.DVC_DIR / "cache"))
    except (ConfigError, DvcException, OSError):
        raise DataError("DVC could not be initialised here.", "Check that the folder can be written.") from None


_DECIDED = ("privacy", "models", "lms", "taught", "authors", "decoders", "variants")  # beside the data set


def use_copies(source: DataSource, workspace: Path) -> DataSource:
    """Return the source with the workspace's copies of tables, where those are from the same places."""
    known = read_json(workspace / ORIGINS) if (workspace / ORIGINS).exists() else {}
    for name, path in find_copies(source, workspace).items():
        if describe_origin(getattr(source, name)).items() <= known.get(path.name, {}).items():
            source = replace(source, **{name: path})
    return source


def require_same(workspace: Path, source: DataSource) -> None:
    """Raise ParamsError if the workspace was made by other decisions. What was added to it since does not matter."""
    there, wanted = (
        file.model_dump(exclude_unset=True) for file in (read_written(workspace), file_of(params_text(source)))
    )
    data = [f"dataset.{key}" for key in _list_differing(there["dataset"], wanted["dataset"])]
    other = [*data, *(name for name in _DECIDED if not _contains(there.get(name), wanted.get(name, {})))]
    if other:
        raise ParamsError(
            f"{str(workspace)!r} has a workspace already, and this line says otherwise: {', '.join(other)}.",
            f"Go on with it as it is: `palimpsest run -w {workspace}`. For another one, name another --dir.",
        )


def _list_differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*there, *wanted}) if there.get(key) != wanted.get(key)]


def _contains(there: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; there may be more."""
    if not isinstance(wanted, Mapping):
        return bool(there == wanted)
    known = there if isinstance(there, Mapping) else {}
    return all(_contains(known.get(key), value) for key, value in wanted.items())
