"""Declaration of method restate, and its settings."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field, model_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import DELTA_SHARE
from palimpsest.records.schema import PublicSchema
from palimpsest.records.statements import Attribute
from palimpsest.settings import Settings


class AttributeSettings(Settings):
    """One matter that sentences may state: a public list of values, or a pattern for values that nobody listed."""

    values: Mapping[str, tuple[str, ...]] = {}
    """Public values, each with other words for it; write these in one order for all values."""
    pattern: str | None = None
    """A regular expression: what it matches is a value. Which values there are is asked, with noise."""

    @model_validator(mode="after")
    def _check_values(self) -> "AttributeSettings":
        if (self.pattern is None) == (not self.values):
            raise ValueError("an attribute has either values or a pattern")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None
        forms = [form.lower() for value, others in self.values.items() for form in (value, *others)]
        if "" in forms or len(set(forms)) < len(forms):
            raise ValueError("the values of an attribute, and the words for them, must not be empty or come twice")
        return self


class RestateSettings(Settings):
    """Rows of another variant, their statements changed to those that private rows make."""

    attributes: Mapping[str, AttributeSettings] = Field(min_length=1)
    """What a sentence must name to state something: all of these."""
    statements: int = Field(default=2, ge=1, description="Statements of a record, or person, that count.")
    most_values: int = Field(default=100, ge=1, description="Values of a pattern that are kept: the commonest.")
    phrases_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the budget that it takes to find the values of patterns."""
    delta_share: float = Field(default=DELTA_SHARE, gt=0, lt=1)
    """Share of delta for the chance that a value of one unit alone is found."""
    label_share: float = Field(default=0.2, ge=0, lt=0.9)
    """Share of the rest for the counts by label; without labels it is none."""
    false_cells: float = Field(default=1.0, gt=0)
    """Combinations of values that may pass by noise alone, on average."""

    def schema_of(self) -> tuple[Attribute, ...]:
        """The attributes, in their order."""
        return tuple(
            Attribute(name, {value: (value, *others) for value, others in own.values.items()}, own.pattern)
            for name, own in self.attributes.items()
        )

    def most_cells(self) -> int:
        """The largest possible number of combinations of values."""
        return math.prod(len(own.values) or self.most_values for own in self.attributes.values())


def _plan(settings: RestateSettings, schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.restate.fit import plan

    return plan(settings, schema, replace(budget, delta=budget.delta - basis.own_delta), basis.event)


def _build(settings: RestateSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.restate.fit import Restate

    return Restate(settings, tools.schema, plan, tools.source())


RESTATE = Method(
    name="restate",
    stage="restate",
    family=Family.EDITS,
    title="One row of the results: rows of another variant that state what private rows do; its epsilon counts both.",
    does="Change what the rows of another variant state to what many private rows state, by noisy counts",
    tasks=("classify", "text"),
    settings=RestateSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.SOURCE}),
    columns=CHOSEN,
    module=__name__,
    source="named",
)
