"""Fit `dp_lm` to the private rows of one variant: the only stage here that spends budget."""

import hashlib

from palimpsest.files import read_json, write_json
from palimpsest.generators.base import Budget, Plan
from palimpsest.generators.dp_lm.generator import DpLm
from palimpsest.params.dp_lm import DpLmSettings
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import DpLmVariant, Params
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import Ledger, Request, Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import code_digest, metered, receipt
from palimpsest.records.write import read_split
from stages.common import BASE_LM, MODELS, PRIVATE, RECEIPTS, start


def run(name: str) -> None:
    """data/private/train.parquet, models/base -> models/<variant>, reports/receipts/<variant>.json."""
    params = load()
    variant = params.variants[name]
    ledger = Ledger.open(ledger_url(params))
    asset = ledger.asset(params.dataset.asset)
    generator, plan = planned(params, variant)
    identity = identify(params, name, plan)
    requests = [Request(query.name, query.event) for query in plan.queries]
    with metered(
        ledger, params.schema_of_data, identity, requests, private_rows, NoiseSource(params.testing.noise_seed)
    ) as session:
        tell(session.reservation.run, session.reservation.lost, ledger.balance(asset.name).left)
        generator.fit(session.view, plan).save(MODELS / name)
    body = receipt(ledger, asset, session, method="dp_lm", target=variant.epsilon)
    write_json(RECEIPTS / f"{name}.json", {**body, "plan": dict(plan.numbers)})


def planned(params: Params, variant: DpLmVariant) -> tuple[DpLm, Plan]:
    """The generator of a variant and its plan; reads no row."""
    schema = params.schema_of_data
    settings = DpLmSettings(train=variant.train, generate=variant.generate)
    generator = DpLm(settings, schema, BASE_LM, params.seed)
    return generator, generator.plan(schema, Budget(variant.epsilon, params.delta))


def identify(params: Params, name: str, plan: Plan) -> Run:
    """What makes a retry of this plan the same plan: data version, settings, base model, code."""
    variant = params.variants[name]
    digest = hashlib.sha256(variant.model_dump_json(exclude={"generate"}).encode())
    digest.update(repr((plan.queries, params.seed, params.testing.noise_seed)).encode())
    for path in sorted(BASE_LM.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return Run(
        stage="dp_train",
        variant=name,
        purpose=variant.purpose,
        fingerprint=read_json(PRIVATE / "manifest.json")["fingerprint"],
        plan=digest.hexdigest(),
        code=code_digest(),
    )


def private_rows() -> list[PrivateRow]:
    """The training rows."""
    return [PrivateRow(row.text, row.label) for row in read_split(PRIVATE / "train.parquet")]


def tell(number: int, lost: int, left: float) -> None:
    """Say what a repeated look costs."""
    if lost:
        print(
            f"budget: an earlier attempt was stopped after {lost} of its queries had begun; they stay charged, and "
            "are charged again now"
        )
    if number > 1:
        print(f"budget: this plan already ran {number - 1} time(s) on this data; another look is charged again")
    print(f"budget: epsilon {left:.3f} is left for this data set, this run included", flush=True)


if __name__ == "__main__":
    start(run)
