"""The workspaces of `palimpsest reproduce`: one for each data set of a paper, with a variant for each cell.

All of them are ordinary. `palimpsest run`, `plan` and `ledger` work in each, the ledger is the one that a data set has
anyway, and a table that comes later adds its variants to what is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_text
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.params.preset import Facts, presets
from palimpsest.params.schema import Params, Utility
from palimpsest.params.sweep import merge_sections
from palimpsest.params.text import to_yaml
from palimpsest.records.structured import WHOLE_ROW
from palimpsest.records.vouched import EMBEDDED
from palimpsest.work.begin import make_workspace
from palimpsest.work.context import contents, render
from palimpsest.work.decisions import DataSource, params_text
from palimpsest.work.ledger import enter
from palimpsest.workspace import BASE_LM
from palimpsest_lab.commands.dataset import PRIVATE, PUBLIC, TEST, write_dataset
from palimpsest_lab.commands.dataset import Asked as Wanted
from palimpsest_lab.datasets.declaration import DataSet
from palimpsest_lab.datasets.known import find_dataset
from palimpsest_lab.datasets.prepare import Found, cut_of, expected_rows, find
from palimpsest_lab.reproduce.cells import Cell, fill_epsilon, fragment
from palimpsest_lab.reproduce.grid import Grid, Source
from palimpsest_lab.reproduce.measures import is_planned, measure, needs_judge
from stages.vouching import require_vouched

_SPENDING = ("lms", "discriminators", "variants")
_CHARGED = (*_SPENDING, "authors", "decoders", "taught")  # a change of these would charge again
_OWN = ("dataset", "privacy", "runs", *_SPENDING)  # sections of a preset that are written differently here
_KEPT = ("version", "dataset", "privacy", "models", "release")  # sections kept from the output of `init`
_ASKED = ("audit", "in_context", "prompt_mia")  # keys of `runs` that name variants
_EXAMINED, _CLIPPED = "embedding_audit", "clipping_audit"  # keys of `runs` that name models
_FINETUNED = "finetuned"


@dataclass(frozen=True)
class Asked:
    """The request of a person."""

    workspace: Path  # the folder of the paper's workspaces
    data: Path | None = None  # the folder with the published files; None where only a plan is wanted
    model: Path | None = None  # a causal language model's folder; None for the embedded one
    judge: Path | None = None  # the model that judges rows: a classifier to fine-tune, or one that answers in context
    cells: tuple[str, ...] = ()  # patterns of cells; none means all
    # data set -> public, approximate number of private records, where it is not the published one
    records: Mapping[str, int] = field(default_factory=dict)
    budget: float = 100.0  # cap on the total epsilon of a data set that is not in the ledger yet
    precision: str | None = None  # of the model's computations; None: as the grid has it


@dataclass(frozen=True)
class Place:
    """A data set of a table on this machine."""

    name: str  # of the data set, and of its asset in the ledger
    found: Found  # the form of its files; the first known form where they are not here
    public: Path | None  # the public text, where it is here
    lacks: str  # the files that are not here; empty where all are
    public_name: str  # the name of the public text
    files: Path  # the folder of the files that `init` reads
    workspace: Path  # its workspace
    source: DataSource  # the values that `init` would get


def place_of(grid: Grid, name: str, asked: Asked) -> Place:
    """Look for the files of a data set; nothing is written."""
    of = grid.data[name]
    dataset = find_dataset(of.dataset or name)
    found, lacks = _files(dataset, [] if asked.data is None else _homes(asked.data, name, of))
    public = None if asked.data is None else _find_public(asked.data, of.public)
    public_name = f"{of.public}.jsonl"
    if not lacks and public is None:
        lacks = public_name
    files, workspace = asked.workspace / "files" / name, asked.workspace / name
    n_public = asked.records.get(name) or of.n_public or expected_rows(found, cut_of(found, of.cut, 0))
    label = None if of.label is None else {each.name: each for each in dataset.attributes}[of.label]
    label = label or next(iter(dataset.attributes), None)
    source = DataSource(
        data=files / PRIVATE, text="text" if dataset.schema is None else WHOLE_ROW, public=files / PUBLIC,
        n_public=n_public, asset=of.asset or name, label=None if label is None else label.name,
        labels={} if label is None else dict(label.values), test=files / TEST, max_length=dataset.max_length,
        budget=asked.budget, lm=EMBEDDED if asked.model is None else str(asked.model.resolve()), chosen=dataset.task,
        json_schema=None if dataset.schema is None else dict(dataset.schema),
    )  # fmt: skip
    return Place(name, found, public, lacks, public_name, files, workspace, source)


def _homes(folder: Path, name: str, of: Source) -> list[Path]:
    """List the folders that may hold a data set's files: one of its name, or the one for all. A part has its own."""
    own = [folder / name, folder / (of.dataset or name), folder]
    return [home for home in (own[:1] if of.part else own) if home.is_dir()]


