"""Choose public texts by noisy class means: a stage that spends, once."""

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.methods.select.fit import Candidates, Select
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params, SelectVariant
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.records.write import read_public, write_synthetic
from palimpsest.workspace import EMBEDDINGS, PUBLIC, SYNTHETIC
from stages.common import start
from stages.encoding import encoders
from stages.spending import charged, identify, record

STAGE = "select"


def run(name: str) -> None:
    """data/private/train.parquet, data/public -> data/synthetic/<variant>.*, its receipt, generation.json."""
    params = load()
    ledger, variant = Ledger.open(ledger_url(params)), selecting(params, name)
    _, plan = planned(params, name)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    candidates, encode = public_candidates(), encoders(params, variant.select.batch)
    generator = Select(variant.select, params.schema_of_data, candidates, encode.rows)
    with charged(params, ledger, identify(params, STAGE, name, plan, encode.fingerprint), plan) as session:
        found = generator.fit(session.view, plan)
        rows = list(generator.sample(found, found.counts))
        write_synthetic(rows, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    record(params, ledger, session, plan, {"drawn": len(rows), "removed": {}, "rows": len(rows)})


def planned(params: Params, name: str) -> tuple[Select, Plan]:
    """The generator of a variant and its plan; reads no row."""
    variant = selecting(params, name)
    generator = Select(variant.select, params.schema_of_data)
    return generator, generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta))


def selecting(params: Params, name: str) -> SelectVariant:
    """A variant of method select."""
    variant = params.variants[name]
    assert isinstance(variant, SelectVariant)  # the schema lets no other run here
    return variant


def public_candidates() -> Candidates:
    """The public texts with their embeddings."""
    return Candidates([row.text for row in read_public(PUBLIC / "train.parquet")], np.load(EMBEDDINGS)["texts"])


if __name__ == "__main__":
    start(run)
