"""Declaration of method embed."""

import math

from palimpsest.methods.embed.settings import EmbedSettings
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Resumes
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.records.schema import PublicSchema


def _plan(settings: EmbedSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.embed.plan import plan

    return plan(settings, schema, budget)


def _build(settings: EmbedSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.embed.fit import Embed
    from palimpsest.methods.shared.filters import public_losses
    from palimpsest.methods.shared.means import Candidates
    from palimpsest.methods.shared.postprocess import perplexity_limit
    from palimpsest.models.decoder.decoding import Decoder

    encoders, records, kept = tools.encoders(settings.batch), tools.start(), tools.embeddings()
    texts = [record.text for record in records]
    public = settings.zero_shot is None and bool(kept)
    losses = public_losses(tools.untouched(), settings.decode.max_tokens, settings.decode.batch)
    asked = settings.readable
    limit = None
    if asked is not None and asked.perplexity is not None:
        limit = math.log(asked.perplexity)
    elif asked is not None and asked.quantile is not None:
        limit = perplexity_limit(losses(tools.heldout()), asked.quantile)
    return Embed(
        settings=settings,
        schema=tools.schema,
        plan=plan,
        start=Candidates(texts, kept["texts"] if public else encoders.others(texts)),
        labels=tuple(record.label for record in records),
        descriptions=kept["descriptions"] if kept else None,
        decode=Decoder.load(tools.decoder(), encoders.fingerprint),
        encoders=encoders,
        losses=losses,
        limit=limit,
        seed=tools.seed,
        checkpoints=tools.kept,
    )


EMBED = Method(
    name="embed",
    stage="eda_evolve",
    family=Family.CHOOSES,
    title="One row of the results: embeddings that evolve by noisy votes, written down by a public decoder.",
    does="Let private rows vote, round by round, for embeddings, and write the last ones down with a public decoder",
    tasks=("classify", "text"),
    settings=EmbedSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.START, Reads.EMBEDDINGS, Reads.HELDOUT, Reads.BASE, Reads.DECODER, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    source="named",
    resumes=Resumes.ROUNDS,
    seeded=True,
    rounds=".npz",
)