def _files(dataset: DataSet, homes: Sequence[Path]) -> tuple[Found, str]:
    """Find the files of a data set, and name those that are not here."""
    for home in homes:
        try:
            return find(dataset, home), ""
        except DataError:
            continue
    form = dataset.forms[0]
    needed = dict.fromkeys(name for part in form.needed for name in form.files.get(part, ()))
    return Found(dataset, form, dict.fromkeys(form.files, ())), ", ".join(needed)


def _find_public(folder: Path, name: str) -> Path | None:
    return next((path for path in sorted(folder.glob(f"{name}*")) if path.name.partition(".")[0] == name), None)


def params_of(place: Place, grid: Grid, cells: Sequence[Cell], asked: Asked) -> dict[str, Any]:
    """Build params.yaml for the cells of one data set."""
    said = _parse_yaml(params_text(place.source))
    body: dict[str, Any] = {key: said[key] for key in _KEPT}
    body["utility"] = {"most_rows": max(Utility().most_rows, place.source.n_public)}  # a paper's judges read all rows
    for cell in cells:
        settings = _settings(place, grid, cell, asked)
        shared = {key: value for key, value in settings.items() if key not in _OWN}
        own = {} if cell.of.baseline is not None else fragment(cell, settings)
        body = merge_sections(merge_sections(body, shared), own)
    body.setdefault("variants", {})
    return merge_sections(merge_sections(body, _judges(cells, asked)), {"runs": _runs(body, cells)})


def _settings(place: Place, grid: Grid, cell: Cell, asked: Asked) -> dict[str, Any]:
    """Return the methods' settings at a cell's epsilon: the paper's preset, then the changes of grid and data set."""
    source, preset = place.source, presets().get(f"paper-{grid.paper}")
    usual = grid.epsilons[0] if preset is None else preset.epsilon
    epsilon = usual if cell.of.baseline is not None else cell.epsilon
    worded = asked.model is not None and (preset is None or preset.worded)
    words = place.found.dataset.words if worded else None
    facts = Facts(
        task=source.task, labels=len(source.labels), units=source.n_public, epsilon=epsilon,
        named=asked.model is not None, words=words, test=True,
    )  # fmt: skip
    named = {"models": {"words": _parse_yaml(f"words: {words}")["words"]}} if words is not None else {}
    changes = merge_sections(
        grid.settings, _set_precision(grid.named, asked.precision) if asked.model is not None else {}
    )
    changes = merge_sections(changes, grid.data[place.name].settings)
    printed = {} if preset is None else preset.settings(facts)
    return merge_sections(merge_sections(printed, named), fill_epsilon(changes, epsilon))


def _set_precision(settings: Any, precision: str | None) -> Any:
    """Return the settings with the requested precision, if any, wherever they name one."""
    if precision is None or not isinstance(settings, Mapping):
        return settings
    return {key: precision if key == "precision" else _set_precision(own, precision) for key, own in settings.items()}


def _judges(cells: Iterable[Cell], asked: Asked) -> dict[str, Any]:
    """Choose the judge: --judge as the classifier or as the model that answers in context, as the cells ask."""
    if asked.judge is None:
        return {}
    folder, made = str(asked.judge.resolve()), dict[str, Any]()
    if any(cell.detail.get("evaluator") == _FINETUNED for cell in cells):
        evaluators = [*Utility().evaluators, _FINETUNED]
        made = {"models": {"classifier": folder}, "utility": {"evaluators": evaluators}}
    if any(needs_judge(cell) for cell in cells):
        made = merge_sections(made, {"models": {"judge": {"kind": "local", "model": folder}}})
    return made


