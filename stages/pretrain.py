"""Makes the public language model: trained on public text, or fetched as params.yaml says and left as it is."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from palimpsest.files import atomic_path, write_json
from palimpsest.models.encoder import assign_nearest
from palimpsest.models.lm import learn_prompts, load_lm, pretrain_lm
from palimpsest.models.vocabulary import cut_vocabulary
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.record import Record
from palimpsest.records.vouched import EMBEDDED
from palimpsest.records.write import read_public
from palimpsest.workspace import BASE_LM, METRICS, PUBLIC
from stages.common import start
from stages.public import heldout_texts, open_checkpoints, public_embeddings, public_texts
from stages.vouching import resolve_vouched


def run() -> None:
    """data/public -> models/base, and models/untouched where a copy of a named model learns prompts."""
    params = load()
    own, kept = params.models.lm == EMBEDDED, params.untouched
    measured = train(params) if own else fetch(resolve_vouched(params, "models.lm"), kept)
    if params.models.vocabulary and not own:
        measured["vocabulary"] = cut_tokens(kept, params.models.vocabulary)
    if params.learns_prompts:
        warm_up(params, kept)
    write_json(METRICS / "pretrain.json", {"zone": "public", "source": params.models.lm, **measured})


def train(params: Params) -> dict[str, float]:
    """Train the embedded model; return its measurements on public text."""
    with open_checkpoints("pretrain") as kept:
        return pretrain_lm(public_texts(), heldout_texts(), params.models.embedded_lm, params.seed, BASE_LM, kept)


def cut_tokens(folder: Path, size: int) -> int:
    """Keep only the tokens that public text uses most; return their number."""
    return cut_vocabulary(folder, public_texts(), size, folder)


def warm_up(params: Params, folder: Path) -> None:
    """Teach the model in `folder` prompts -> models/base."""
    rows, settings = read_public(PUBLIC / "train.parquet"), params.models.prompts
    assert settings is not None  # the caller checked
    texts, labels = [row.text for row in rows], guessed_labels(params, rows)
    with open_checkpoints("pretrain") as kept, atomic_path(BASE_LM) as draft:
        shutil.copytree(folder, draft)
        learn_prompts(draft, texts, labels, settings, params.seed, kept=kept)


def guessed_labels(params: Params, rows: Sequence[Record]) -> list[str]:
    """Return each public row's own label, or the one whose public description is nearest."""
    names, embeddings = tuple(params.dataset.labels), public_embeddings(params.dataset.labels)
    guesses = assign_nearest(embeddings["texts"], embeddings["descriptions"])
    return [row.label or names[guess] for row, guess in zip(rows, guesses, strict=True)]


def fetch(folder: Path, into: Path) -> dict[str, float]:
    """Copy a named model into the workspace, so that later stages depend on its bytes and not on its name."""
    model, _ = load_lm(folder)
    with atomic_path(into) as draft:
        unread = shutil.ignore_patterns(".*", "*.bin", "*.h5", "*.msgpack", "*.md", "*.py")
        shutil.copytree(folder, draft, ignore=unread)
    return {"parameters": model.num_parameters()}


if __name__ == "__main__":
    start(run)
