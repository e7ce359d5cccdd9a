"""A small workspace whose one variant was really charged, and its release: no model runs, all else is as in a run."""

import atexit
import copy
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import stages.release
from palimpsest.files import read_json, write_json
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, load
from palimpsest.params.schema import Params, ReleaseSettings
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered, receipt
from palimpsest.records.record import Fields, Record
from palimpsest.records.world.facts import Canary, Facts
from palimpsest.records.write import write_synthetic
from palimpsest.report.release import bundle, word
from palimpsest.report.release.keys import VARIABLE, new_key
from palimpsest.work.context import asset_of
from tests.reading import EVERYTHING, reading
from tests.settings_file import demo, edit_settings, write_settings

PERSONS = {"column": "customer", "max_rows": 4, "persons": 2500, "missing": "drop"}
ROOT = Path(__file__).parents[2]
FILES = (  # of a release, beside its rows
    bundle.CARD, bundle.README, bundle.STATEMENT, bundle.AUDIT, bundle.LEDGER, bundle.TRADEOFF, bundle.CROISSANT,
    bundle.PROVENANCE, bundle.KEY, bundle.ENVELOPE,
)  # fmt: skip
VARIANT, REFERENCE = "select3", "unbound_reference"
SECRET = "mulberry quartz 7719"
PRIVATE_HASHES = {  # of files of the private zone, as dvc.lock has them
    "data/raw/private.jsonl": "a1" * 16, "data/raw/test.jsonl": "a2" * 16, "data/raw/facts.json": "a3" * 16,
    "data/private/train.parquet": "a4" * 16, "data/private/manifest.json": "a5" * 16,
    "data/synthetic/select3.parquet": "a6" * 16, "reports/receipts/select3.json": "a7" * 16,
}  # fmt: skip
SOURCES = (  # of the release: dvc.lock has their hashes
    "data/synthetic/", "reports/receipts/", "reports/metrics/public", "reports/metrics/select3/generation",
)  # fmt: skip
PUBLIC_HASHES = {
    "data/inputs": "b0" * 16, "data/public/train.parquet": "b1" * 16, "data/public/embeddings.npz": "b2" * 16,
}  # fmt: skip
STAGES: dict[str, dict[str, Any]] = {  # what the release needs beside the stages that make rows
    "inputs": {
        "cmd": "python -P -m stages.inputs",
        "always_changed": True,
        "outs": [{"data/inputs": {"cache": False}}],
        "meta": {"zone": "public"},
    },
    "public_eval": {
        "cmd": "python -P -m stages.public_eval",
        "deps": ["data/synthetic", "${dataset.public_test}"],
        "metrics": ["reports/metrics/public.json"],
        "meta": {"zone": "dp"},
    },
    "release": {
        "cmd": "python -P -m stages.release",
        "deps": [
            "data/synthetic",
            "data/raw/facts.json",
            "reports/metrics/public.json",
            "reports/receipts",
        ],
        "outs": [{"release": {"cache": False, "push": False}}],
        "meta": {"zone": "dp", "gates": ["data/raw/facts.json"]},
    },
}
_EMPTY = (
    "dp_train", "teach_similar", "decoder_pretrain", "sentdp", "custext", "embedding_audit", "audit",
    "in_context_baseline", "in_context",
)  # fmt: skip
_NO_ROWS = ("discriminator", "dp_lm", "private_predict", "private_evolve", "vote_select", "eda_evolve")
_yaml = YAML(typ="safe", pure=True)


def settings(**changes: Any) -> ReleaseSettings:
    """What is to be released: one variant."""
    given = {"variants": [VARIANT], "title": "Tickets, invented", "license": "CC0-1.0", "gates": {"accuracy": None}}
    return ReleaseSettings.model_validate(given | changes)


def graph() -> dict[str, Any]:
    """The repository's graph, with the stages of a release where it has none."""
    found = _yaml.load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    return copy.deepcopy(STAGES) | found


