"""Declaration of the discriminators of method dp_lm."""

from dataclasses import replace

from palimpsest.methods.dp_lm.settings import TUNED, DiscriminatorTrain
from palimpsest.methods.shared.base import Budget, Plan, Saved, Training
from palimpsest.methods.shared.method import TRAINED, Basis, Family, Method, Reads, Resumes, Tools
from palimpsest.records.schema import PublicSchema


def _plan(settings: DiscriminatorTrain, schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.dp_lm.plan import plan_discriminator

    return plan_discriminator(settings, schema, replace(budget, delta=budget.delta - basis.own_delta), basis.event)


def _build(settings: DiscriminatorTrain, plan: Plan, tools: Tools) -> Training[Saved]:
    from palimpsest.methods.dp_lm.discriminator import Discriminator, TunedDiscriminator
    from palimpsest.methods.dp_lm.model import DpLmArtifact

    fitted = DpLmArtifact.load(tools.fitted())
    if settings.reads == TUNED:
        return TunedDiscriminator(settings, tools.schema, plan, fitted, tools.seed, tools.kept)
    encoders = tools.encoders(1) if settings.reads == "encoder" else None  # 1: each text by itself
    encode, fresh = (encoders.rows, encoders.fresh) if encoders else (None, None)
    return Discriminator(settings, tools.schema, plan, fitted, tools.seed, encode, tools.kept, fresh)


DISCRIMINATOR = Method(
    name="discriminator",
    stage="discriminator",
    family=Family.TRAINS,
    title="A discriminator that is trained behind a fitted language model; its epsilon counts both.",
    tasks=("classify",),
    settings=DiscriminatorTrain,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.FITTED, Reads.ENCODER}),
    columns=TRAINED,
    module=__name__,
    resumes=Resumes.CHECKPOINTS,
)
