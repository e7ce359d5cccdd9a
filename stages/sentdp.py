"""Pick public texts deep in the cloud of each label's rows: a stage that spends, once."""

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.methods.baselines.sentdp.fit import SentDp, digest
from palimpsest.methods.select.fit import Candidates
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params, SentDpVariant
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.records.write import read_public, write_synthetic
from palimpsest.workspace import EMBEDDINGS, PUBLIC, SYNTHETIC
from stages.common import start
from stages.encoding import encoders
from stages.spending import charged, identify, record

STAGE = "sentdp"


def run(name: str) -> None:
    """data/private/train.parquet, data/public -> data/synthetic/<variant>.*, its receipt, generation.json."""
    params = load()
    ledger, variant = Ledger.open(ledger_url(params)), picking(params, name)
    _, plan = planned(params, name)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    candidates, encode = public_candidates(), encoders(params, variant.sentdp.batch)
    generator = SentDp(variant.sentdp, params.schema_of_data, candidates, encode.rows)
    identity = identify(params, STAGE, name, plan, encode.fingerprint, digest(candidates))
    with charged(params, ledger, identity, plan) as session:
        picked = generator.fit(session.view, plan)
        rows = list(generator.sample(picked, picked.counts))
        write_synthetic(rows, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    record(params, ledger, session, plan, {"drawn": len(rows), "removed": {}, "rows": len(rows)})


def planned(params: Params, name: str) -> tuple[SentDp, Plan]:
    """The generator of a variant and its plan; reads no row."""
    variant = picking(params, name)
    generator = SentDp(variant.sentdp, params.schema_of_data)
    return generator, generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta))


def picking(params: Params, name: str) -> SentDpVariant:
    """A variant of method sentdp."""
    variant = params.variants[name]
    assert isinstance(variant, SentDpVariant)  # the schema lets no other run here
    return variant


def public_candidates() -> Candidates:
    """The public texts with their embeddings."""
    return Candidates([row.text for row in read_public(PUBLIC / "train.parquet")], np.load(EMBEDDINGS)["texts"])


if __name__ == "__main__":
    start(run)
