"""Choose public texts by noisy class means: a stage that spends, once."""

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.files import write_json
from palimpsest.generators.base import Budget, Plan
from palimpsest.generators.select import Candidates, Select
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params, SelectVariant
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import Ledger
from palimpsest.privacy.session import metered, receipt
from palimpsest.records.write import read_public, write_synthetic
from stages.common import METRICS, PUBLIC, RECEIPTS, SYNTHETIC, start
from stages.encode_public import EMBEDDINGS
from stages.encoding import encoders
from stages.spending import identify, private_rows, requested, tell

STAGE = "select"


def run(name: str) -> None:
    """data/private/train.parquet, data/public -> data/synthetic/<variant>.*, its receipt, generation.json."""
    params = load()
    ledger, schema, variant = Ledger.open(ledger_url(params)), params.schema_of_data, selecting(params, name)
    _, plan = planned(params, name)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    candidates = public_candidates()
    encode = encoders(params, variant.select.batch)
    generator = Select(variant.select, schema, candidates, encode.rows)
    identity, noise = identify(params, STAGE, name, plan, encode.fingerprint), NoiseSource(params.testing.noise_seed)
    with metered(ledger, schema, identity, requested(plan), private_rows, noise) as session:
        tell(session.reservation, ledger.balance(schema.asset).left)
        found = generator.fit(session.view, plan)
        rows = list(generator.sample(found, found.counts))
        write_synthetic(rows, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    body = receipt(ledger, ledger.asset(schema.asset), session, method=variant.method, target=variant.epsilon)
    write_json(RECEIPTS / f"{name}.json", body | {"plan": dict(plan.numbers)})
    zone = "dp" if variant.purpose == "release" else "internal"
    counts = {"variant": name, "zone": zone, "drawn": len(candidates.texts), "removed": {}, "rows": len(rows)}
    write_json(METRICS / name / "generation.json", counts)


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
