"""Declares method custext to the rest of the project, with its settings."""

import math

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import TRAINED, Basis, Family, Method, Reads, Tools
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


class CusTextSettings(Settings):
    """Each word of each private row replaced by a draw from its public neighbours: token-level privacy, no more."""

    token_epsilon: float = Field(gt=0, description="Epsilon of one word. It says nothing about a whole record.")
    neighbours: int = Field(default=20, ge=2)
    """Words of the public map that a word may become, its own included."""
    vocabulary: int = Field(default=5000, ge=2, description="Most frequent public words that the map holds.")


def _plan(settings: CusTextSettings, _schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest_lab.methods.custext.fit import plan

    return plan(settings, budget)


def _build(settings: CusTextSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.models.word_map import word_map
    from palimpsest_lab.methods.custext.fit import CusText

    encode = tools.encoders(1).others  # no private text is encoded
    return CusText(plan, word_map(tools.texts(), encode, settings.neighbours, settings.vocabulary))


def _problem(_settings: CusTextSettings, purpose: str, epsilon: float) -> str | None:
    if purpose == "reference" and math.isinf(epsilon):
        return None
    return (
        "method custext protects single words, not records: write `purpose: reference` and `epsilon: .inf`; its "
        "token_epsilon is in a unit of its own"
    )


CUSTEXT = Method(
    name="custext",
    stage="custext",
    family=Family.EDITS,
    title="One row of the results: private rows with every word replaced, a baseline that protects words alone.",
    does="Replace every word of the private rows by one of its public neighbours, a baseline for reference",
    tasks=("classify", "text"),
    settings=CusTextSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.TEXTS, Reads.ENCODER}),
    columns=TRAINED,
    module=__name__,
    baseline=True,
    problem=_problem,
    untwinned="it protects words: twins guess about records, which it does not hide",
)
