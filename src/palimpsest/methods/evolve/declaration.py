"""Method evolve, as the rest of the project knows it."""

from palimpsest.methods.evolve.authors import Author, Base
from palimpsest.methods.evolve.settings import EvolveSettings
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.columns import CHOSEN
from palimpsest.methods.shared.method import Basis, Family, Method, Resumes
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.records.schema import PublicSchema


def _plan(settings: EvolveSettings, schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.evolve.plan import plan

    return plan(settings, schema, budget, basis.author)


def _build(settings: EvolveSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.evolve.fit import Evolve, author_of

    encoders = tools.encoders(settings.batch)
    author = author_of(tools, encoders.others)
    return Evolve(settings, tools.schema, plan, author, encoders, tools.seed, tools.kept)


def _spared(author: Author) -> frozenset[Reads]:
    """The public language model, unless it is the author."""
    return frozenset() if isinstance(author, Base) else frozenset({Reads.BASE})


EVOLVE = Method(
    name="evolve",
    stage="private_evolve",
    family=Family.CHOOSES,
    title="One row of the results: texts by an author that sees no record, chosen round by round by noisy votes.",
    does="Let private rows vote, round by round, for texts that an author writes who sees none of them",
    tasks=("classify", "text", "json"),
    settings=EvolveSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.AUTHOR, Reads.TEXTS, Reads.EMBEDDINGS, Reads.BASE, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    source="base",
    resumes=Resumes.ROUNDS,
    seeded=True,
    rounds=".parquet",
    spared=_spared,
)
