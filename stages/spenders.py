"""Lists everything that asks private rows something, and computes what each would ask and cost; reads no row."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from dp_accounting.dp_event import DpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.method import Basis, Family, Method, Reads, Resumes
from palimpsest.params.resolve import shorten
from palimpsest.params.schema import Fitted, Params
from palimpsest.privacy import accounting
from palimpsest.privacy.events import compose_terms, to_json
from palimpsest.privacy.ledger.records import Charge, Run, canonical_json, digest_of
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings
from stages import resuming


@dataclass(frozen=True)
class Spender:
    """A fitted model, or a charged variant."""

    name: str
    # what it is drawn from, or who writes for it; None where there is nothing of the kind, or several
    origin: str | None
    method: Method
    settings: Any  # the settings of the method
    target: Fitted  # its purpose and its epsilon
    origins: tuple[str, ...] = ()  # the variants that it chooses from, where there are several

    @property
    def stage(self) -> str:
        """The stage that asks, as DVC names it."""
        return f"{self.method.stage}@{self.name}"

    def plan(self, params: Params, basis: Basis) -> Plan:
        """Plan what it asks and costs, given its basis; no row is read."""
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
    """Return all spenders that run, each after those it builds on."""
    stages = dict.fromkeys(known.stage for known in METHODS)
    return [spender(params, name) for stage in stages for name in getattr(params.run, stage)]


def spender(params: Params, name: str) -> Spender:
    """Return the spender of that name."""
    settings: Settings
    if name in params.fitted:
        known, settings = method("dp_lm" if name in params.lms else "discriminator"), params.fitted[name].train
    else:
        variant = params.variants[name]
        known, settings = method(variant.method), variant.settings
    drawn = getattr(params.run, known.stage)
    origin = drawn.get(name) if isinstance(drawn, Mapping) else None
    if known.source == "several":
        return Spender(name, None, known, settings, params.charged[name], tuple(origin or ()))
    return Spender(name, origin, known, settings, params.charged[name])


def run_of(params: Params, who: Spender, plan: Plan, fingerprint: str) -> Run:
    """Identify a retry of a plan as the same plan: by the rows, the settings that are no defaults, and the queries.

    Guarantee: no code and no file but the rows is part of it. So a release of palimpsest that asks the same queries, by
    their names, events and declared versions, is the same run, and so is one in which a setting with a default is new.
    Other references of an answer, such as candidates and models, are checked on replay (`PrivateView`).

    The settings that choose the rows are not named. They are known by the rows they chose.

    Args:
        fingerprint: keyed hash of the training part after capping and splitting; it is compared with the rows behind
            the meter.
    """
    asked = {"settings": settings_of(params, who), "queries": [_query_facts(query) for query in plan.queries]}
    return Run(who.method.stage, who.name, who.target.purpose, fingerprint, digest_of(canonical_json(asked)))


def _query_facts(query: PlannedQuery) -> dict[str, Any]:
    return {
        "name": query.name,
        "event": to_json(query.event),
        "steps": query.steps,
        "partition": query.partition,
        "own_delta": query.own_delta,
        "versions": dict(query.versions),
    }


def settings_of(params: Params, who: Spender) -> dict[str, Any]:
    """Return the settings that determine a spender's answers, as a person would write them: those that are no defaults.

    These are its own, those of its origin or author, of the models that its method reads, and the public facts of the
    data. How an endpoint is asked is not among them: a stopped run goes on with another limit.
    """
    written = shorten(params)
    found = {"own": _entry(written, who)}
    known, reads = who.method, who.method.reads
    names = [*who.origins, *([who.origin] if who.origin else [])]
    found["from"] = {name: _origin_settings(params, written, name, reads) for name in names}
    found["models"] = {key: written.get("models", {}).get(key) for key in sorted(_models(known))}
    found["data"] = [[key, _pairs(value)] for key, value in _facts(params.schema_of_data)]
    found["seed"] = params.seed if known.seeded or known.family is Family.TRAINS else None
    found["noise"] = params.testing.noise_seed
    return found


def _entry(written: Mapping[str, Any], who: Spender) -> Any:
    if who.method.family is not Family.TRAINS:
        return written["variants"][who.name]
    return written.get("lms" if who.method.name == "dp_lm" else "discriminators", {}).get(who.name)


def _origin_settings(params: Params, written: Mapping[str, Any], name: str, reads: frozenset[Reads]) -> Any:
    """Return the settings of a spender's origin or author; another variant is identified only by its name."""
    if Reads.AUTHOR in reads and name in params.authors:
        told, means = written.get("authors", {}).get(name, {}), params.authors[name].means
        return {key: value for key, value in told.items() if key not in means}
    kinds = {Reads.FITTED: "lms", Reads.DECODER: "decoders", Reads.READER: "taught"}
    key = next((key for what, key in kinds.items() if what in reads), None)
    return None if key is None else written.get(key, {}).get(name.removeprefix("taught/"))


