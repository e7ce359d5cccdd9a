"""Declaration of method evolve, and its settings."""

from typing import Annotated

from pydantic import Field

from palimpsest.methods.evolve.authors import Author, Base
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Resumes, Tools
from palimpsest.methods.shared.settings import ClassMeansSettings, InRounds, ModelFreeTextFilters, Votes
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import WITH_LABELS


class EvolveMeans(ClassMeansSettings):
    """A look at the class means, before the first round, that says which candidates to keep."""

    first: int = Field(default=4, ge=1)
    """New texts for each place in the first population; the likeliest are kept."""
    pool: int = Field(default=2, ge=1)
    """Variations for each place in a later one; the likeliest of a label are kept."""


class EvolveSettings(InRounds):
    """Private evolution (Aug-PE)."""

    expand: int = Field(default=4, ge=1)
    """Candidates for each row, L: a selected text and L - 1 variations of it."""
    look_ahead: int = Field(default=0, ge=0)
    """Variations whose mean embedding, with its own, a candidate is voted by, K; 0: its own alone."""
    votes: Votes = Votes()
    class_means: Annotated[EvolveMeans | None, WITH_LABELS]
    """Noisy class means that steer what is kept; null: votes alone."""
    filters: ModelFreeTextFilters


def _plan(settings: EvolveSettings, schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.evolve.plan import plan

    return plan(settings, schema, budget, basis.author)


def _build(settings: EvolveSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.evolve.fit import Evolve, author_of

    encoders = tools.encoders(settings.batch)
    author = author_of(tools, encoders.others)
    return Evolve(settings, tools.schema, plan, author, encoders, tools.seed, tools.kept)


def _spared_reads(author: Author) -> frozenset[Reads]:
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
    spared=_spared_reads,
)
