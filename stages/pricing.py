"""What every stage that spends would ask and cost; reads no row."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.vote_select.fit import VoteSelect
from palimpsest.params.schema import Params
from palimpsest.privacy.composition import composed
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.planned import PlannedQuery
from stages import (
    custext,
    discriminator,
    dp_train,
    eda_evolve,
    private_evolve,
    private_predict,
    select,
    sentdp,
    vote_select,
)


def spending(params: Params) -> list[tuple[str, str]]:
    """(stage, name) of everything that asks private rows something, each after what it builds on."""
    run = params.run
    asked: Mapping[str, Any] = {
        "dp_train": run.dp_train,
        "discriminator": run.discriminator,
        "private_predict": run.private_predict,
        "select": run.select,
        "private_evolve": run.private_evolve,
        "eda_evolve": run.eda_evolve,
        "sentdp": run.sentdp,
        "custext": run.custext,
        "vote_select": run.vote_select,
    }
    return [(stage, name) for stage, names in asked.items() for name in names]


def planned(params: Params, stage: str, name: str) -> Plan:
    """The plan of one of them, for itself alone."""
    plans: Mapping[str, Callable[[Params, str], tuple[Any, Plan]]] = {
        "dp_train": dp_train.planned,
        "discriminator": discriminator.planned,
        "private_predict": private_predict.planned,
        "select": select.planned,
        "private_evolve": private_evolve.planned,
        "eda_evolve": eda_evolve.planned,
        "sentdp": sentdp.planned,
        "custext": custext.planned,
        "vote_select": _chosen,
    }
    return plans[stage](params, name)[1]


def whole(params: Params, name: str) -> tuple[DpEvent, float]:
    """All that a fitted model, or a variant that is charged, will have been charged, with what it builds on: its event,
    and the deltas that no event carries, added up."""
    queries = _queries(params, name)
    event = composed((query.event, query.partition) for query in queries)
    return event, sum(query.own_delta for query in queries)


def _queries(params: Params, name: str) -> list[PlannedQuery]:
    """Its queries behind those of what it builds on: in the order of a receipt, so that both compose to one event."""
    run = params.run
    stage = next(stage for stage, known in spending(params) if known == name)
    own = list(planned(params, stage, name).queries)
    source = run.vote_select.get(name)
    below = run.discriminator.get(name) if source is None else run.dp_lm.get(source, source)
    return own if below is None else [*_queries(params, below), *own]


def continues(charge: Charge, workspace: Path) -> bool:
    """Whether what began and was stopped goes on in this workspace, under the same charge."""
    known: Mapping[str, Callable[[Charge, Path], bool]] = {
        "private_predict": private_predict.continues,
        "private_evolve": private_evolve.continues,
        "eda_evolve": eda_evolve.continues,
    }
    return known.get(charge.stage, dp_train.continues)(charge, workspace)


def _chosen(params: Params, name: str) -> tuple[VoteSelect, Plan]:
    """A choice by votes, whose budget holds for it and its source together."""
    variant, source = vote_select.choosing(params, name), params.run.vote_select[name]
    below = params.run.dp_lm.get(source, source)
    event, beside = whole(params, below)
    generator = VoteSelect(variant.vote_select, params.schema_of_data, event)
    return generator, generator.plan(params.schema_of_data, Budget(variant.epsilon, params.delta - beside))