def _models(known: Method) -> set[str]:
    """Return the keys of the section `models` that determine a method's answers."""
    encoder = {"encoder"} if known.reads & {Reads.ENCODER, Reads.EMBEDDINGS} else set()
    language = known.reads & {Reads.BASE, Reads.READER, Reads.DECODER, Reads.FITTED, Reads.AUTHOR}
    return encoder | ({"lm", "vocabulary", "embedded_lm", "prompts"} if language else set())


def _facts(schema: PublicSchema) -> Iterator[tuple[str, Any]]:
    """Yield the public facts of the data that are no defaults, by name."""
    for one in fields(schema):
        value = getattr(schema, one.name)
        plain = one.default if one.default_factory is MISSING else one.default_factory()
        if value != plain:
            yield one.name, value


def _pairs(value: Any) -> Any:
    """Return a value with its mappings as lists: the order of labels and of fields counts."""
    if isinstance(value, Mapping):
        return [[key, _pairs(inner)] for key, inner in value.items()]
    return [_pairs(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def modules(known: Method) -> tuple[str, str]:
    """Return the code of a stage that spends: the program that runs it, and the method's own module."""
    return f"stages.{known.stage}" if known.family is Family.TRAINS else "stages.fit", known.module


class Prices:
    """The plans of one params.yaml, each made once: a spender that builds on another needs its plan too."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self._plans: dict[str, Plan] = {}

    def plan_of(self, name: str) -> Plan:
        """Return the plan of one spender, for itself only."""
        if name not in self._plans:
            self._plans[name] = self._plan(spender(self.params, name))
        return self._plans[name]

    def total_charge(self, name: str) -> tuple[DpEvent, float]:
        """Return all that a fitted model, or a charged variant, will have been charged, with what it builds on: its
        event, and the sum of the deltas that no event carries."""
        return _compose_queries(self._queries_of(self.chain(name)))

    def _plan(self, who: Spender) -> Plan:
        below = self._queries_of(self.chain(who.name)[:-1])
        author = self.params.authors[str(who.origin)] if Reads.AUTHOR in who.method.reads else None
        return who.plan(self.params, Basis(*_compose_queries(below), author))

    def _queries_of(self, chain: Sequence[str]) -> list[tuple[str, PlannedQuery]]:
        """Return each query with its spender's name, bases first: a receipt's order, so that both compose alike."""
        return [(each, query) for each in chain for query in self.plan_of(each).queries]

    def chain(self, name: str) -> tuple[str, ...]:
        """Return the spenders that a spender builds on, from the ground up, and itself."""
        below = (part for each in self._bases_of(spender(self.params, name)) for part in self.chain(each))
        return (*dict.fromkeys(below), name)

    def _bases_of(self, who: Spender) -> tuple[str, ...]:
        """Return what was charged before: a fitted model, or what the variants to choose from were charged by."""
        named = who.origins or ((who.origin,) if who.origin else ())
        if Reads.FITTED in who.method.reads:
            return named
        # A model and a variant may share a name: only a variant that is drawn from is looked for among the variants.
        drawn = self.params.run.dp_lm
        chooses = who.method.reads & {Reads.SOURCE, Reads.SOURCES}
        return tuple(drawn.get(name, name) for name in named) if chooses else ()


def _compose_queries(asked: Sequence[tuple[str, PlannedQuery]]) -> tuple[DpEvent, float]:
    parts = [(query.event, _cell(name, query.partition)) for name, query in asked]
    return compose_terms(parts) if parts else Basis().event, sum(query.own_delta for _, query in asked)


def _cell(name: str, partition: tuple[str, str] | None) -> tuple[str, str] | None:
    """Name a cell with its spender: two that batch the same rows may put a unit into cells of other numbers."""
    return (f"{name} {partition[0]}", partition[1]) if partition else None


def continues(charge: Charge, workspace: Path) -> bool:
    """Tell whether a stopped run goes on in this workspace, under the same charge."""
    method = next(method for method in METHODS if method.stage == charge.stage)
    if method.resumes is Resumes.CHECKPOINTS:
        from stages import dp_train  # with all that trains: a price needs none of it

        return dp_train.continues(charge, workspace)
    return resuming.continues(method, charge, workspace)
