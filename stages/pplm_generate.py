"""Writes the synthetic rows of one variant: post-processing of a fitted model, free."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

from palimpsest.devices import dtype_of
from palimpsest.files import make_folder, write_json
from palimpsest.graph import closure
from palimpsest.methods.dp_lm.model import ENCODER, DpLmArtifact
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.shared.base import GenerationCounts
from palimpsest.params.load import load
from palimpsest.params.schema import DpLmVariant, Params
from palimpsest.records.texts import keep_whole
from palimpsest.records.vouched import contents_of, fingerprint_of, sha256
from palimpsest.records.write import shuffle_rows, write_synthetic
from palimpsest.workspace import METRICS, MODELS, PUBLIC, RECEIPTS, SHARDS, SYNTHETIC
from stages.common import start
from stages.filters import chain
from stages.resuming import receipt_of
from stages.tools import encoders, memory_of


def run(name: str, model: str) -> None:
    """models/<model> -> data/synthetic/<variant>.jsonl, .parquet, the variant's receipt and its generation.json."""
    params, receipt = load(), receipt_of(model)
    variant = params.variants[name]
    assert isinstance(variant, DpLmVariant)  # the schema lets no other run here
    artifact = DpLmArtifact.load(MODELS / model, dtype_of(variant.generate.precision))
    memory = memory_of(leaves=receipt.private)
    encode = encoders(params, others=memory) if artifact.judging.head.shape.reads == ENCODER else None
    settings = variant.generate
    removing = chain(params, settings.filters, settings.max_tokens, settings.batch)
    shards = shard_folder(name, digest(params, name, model, encode.fingerprint if encode else ""))
    sampler = Sampler(
        settings, variant.variant, params.seed + settings.seed, removing, encode.others if encode else None, shards,
        params.dataset.json_schema,
    )  # fmt: skip
    made = list(sampler.sample(artifact, artifact.counts(settings.rows)))
    rows, lost = keep_whole(made, params.dataset.text)
    write_synthetic(shuffle_rows(rows), SYNTHETIC / name, params.dataset.text, params.dataset.label)
    counts = GenerationCounts(drawn=removing.seen, removed={**removing.removed, **lost}, rows=len(rows))
    write_json(METRICS / name / "generation.json", counts.to_json(name, receipt.zone) | removing.noted_as_json())
    write_json(RECEIPTS / f"{name}.json", replace(receipt, variant=name).to_json())
    shutil.rmtree(SHARDS / name)


def shard_folder(name: str, wanted: str) -> Path:
    """Return the folder of shards that a stopped run of the same settings left; remove those of other settings."""
    folder = SHARDS / name
    for path in folder.glob("*"):
        if path.name != wanted:
            shutil.rmtree(path)
    make_folder(folder / wanted)  # for the owner only: a reference's rows are not private
    return folder / wanted


def digest(params: Params, name: str, model: str, encoder: str) -> str:
    """Return the digest that the shards of a stopped run must share with this run."""
    known = hashlib.sha256(closure.digest("stages.pplm_generate").encode())
    known.update(
        repr((params.seed, encoder, params.variants[name].model_dump_json(), params.dataset.json_schema)).encode()
    )
    known.update(contents_of(MODELS / model).encode())
    variant = params.variants[name]
    if isinstance(variant, DpLmVariant) and "perplexity" in variant.generate.filters.chain:
        known.update(f"{sha256(PUBLIC / 'heldout.parquet')} {fingerprint_of(params.untouched)}".encode())
    return known.hexdigest()[:16]


if __name__ == "__main__":
    start(run)
