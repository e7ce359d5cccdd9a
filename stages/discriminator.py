"""Fit a discriminator behind a fitted language model: a stage that spends budget.

Started by `torchrun`, or with PALIMPSEST_PROCESSES=n in the environment, n processes share every batch.
"""

from palimpsest.methods.dp_lm.artifact import DpLmArtifact
from palimpsest.methods.dp_lm.discriminator import Discriminator
from palimpsest.methods.dp_lm.judge import Encode
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.models.encoder import Encoder
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.vouched import fingerprint_of
from palimpsest.workspace import CHECKPOINTS, MODELS
from stages import dp_train
from stages.common import start_processes
from stages.models import receipt_of
from stages.spending import identify
from stages.vouching import vouched

STAGE = "discriminator"


def run(name: str, model: str) -> None:
    """data/private/train.parquet, models/<model> -> models/<name>, reports/receipts/models/<name>.json."""
    params = load()
    reads = params.discriminators[name].train.reads == "encoder"
    generator, plan = planned(params, name, encoder(params) if reads else None)
    fitted = DpLmArtifact.load(MODELS / model)
    behind = fingerprint_of(MODELS / model), *([fingerprint_of(vouched(params, "models.encoder"))] if reads else [])
    identity = identify(params, STAGE, name, plan, *behind)
    assumed = generator.assumptions(fitted)
    dp_train.fit(params, identity, plan, lambda view: generator.fit(view, plan, fitted), receipt_of(model), assumed)


def planned(params: Params, name: str, encode: Encode | None = None) -> tuple[Discriminator, Plan]:
    """The discriminator and its plan, whose budget holds for it and its language model together; reads no row."""
    schema, settings = params.schema_of_data, params.discriminators[name]
    _, before = dp_train.planned(params, params.run.discriminator[name])
    generator = Discriminator(settings.train, schema, before.event, params.seed, encode, CHECKPOINTS)
    return generator, generator.plan(schema, Budget(settings.epsilon, params.delta))


def encoder(params: Params) -> Encode:
    """The public sentence encoder."""
    return Encoder(vouched(params, "models.encoder")).encode_batch


if __name__ == "__main__":
    start_processes(run)