def _runs(body: Mapping[str, Any], cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Return the runs beside the variants: those that cells ask for, and no other attack."""
    rows = [cell for cell in cells if cell.of.baseline is None and not is_planned(cell)]
    named = {key: dict.fromkeys(cell.variant for cell in rows if measure(cell).runs == key) for key in _ASKED}
    examined = [cell.variant for cell in rows if measure(cell).runs == _EXAMINED]
    if examined:
        models = (_language_model(body, name) for name in examined)
        named[_EXAMINED] = dict.fromkeys((BASE_LM.name, *models))
    if any(measure(cell).runs == _CLIPPED for cell in cells):
        named[_CLIPPED] = {BASE_LM.name: None}
    return {key: list(names) for key, names in named.items()}


def _language_model(body: Mapping[str, Any], variant: str) -> str:
    """Return the language model that a variant is drawn from, directly or through a discriminator."""
    name = body["variants"][variant].get("from", variant)
    return str(body.get("discriminators", {}).get(name, {}).get("from", name))


def made_params(body: Mapping[str, Any]) -> Params:
    """Resolve everything that a params.yaml stands for."""
    return loads(to_yaml(body))


def make(place: Place, grid: Grid, body: Mapping[str, Any]) -> None:
    """Write the files of a data set and its workspace, or add what is new to an existing workspace.

    Raises:
        PalimpsestError: the files, or the ledger, or the existing workspace say otherwise.
    """
    of = grid.data[place.name]
    if not (place.files / PRIVATE).is_file():
        folder = next(iter(place.found.paths.values()))[0].parent
        wanted = Wanted(
            folder, place.files, place.public, of.label, of.cut, n_public=place.source.n_public, sentences=of.sentences
        )
        write_dataset(place.found, wanted)
    if (place.workspace / FILE).is_file():
        write_text(place.workspace / FILE, to_yaml(add_cells(_read_existing(place), body)))
        render(place.workspace)
        return
    params = made_params(body)
    require_vouched(params, place.workspace)
    enter(params, place.workspace)
    make_workspace(place.workspace, {FILE: to_yaml(body), **contents(params)})


def merge_existing(place: Place, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return params.yaml with what the workspace has already, where there is one."""
    return add_cells(_read_existing(place), body) if (place.workspace / FILE).is_file() else dict(body)


def _read_existing(place: Place) -> dict[str, Any]:
    return _parse_yaml((place.workspace / FILE).read_text(encoding="utf-8"))


def add_cells(there: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Add cells to a params.yaml. Settings that spend stay as they are, for another setting would be charged again.

    Raises:
        ParamsError: both name the same thing and differ.
    """
    body = _keep_cap(there, body)
    changed = [key for key in ("dataset", "privacy") if there.get(key) != body.get(key)]
    changed += ["models.lm"] * (there["models"]["lm"] != body["models"]["lm"])
    for section in _CHARGED:
        own, new = there.get(section, {}), body.get(section, {})
        changed += [f"{section}.{name}" for name in own.keys() & new.keys() if own[name] != new[name]]
    if changed:
        raise ParamsError(
            f"The workspace is there with other settings: {', '.join(sorted(changed))}.",
            "Name another --workspace, or give the options that it was made with. Nothing was charged.",
        )
    runs = {
        key: list(dict.fromkeys([*there.get("runs", {}).get(key, []), *names])) for key, names in body["runs"].items()
    }
    return {**merge_sections(there, body), "runs": runs}


def _keep_cap(there: Mapping[str, Any], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set the cap of the workspace: it is the ledger's, and no option changes it."""
    if "privacy" not in there or "privacy" not in body:
        return body
    return merge_sections(body, {"privacy": {"budget": {"epsilon": there["privacy"]["budget"]["epsilon"]}}})


def _parse_yaml(text: str) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load(text))
