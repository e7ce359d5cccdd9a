"""Replace every word of the private rows by a public neighbour: a stage for reference, whose rows stay private."""

import hashlib

from palimpsest.methods.baselines.custext.fit import CusText
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.models.word_map import word_map
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import CusTextVariant, Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.records.write import read_public, write_synthetic
from palimpsest.workspace import PUBLIC, SYNTHETIC
from stages.common import start
from stages.encoding import encoders
from stages.spending import charged, identify, record

STAGE = "custext"


def run(name: str) -> None:
    """data/private/train.parquet, data/public/train.parquet -> data/synthetic/<variant>.*, its receipt."""
    params = load()
    ledger, settings = Ledger.open(ledger_url(params)), replacing(params, name).custext
    _, plan = planned(params, name)
    encode = encoders(params, 1)  # no private text is encoded
    public = PUBLIC / "train.parquet"
    texts, of_texts = [row.text for row in read_public(public)], hashlib.sha256(public.read_bytes()).hexdigest()
    sets = word_map(texts, encode.others, settings.neighbours, settings.vocabulary)
    generator = CusText(settings, params.schema_of_data, sets)
    identity = identify(params, STAGE, name, plan, encode.fingerprint, of_texts)
    with charged(params, ledger, identity, plan) as session:
        replaced = generator.fit(session.view, plan)
        rows = list(generator.sample(replaced, replaced.counts))
        write_synthetic(rows, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    counts = {"drawn": len(rows) + replaced.empty, "removed": {"empty": replaced.empty}, "rows": len(rows)}
    record(params, ledger, session, plan, counts)


def planned(params: Params, name: str) -> tuple[CusText, Plan]:
    """The generator of a variant and its plan; reads no row."""
    variant = replacing(params, name)
    generator = CusText(variant.custext, params.schema_of_data)
    return generator, generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta))


def replacing(params: Params, name: str) -> CusTextVariant:
    """A variant of method custext."""
    variant = params.variants[name]
    assert isinstance(variant, CusTextVariant)  # the schema lets no other run here
    return variant


if __name__ == "__main__":
    start(run)
