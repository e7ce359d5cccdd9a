"""Declaration of method dp_lm: its training, the only part that is charged."""

from palimpsest.methods.dp_lm.settings import DpLmTrain
from palimpsest.methods.shared.base import Budget, Plan, Saved, Training
from palimpsest.methods.shared.method import TRAINED, Basis, Family, Files, Method, Reads, Resumes
from palimpsest.records.schema import PublicSchema


def _plan(settings: DpLmTrain, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.dp_lm.plan import plan

    return plan(settings, schema, budget)


def _build(settings: DpLmTrain, plan: Plan, tools: Files) -> Training[Saved]:
    from palimpsest.methods.dp_lm.fit import DpLm

    return DpLm(settings, tools.schema, plan, tools.base(), tools.seed, tools.kept)


DP_LM = Method(
    name="dp_lm",
    stage="dp_train",
    family=Family.TRAINS,
    title="A language model of `dp_lm`: one charge, whatever is drawn from it.",
    tasks=("classify", "text", "json"),
    settings=DpLmTrain,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.BASE}),
    columns=TRAINED,
    module=__name__,
    source="own",
    resumes=Resumes.CHECKPOINTS,
)
