"""The public language model: trained on public text, or fetched from where params.yaml says."""

import shutil

from palimpsest.files import atomic_path, write_json
from palimpsest.models.lm import load_lm, pretrain_lm
from palimpsest.models.sources import EMBEDDED, resolve_source
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.write import read_public
from stages.common import BASE_LM, METRICS, PUBLIC, start


def run() -> None:
    """data/public -> models/base."""
    params = load()
    measured = train(params) if params.models.lm == EMBEDDED else fetch(params.models.lm)
    write_json(METRICS / "pretrain.json", {"zone": "public", "source": params.models.lm, **measured})


def train(params: Params) -> dict[str, float]:
    """Train the embedded model; its measurements on public text."""
    texts = [row.text for row in read_public(PUBLIC / "train.parquet")]
    heldout = [row.text for row in read_public(PUBLIC / "heldout.parquet")]
    return pretrain_lm(texts, heldout, params.models.embedded_lm, params.seed, BASE_LM)


def fetch(source: str) -> dict[str, float]:
    """Copy a named model into the workspace, so that later stages depend on its bytes and not on its name."""
    folder = resolve_source(source)
    model, _ = load_lm(folder)
    with atomic_path(BASE_LM) as draft:
        shutil.copytree(folder, draft, ignore=shutil.ignore_patterns(".*", "*.bin", "*.h5", "*.msgpack", "*.md"))
    return {"parameters": model.num_parameters()}


if __name__ == "__main__":
    start(run)
