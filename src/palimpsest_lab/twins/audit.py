"""Audits one method end to end: its stages run on invented rows, as they are and with faults."""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from unittest import mock

from palimpsest.files import write_json
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.method import Family
from palimpsest.params.load import LEDGER_VARIABLE, load, texts
from palimpsest.privacy.ledger import witness
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.fields import Declared, domains_of, encode_cells
from palimpsest.records.keyed import fingerprint
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import write_public, write_split
from palimpsest.workspace import (
    BASE_LM,
    EVOLVED,
    MANIFEST,
    MODEL_RECEIPTS,
    MODELS,
    PRIVATE,
    PUBLIC,
    RECEIPTS,
    SYNTHETIC,
    Zone,
)
from palimpsest_lab.twins.attacks import Release, save_base, save_encoder
from palimpsest_lab.twins.faults import plant_fault
from palimpsest_lab.twins.result import Trial, Twin, TwinAudit, judge_scores
from palimpsest_lab.twins.scenes import NAME, Scene, Step
from palimpsest_lab.twins.settings import ASSET, invented_params
from stages import decoder_pretrain, discriminator, dp_train, encode_public, fit

_STAGES: dict[str, ModuleType] = {
    **{method.stage: fit for method in METHODS if method.family is not Family.TRAINS},
    "encode_public": encode_public,
    "decoder_pretrain": decoder_pretrain,
    "dp_train": dp_train,
    "discriminator": discriminator,
}
_ENCODER = Path("encoder")  # outside the folders of fitted models, as a public model is


def audit_twins(scene: Scene, seed: int) -> TwinAudit:
    """Run a method's own stages as they are and once for each fault, and attack what each run shows."""
    with TemporaryDirectory() as home:
        place = _Place(Path(home).resolve(), scene)
        place.prepare(seed)
        trial, *broken = map(place.run, (None, *scene.faults))
        return TwinAudit(scene.method, trial, tuple(map(Twin, scene.faults, broken)))


@dataclass(frozen=True)
class _Place:
    """A temporary folder with an invented workspace, and a new ledger beside it for every run.

    Guarantee: a run reads canaries, texts and models that the scene invented, in a folder of its own, and is charged to
    a ledger that lies there: neither the user's rows nor the user's ledger are opened. `planted` keeps faults away from
    any other rows.
    """

    home: Path  # the folder, an absolute path
    scene: Scene  # the scene that runs

    def prepare(self, seed: int) -> None:
        """Write settings, public texts and public models, and run the stages that read only these."""
        workspace, scene = self.home / "workspace", self.scene
        workspace.mkdir()
        invented = invented_params(seed, scene.sections, workspace / _ENCODER)
        for name, text in texts(invented).items():
            (workspace / name).write_text(text, encoding="utf-8")
        public = [Record(text) for text in scene.public]
        write_public(workspace / PUBLIC / "train.parquet", public)
        write_public(workspace / PUBLIC / "heldout.parquet", public)
        save_encoder(scene.words, workspace / _ENCODER)
        save_base(scene.words, scene.sharpness, seed, workspace / BASE_LM)
        with _enter_workspace(workspace, self.home / "none.db"):
            _run(scene.before)

    def run(self, fault: str | None) -> Trial:
        """Flip the coins, run the stages on the canaries that are in, with one fault or none, and attack."""
        coins = self.scene.canaries.flip()
        with TemporaryDirectory(dir=self.home) as own:
            workspace, books = Path(own) / "workspace", Path(own) / "ledger.db"
            shutil.copytree(self.home / "workspace", workspace)
            with _enter_workspace(workspace, books):
                params = load()
                terms = params.delta, params.privacy.budget.epsilon, params.dataset.n_public
                asset = Ledger.create(f"sqlite:///{books}").register(Asset(ASSET, *terms))
                members = [*self.scene.canaries.members(coins), *self.scene.always]
                _write_rows(members, asset.key, params.dataset.fields)
                with plant_fault(fault, [*self.scene.canaries.records, *self.scene.always]):
                    _run(self.scene.steps)
                release = Release(SYNTHETIC / NAME, MODELS / NAME, EVOLVED / f"{NAME}.npz", BASE_LM, _ENCODER)
                receipt = _receipt()
                assert receipt.claim is not None  # a twin is planned as a release
                found = judge_scores(self.scene.attack(release), coins, receipt.claim, params.delta, params.seed)
                asked = {part: number for query in receipt.queries for part, number in query.versions.items()}
                return replace(found, versions=dict(sorted(asked.items())))


def _write_rows(records: list[Record], key: bytes, fields: Mapping[str, Declared]) -> None:
    domains, told = domains_of(fields), [dict(record.fields) for record in records]
    cells = [encode_cells([own.get(name) for name in fields], domains) for own in told]
    rows = [SplitRow(one.text, one.label, guess=True, fields=own) for one, own in zip(records, cells, strict=True)]
    write_split(PRIVATE / "train.parquet", rows, fields=bool(fields))
    write_json(MANIFEST, {"zone": Zone.PRIVATE, "fingerprint": fingerprint(rows, key)})


def _run(steps: tuple[Step, ...]) -> None:
    """Run stages one after another, without their output about the invented budget."""
    for stage, *arguments in steps:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            _STAGES[stage].run(*arguments)


def _receipt() -> Receipt:
    receipts = [folder / f"{NAME}.json" for folder in (RECEIPTS, MODEL_RECEIPTS)]
    return next(read_receipt(path) for path in receipts if path.is_file())


@contextmanager
def _enter_workspace(workspace: Path, books: Path) -> Iterator[None]:
    """Make a workspace the working directory and its ledger the ledger, with the ledger's witnesses beside it."""
    own = {LEDGER_VARIABLE: str(books), witness.VARIABLE: str(books.parent / "witnesses")}
    with mock.patch.dict(os.environ, own), contextlib.chdir(workspace):
        yield