def content(unit: str = "record", milestones: tuple[float, ...] | None = None, **data: Any) -> dict[str, Any]:
    """params.yaml of the repository, with one variant of method select and a reference beside it.

    With milestones, be they none, its total is counted in Gaussian DP.
    """
    body = demo()
    run: dict[str, Any] = {name: [] for name in _EMPTY} | {name: {} for name in _NO_ROWS}
    body["run"] |= run | {"select": [VARIANT, REFERENCE]}
    body["run"] |= {"evaluate": [VARIANT, REFERENCE], "audit": [VARIANT]}
    body["release"] = settings().model_dump(mode="json")
    body["variants"][REFERENCE] = body["variants"][VARIANT] | {"purpose": "reference"}
    body["dataset"] |= data
    if unit == "person":
        body["dataset"]["unit"] = PERSONS
        for judge in body["discriminators"].values():
            judge["train"]["batch"] = PERSONS["persons"]  # no batch is larger than the data
    body["privacy"]["ledger"] = ".palimpsest/ledger.db"
    if milestones is not None:
        body["privacy"]["budget"] |= {"filter": "gdp", "milestones": list(milestones)}
    return dict(body)


@dataclass
class Workspace:
    """A folder in which `stages.release` can run."""

    folder: Path  # the workspace; the working directory while it is used
    key: Path  # the file of the signing key, outside it

    @property
    def params(self) -> Params:
        """The settings."""
        return load(self.folder)

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened."""
        return Ledger.open(ledger_url(self.params, self.folder))

    def read(self, path: str) -> Any:
        """A JSON document of the workspace."""
        return read_json(self.folder / path)

    def change(self, path: str, **values: Any) -> None:
        """Set values of a JSON document."""
        write_json(self.folder / path, self.read(path) | values)
        self.lock()

    def lock(self) -> None:
        """Let dvc.lock say that stages wrote the files as they are."""
        if (self.folder / "dvc.lock").is_file():
            _lock(self.folder)

    def graph(self, change: dict[str, Any] | None = None) -> None:
        """Write dvc.yaml with some stages changed."""
        with (self.folder / "dvc.yaml").open("w", encoding="utf-8") as file:
            _yaml.dump({"stages": graph() | (change or {})}, file)

    def edit(self, section: str, **values: Any) -> None:
        """Set values of a section of params.yaml."""
        edit_settings(self.folder, section, **values)

    def rows(self, *texts: str, label: str = "returns", fields: Fields = ()) -> None:
        """Write other synthetic rows."""
        data, rows = self.params.dataset, [Record(text, label, fields) for text in texts]
        write_synthetic(rows, self.folder / f"data/synthetic/{VARIANT}", data.text, data.label)
        self.lock()

    def charge(self, variant: str = VARIANT, purpose: str = "release", seed: int | None = None) -> dict[str, Any]:
        """Ask one real query and write its receipt."""
        params, ledger = self.params, self.ledger
        query = LabelHistogram(labels=tuple(params.dataset.labels), sigma=4.0)
        persons = ["ab" * 32, "ab" * 32, "cd" * 32] if params.schema_of_data.unit == "person" else [None] * 3
        rows = [PrivateRow("the vase arrived in shards", "returns", person) for person in persons]
        run = Run("select", variant, purpose, "", f"plan of {variant} {seed}")
        run = reading(run, ledger, params.dataset.asset, rows)
        asked = [PlannedQuery(query.name, query.event())]
        noise = NoiseSource(seed)
        with metered(ledger, params.schema_of_data, run, asked, lambda: rows, noise, again=EVERYTHING) as session:
            session.view.ask(query)
        asset = ledger.asset(params.dataset.asset)
        found = receipt(ledger, asset, session, method="select", target=3.0)
        body = replace(found, plan={"sigma": 4.0, "rows": 12}).to_json()
        write_json(self.folder / f"reports/receipts/{variant}.json", body)
        self.lock()
        return body


def workspace(folder: Path, key: Path, unit: str = "record", milestones: tuple[float, ...] | None = None) -> Workspace:
    """Make one, with a key to sign with, for one unit of privacy."""
    folder.mkdir(parents=True)
    write_settings(folder, content(unit, milestones))
    made, params = Workspace(folder, key), load(folder)
    Ledger.create(ledger_url(params, folder)).register(asset_of(params))
    made.graph()
    made.charge()
    made.charge(REFERENCE, "reference")
    made.rows(*(f"The grill hums at night, request {number}." for number in range(12)))
    _measure(made)
    _lock(folder)
    canaries = (Canary("canary-1", SECRET, 4),)
    known = Facts((), (), canaries, ("Aeris 3",), (("hums", "humming"),))
    write_json(folder / "data/raw/facts.json", known.to_json())
    new_key(key)
    return made


def _measure(made: Workspace) -> None:
    def write(name: str, body: dict[str, Any]) -> None:
        write_json(made.folder / f"reports/metrics/{name}.json", body)

    score = {"tfidf_lr": {"accuracy": 0.8125, "low": 0.78, "high": 0.84}}
    names = (VARIANT, "public_only")
    write(
        f"{VARIANT}/generation", {"variant": VARIANT, "zone": "dp", "drawn": 15, "removed": {"length": 3}, "rows": 12}
    )
    write(f"{VARIANT}/utility", {"zone": "internal", "evaluators": {"tfidf_lr": {"accuracy": 0.7654321}}})
    for kind in ("membership", "text_membership"):
        write(f"{VARIANT}/{kind}", {"variant": VARIANT, "zone": "internal", "auc": 0.5123457, "verdict": "not refuted"})
    shared = {"rows": dict.fromkeys(names, 12), "test_rows": dict.fromkeys(names, 50)}
    write("public", {"zone": "publishable", **shared, "variants": dict.fromkeys(names, score)})


def _lock(folder: Path) -> None:
    """A dvc.lock as DVC writes it, with a hash for every file."""
    hashes = PRIVATE_HASHES | PUBLIC_HASHES

    def entries(*paths: str) -> list[dict[str, Any]]:
        return [{"path": path, "hash": "md5", "md5": own(path), "size": 987654} for path in paths]

    def own(path: str) -> str:
        return md5((folder / path).read_bytes()).hexdigest() if path.startswith(SOURCES) else hashes[path]

    raw = entries("data/raw/private.jsonl", "data/raw/test.jsonl")
    split = entries("data/private/train.parquet", "data/private/manifest.json")
    facts, public, encoded = (entries(path) for path in PUBLIC_HASHES)
    found = [path for start in SOURCES for path in sorted(folder.glob(f"{start}*")) if path.is_file()]
    made = entries(*(path.relative_to(folder).as_posix() for path in found))
    stages = {
        "inputs": {"cmd": "python -P -m stages.inputs", "outs": facts},
        "world": {"cmd": "python -P -m stages.world", "outs": [*raw, *entries("data/raw/facts.json")]},
        "preprocess": {"cmd": "python -P -m stages.preprocess", "deps": raw, "outs": [*split, *public]},
        "encode_public": {"cmd": "python -P -m stages.encode_public", "deps": public, "outs": encoded},
        f"select@{VARIANT}": {"cmd": f"python -P -m stages.fit {VARIANT}", "deps": [*split, *public], "outs": made},
    }
    with (folder / "dvc.lock").open("w", encoding="utf-8") as file:
        _yaml.dump({"schema": "2.0", "stages": stages}, file)


@contextmanager
def inside(made: Workspace) -> Iterator[Workspace]:
    """Make it the working directory and its key the key, and give the owner's word, as for a process started there."""
    with chdir(made.folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(made.key))
        patch.setenv(word.VARIABLE, word.YES)
        patch.delenv(LEDGER_VARIABLE, raising=False)
        yield made


@cache
def released(unit: str = "record", milestones: tuple[float, ...] | None = None) -> Workspace:
    """One workspace with its release, made once of its kind for all tests of a process; nobody changes it."""
    home = Path(tempfile.mkdtemp(prefix="released"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    made = workspace(home / "work", home / "keys" / "own.pem", unit, milestones)
    with inside(made):
        stages.release.run()
    return made


def copied(made: Workspace, home: Path) -> Workspace:
    """A test's own copy of a workspace, with its release and its key."""
    shutil.copytree(made.folder, home / "work")
    shutil.copy2(made.key, home / "own.pem")
    return Workspace(home / "work", home / "own.pem")
