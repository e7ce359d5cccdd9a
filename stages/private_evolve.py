"""Let private records vote for texts that an author writes, round by round: a stage that spends."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

from palimpsest.methods.evolve.generator import Evolve, Evolved
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.postprocess import Candidate
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import EvolveVariant, Params
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.records.write import write_rounds, write_synthetic
from palimpsest.workspace import CHECKPOINTS, EVOLVED, SYNTHETIC
from stages.authors import author_of, digest_of, expected, told, warnings
from stages.common import start
from stages.encoding import encoders
from stages.filters import chain
from stages.spending import charged, identify, record

STAGE = "private_evolve"
KEPT = CHECKPOINTS / "evolve"


def run(name: str, author: str) -> None:
    """data/private/train.parquet, an author -> data/synthetic/<variant>.*, data/evolved/<variant>.parquet, receipt."""
    params = load()
    ledger, variant = Ledger.open(ledger_url(params)), evolving(params, name)
    _, plan = planned(params, name)
    encode = encoders(params, variant.evolve.batch)
    identity = identify(params, STAGE, name, plan, digest_of(params, author), encode.fingerprint)
    writer = author_of(params, author, name, encode.others)
    folder = KEPT / name / identity.key[:16] if accounting.is_private(plan.event) else None
    reader = encode.others, encode.dimension
    generator = Evolve(variant.evolve, params.schema_of_data, writer, *reader, params.seed, folder)
    with charged(params, ledger, identity, plan, continues) as session:
        evolved = generator.fit(session.view, plan, encode.rows)
        counts = keep(params, name, evolved) | told(writer)
    record(params, ledger, session, plan, counts)
    shutil.rmtree(KEPT / name, ignore_errors=True)


def planned(params: Params, name: str) -> tuple[Evolve, Plan]:
    """The generator of a variant and its plan, with what its author is expected to read and write; reads no row."""
    variant = evolving(params, name)
    generator = Evolve(variant.evolve, params.schema_of_data)
    plan = generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta))
    numbers = {**plan.numbers, **expected(params, name, variant.evolve)}
    return generator, replace(plan, numbers=numbers, notes=(*plan.notes, *warnings(params, name, numbers)))


def evolving(params: Params, name: str) -> EvolveVariant:
    """A variant of method evolve."""
    variant = params.variants[name]
    assert isinstance(variant, EvolveVariant)  # the schema lets no other run here
    return variant


def continues(charge: Charge, workspace: Path = Path()) -> bool:
    """Whether rounds that began and were stopped go on under their charge: while any is left, or is stored here."""
    if charge.steps is None or charge.noise_fixed or not accounting.is_private(charge.event):
        return False
    stored = (workspace / KEPT / charge.variant).glob(f"*/{charge.id}.json")
    return charge.steps_begun < charge.steps or any(stored)


def keep(params: Params, name: str, evolved: Evolved) -> dict[str, object]:
    """Filter what the last round selected and save it, and what each round selected; counts for generation.json.

    All of it is post-processing of noisy counts.
    """
    removing = chain(evolving(params, name).evolve.filters, 0, 1)  # no filter of this method reads tokens
    kept = [found.record for found in removing.apply([Candidate(row, math.nan) for row in evolved.records])]
    write_rounds(EVOLVED / f"{name}.parquet", evolved.rounds)
    write_synthetic(kept, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    return {
        "drawn": len(evolved.records),
        "removed": removing.removed,
        "rows": len(kept),
        "rounds": len(evolved.rounds),
    }


if __name__ == "__main__":
    start(run)
