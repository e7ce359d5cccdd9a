"""Keep those rows of another variant that one noisy vote of the records points at: a stage that spends."""

import hashlib
from pathlib import Path

from palimpsest.methods.shared.base import Budget
from palimpsest.methods.vote_select.fit import VoteSelect
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params, VoteSelectVariant
from palimpsest.privacy.ledger.filter import composed
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.receipt import read_receipt
from palimpsest.privacy.session import paid_charges
from palimpsest.records.write import read_synthetic, write_synthetic
from palimpsest.workspace import RECEIPTS, SYNTHETIC
from stages.common import start
from stages.encoding import encoders
from stages.spending import charged, identify, record

STAGE = "vote_select"


def run(name: str, source: str) -> None:
    """data/private/train.parquet, data/synthetic/<source>.parquet -> data/synthetic/<variant>.*, its receipt."""
    params = load()
    ledger, schema = Ledger.open(ledger_url(params)), params.schema_of_data
    variant, columns = choosing(params, name), (params.dataset.text, params.dataset.label)
    behind = read_receipt(RECEIPTS / f"{source}.json")
    paid = paid_charges(ledger, schema.asset, behind, variant.purpose)
    rows = read_synthetic(SYNTHETIC / source, *columns)
    encode = encoders(params, variant.vote_select.batch)
    generator = VoteSelect(variant.vote_select, schema, composed(paid), rows, encode.others, params.seed)
    left = params.delta - sum(charge.own_delta for charge in paid)
    plan = generator.plan(schema, Budget(variant.epsilon, left))
    identity = identify(params, STAGE, name, plan, encode.fingerprint, digest(source), *(charge.id for charge in paid))
    with charged(params, ledger, identity, plan) as session:
        voted = generator.fit(session.view, plan, encode.rows)
        kept = list(generator.sample(voted, generator.counts(voted)))
        write_synthetic(kept, SYNTHETIC / name, *columns)
    counts = {"drawn": len(kept), "removed": {}, "rows": len(kept)}
    record(params, ledger, session, plan, counts, [charge.id for charge in paid], behind.assumptions)


def choosing(params: Params, name: str) -> VoteSelectVariant:
    """A variant of method vote_select."""
    variant = params.variants[name]
    assert isinstance(variant, VoteSelectVariant)  # the schema lets no other run here
    return variant


def digest(source: str) -> str:
    """Of the rows that are chosen from."""
    return hashlib.sha256(Path(f"{SYNTHETIC / source}.parquet").read_bytes()).hexdigest()


if __name__ == "__main__":
    start(run)
