"""Everything that asks private rows something: its method, its settings, and what it is drawn from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.errors import ParamsError
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.method import Basis, Family, Method
from palimpsest.params.schema import Fitted, Params
from palimpsest.privacy import accounting


@dataclass(frozen=True)
class Spender:
    """A model that is fitted, or a variant that is charged.

    Attributes:
        origin: what it is drawn from, or who writes for it; None where there is nothing of the kind, or several.
        settings: what the method is told.
        target: its purpose and its epsilon.
        origins: the variants that it chooses from, where there are several.
    """

    name: str
    origin: str | None
    method: Method
    settings: Any
    target: Fitted
    origins: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The stage that asks, as DVC names it."""
        return f"{self.method.stage}@{self.name}"

    def plan(self, params: Params, basis: Basis) -> Plan:
        """What it asks and costs, given what it builds on; no row is read."""
        self.require_protection()
        budget = Budget(self.target.epsilon, params.delta)
        return self.method.plan(self.settings, params.schema_of_data, budget, basis)

    def require_protection(self) -> None:
        """Raise ParamsError where epsilon is finite and its noise cannot be found, or only in minutes."""
        if self.target.epsilon < accounting.LEAST_TARGET:
            raise ParamsError(
                f"{self.name}: epsilon {self.target.epsilon:g} is too small; noise is worked out from "
                f"{accounting.LEAST_TARGET:g} up.",
                "Raise it: with so much noise nothing of the data is left.",
            )
        if accounting.MOST_TARGET < self.target.epsilon < math.inf:
            raise ParamsError(
                f"{self.name}: epsilon {self.target.epsilon:g} is no protection; noise is worked out up to "
                f"{accounting.MOST_TARGET:g}.",
                "Lower it, or write epsilon .inf and purpose reference for rows without noise that never leave.",
            )


def spenders(params: Params) -> list[Spender]:
    """All that run, each after what it builds on."""
    stages = dict.fromkeys(known.stage for known in METHODS)
    return [spender(params, name) for stage in stages for name in getattr(params.run, stage)]


def spender(params: Params, name: str) -> Spender:
    """One of them, by its name."""
    if name in params.fitted:
        known, settings = method("dp_lm" if name in params.lms else "discriminator"), params.fitted[name].train
    else:
        variant = params.variants[name]
        known, settings = method(variant.method), getattr(variant, variant.method)
    drawn = getattr(params.run, known.stage)
    origin = drawn.get(name) if isinstance(drawn, Mapping) else None
    if known.source == "several":
        return Spender(name, None, known, settings, params.charged[name], tuple(origin or ()))
    return Spender(name, origin, known, settings, params.charged[name])


def modules(known: Method) -> tuple[str, str]:
    """The code that a run of a method is held to: the program that runs it, and its own."""
    return f"stages.{known.stage}" if known.family is Family.TRAINS else "stages.fit", known.module
