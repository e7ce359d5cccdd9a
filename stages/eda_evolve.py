"""Let private records vote for embeddings, round by round, and write the last ones down: a stage that spends."""

import hashlib
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.methods.embed.generator import Embed, Evolved
from palimpsest.methods.embed.settings import EmbedSettings
from palimpsest.methods.select.fit import Candidates
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.postprocess import Candidate, PersonalData
from palimpsest.models.decoder import Decoder
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import EmbedVariant, Params
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.records.evolved import write_evolved
from palimpsest.records.record import Record
from palimpsest.records.vouched import fingerprint_of
from palimpsest.records.write import read_public, write_synthetic
from palimpsest.workspace import BASE_LM, CHECKPOINTS, DECODERS, EMBEDDINGS, EVOLVED, PUBLIC, SYNTHETIC
from stages.common import start
from stages.encoding import Encoders, encoders
from stages.filters import Losses, chain, heldout_limit, public_losses
from stages.spending import charged, identify, record

STAGE = "eda_evolve"
KEPT = CHECKPOINTS / "embed"
_SHOWN = 8  # texts of either kind that the page shows


def run(name: str, decoder: str) -> None:
    """data/private/train.parquet, a decoder -> data/synthetic/<variant>.*, data/evolved/<variant>.npz, its receipt.

    Raises:
        ParamsError: the plan cannot work; nothing is asked then.
    """
    params = load()
    ledger, settings = Ledger.open(ledger_url(params)), embedding(params, name).embed
    _, plan = planned(params, name)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    encode = encoders(params, settings.batch)
    identity = identify(params, STAGE, name, plan, encode.fingerprint, digest(params, decoder))
    lasting = accounting.is_private(plan.event) and params.testing.noise_seed is None
    folder = KEPT / name / identity.key[:16] if lasting else None
    losses, limit = readability(settings)
    generator = generator_of(params, settings, decoder, encode, losses, limit, folder)
    with charged(params, ledger, identity, plan, continues) as session:
        evolved = generator.fit(session.view, plan, encode.rows)
        counts = keep(params, name, evolved, losses)
    record(params, ledger, session, plan, counts)
    shutil.rmtree(KEPT / name, ignore_errors=True)


def planned(params: Params, name: str) -> tuple[Embed, Plan]:
    """The generator of a variant and its plan; reads no row."""
    variant = embedding(params, name)
    generator = Embed(variant.embed, params.schema_of_data)
    return generator, generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta))


def embedding(params: Params, name: str) -> EmbedVariant:
    """A variant of method embed."""
    variant = params.variants[name]
    assert isinstance(variant, EmbedVariant)  # the schema lets no other run here
    return variant


def continues(charge: Charge, workspace: Path = Path()) -> bool:
    """Whether rounds that began and were stopped go on under their charge: while any is left, or is stored here."""
    if charge.steps is None or charge.noise_fixed or not accounting.is_private(charge.event):
        return False
    stored = (workspace / KEPT / charge.variant).glob(f"*/{charge.id}.json")
    return charge.steps_begun < charge.steps or any(stored)


def digest(params: Params, decoder: str) -> str:
    """Of the public models, texts and vectors that stand behind a variant."""
    found = hashlib.sha256(fingerprint_of(BASE_LM).encode())
    files = [PUBLIC / "train.parquet", PUBLIC / "heldout.parquet", *([EMBEDDINGS] if params.dataset.labels else [])]
    files += sorted(path for path in (DECODERS / decoder).rglob("*") if path.is_file())
    for path in files:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def readability(settings: EmbedSettings) -> tuple[Losses, float | None]:
    """The public model's losses, and the largest that can be read; None where all can."""
    losses, asked = public_losses(settings.decode.max_tokens, settings.decode.batch), settings.readable
    if asked is None:
        return losses, None
    if asked.perplexity is not None:
        return losses, math.log(asked.perplexity)
    assert asked.quantile is not None  # the schema asks for one of the two
    return losses, heldout_limit(losses, asked.quantile)


def generator_of(
    params: Params,
    settings: EmbedSettings,
    decoder: str,
    encode: Encoders,
    losses: Losses,
    limit: float | None,
    folder: Path | None,
) -> Embed:
    """The generator with its public texts, its decoder and its encoder."""
    texts = [row.text for row in read_public(PUBLIC / "train.parquet")]
    labelled = bool(params.dataset.labels)
    vectors: Mapping[str, np.ndarray] = np.load(EMBEDDINGS) if labelled else {"texts": encode.others(texts)}
    descriptions = vectors["descriptions"] if labelled else None
    return Embed(
        settings,
        params.schema_of_data,
        Candidates(texts, vectors["texts"]),
        descriptions,
        Decoder.load(DECODERS / decoder, encode.fingerprint),
        encode.others,
        encode.dimension,
        losses,
        limit,
        params.seed,
        folder,
    )


def keep(params: Params, name: str, evolved: Evolved, losses: Losses) -> dict[str, object]:
    """Filter what was written down and save it, and what each round voted for; counts for generation.json.

    All of it is post-processing of noisy answers.
    """
    removing = chain(embedding(params, name).embed.filters, 0, 1)  # no filter of this method reads tokens
    kept = [found.record for found in removing.apply([Candidate(row, math.nan) for row in evolved.records])]
    write_evolved(EVOLVED / f"{name}.npz", evolved.rounds)
    write_synthetic(kept, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    return {
        "drawn": evolved.written,
        "removed": {"unreadable": len(evolved.rejected), **removing.removed},
        "rows": len(kept),
        "rounds": len(evolved.rounds),
        "kept_samples": samples(kept, losses),
        "unreadable_samples": samples(evolved.rejected, losses),
    }


def samples(records: Sequence[Record], losses: Losses) -> list[dict[str, object]]:
    """A few texts, evenly from all, without personal data, each with its perplexity under the public model."""
    clean = PersonalData().keeps([Candidate(row, math.nan) for row in records])
    shown = [row for row, passes in zip(records, clean, strict=True) if passes and row.text.strip()]
    some = shown[:: max(1, len(shown) // _SHOWN)][:_SHOWN]
    found = losses([row.text for row in some]) if some else np.zeros(0)
    return [
        {"text": row.text, "label": row.label, "perplexity": math.exp(loss)}
        for row, loss in zip(some, found, strict=True)
    ]


if __name__ == "__main__":
    start(run)
