"""`palimpsest plan`: the price list, before anything is bought."""

import math
from dataclasses import dataclass
from pathlib import Path

import dp_accounting as dpa
from rich.table import Table

from palimpsest.cli.console import console, table
from palimpsest.cli.context import Context, opened
from palimpsest.cli.graph import stale
from palimpsest.cli.render import render
from palimpsest.methods.shared.base import Plan
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger import Charge, Request, preview
from palimpsest.report.formats import MISSING, number
from stages import pricing
from stages.spending import requested
from stages.vouching import require_vouched

_CHOOSING = ("select", "evolve", "vote_select", "embed", "sentdp")


@dataclass(frozen=True)
class Priced:
    """The plan of a model that is fitted to private rows, or of a variant that is written from them.

    Attributes:
        stage: the stage's name, as in dvc.yaml.
        name: the model's or the variant's.
        purpose: release or reference.
        plan: what its stage asks.
        whole: all that it costs: its own plan and that of the model it builds on.
        own_delta: what that takes of delta beside its event.
        pending: whether the stage would run.
        variants: what is drawn from a model, free.
    """

    stage: str
    name: str
    purpose: str
    plan: Plan
    whole: dpa.DpEvent
    own_delta: float
    pending: bool
    variants: tuple[str, ...]

    @property
    def requests(self) -> list[Request]:
        """What it would reserve."""
        return requested(self.plan)


def priced(context: Context, *, only_pending: bool = False) -> list[Priced]:
    """Everything that spends, with its plan, each after what it builds on. Reads no row."""
    changed = stale(context.workspace)
    named = pricing.spending(context.params)
    wanted = [(stage, name) for stage, name in named if f"{stage}@{name}" in changed or not only_pending]
    return [_priced(context, stage, name, f"{stage}@{name}" in changed) for stage, name in wanted]


def _priced(context: Context, stage: str, name: str, pending: bool) -> Priced:
    params = context.params
    plan, (whole, own_delta) = pricing.planned(params, stage, name), pricing.whole(params, name)
    variants = tuple(variant for variant, model in params.run.dp_lm.items() if model == name)
    return Priced(f"{stage}@{name}", name, params.charged[name].purpose, plan, whole, own_delta, pending, variants)


def asked_total(context: Context, variants: list[Priced]) -> float:
    """The epsilon spent on the asset once every pending release has run.

    What an earlier, stopped attempt of theirs reserved and never began, can replay or can continue is not counted
    twice.
    """
    standing, wanted = _asked(context, variants)
    return preview(context.asset, standing, {(name, 1): requests for name, requests in wanted.items()})


def asked_delta(context: Context, variants: list[Priced]) -> float:
    """What the deltas that no event carries add up to by then."""
    standing, wanted = _asked(context, variants)
    pending = [request for requests in wanted.values() for request in requests]
    return sum(charge.own_delta for charge in standing if charge.counted) + sum(each.own_delta for each in pending)


def _asked(context: Context, variants: list[Priced]) -> tuple[list[Charge], dict[str, list[Request]]]:
    """The charges that stand, and what the pending releases ask by name."""
    pending = {item.name: item for item in variants if item.pending and item.purpose == "release"}
    standing = [
        charge
        for charge in context.ledger.charges(context.asset.name)
        if not (_planned(charge, pending.get(charge.variant)) and _reusable(context, charge))
    ]
    return standing, {name: item.requests for name, item in pending.items()}


def _planned(charge: Charge, item: Priced | None) -> bool:
    """Whether the charge is one that the plan would make."""
    requests = item.requests if item else []
    own = charge.query, charge.event, charge.own_delta, charge.partition
    return any(own == (each.query, each.event, each.own_delta, each.partition) for each in requests)


def _reusable(context: Context, charge: Charge) -> bool:
    begun = charge.state == "begun" and pricing.continues(charge, context.workspace)
    return begun or charge.state in ("reserved", "answered")


def budget_cost(context: Context, item: Priced) -> float:
    """The epsilon that one run of a model would take from the budget now; 0 for a reference and for a cached one."""
    return asked_total(context, [item]) - context.ledger.balance(context.asset.name).spent


def show_plan(workspace: Path) -> None:
    """Print the plan of every model, its cost by both accountants and to the budget, and what would be left."""
    render(workspace)
    context, out = opened(workspace), console()
    require_vouched(context.params, workspace)
    for flag in context.params.flags():
        out.print(f"[yellow]flag:[/yellow] {flag}")
    variants = priced(context)
    tables = {"predict": _written_table, **dict.fromkeys(_CHOOSING, _chosen_table)}
    for draw in (_table, _written_table, _chosen_table):
        if shown := [item for item in variants if tables.get(item.plan.method, _table) is draw]:
            out.print(draw(context, shown))
    for item in variants:
        for note in item.plan.notes:
            out.print(f"{item.name}: {note}", markup=False)
    balance = context.ledger.balance(context.asset.name)
    after = asked_total(context, variants)
    beside, most = asked_delta(context, variants), context.asset.delta - context.asset.filter_delta
    fits = after <= context.asset.epsilon and beside <= most
    verdict = "[green]fits[/green]" if fits else "[red]does not fit[/red]"
    out.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {context.asset.epsilon:g} at delta "
        f"{context.asset.delta:.3g} for adding or removing one {context.asset.unit}; spent {balance.spent:.3f}, after "
        f"the pending runs {after:.3f}: {verdict}."
    )
    if beside:
        out.print(f"Deltas that no event carries: {beside:.3g} after the pending runs, of at most {most:.3g}.")
    out.print(
        "Budget cost: what one run adds to the data set's total. It is above the variant's own epsilon because the "
        "total also holds for plans chosen after looking at earlier results; several costs do not simply add up."
    )
    out.print(
        "A cached model spends nothing; one that runs again is charged again. A discriminator's epsilon counts the "
        "language model that it builds on. Whatever is drawn from a model is free."
    )


def _table(context: Context, variants: list[Priced]) -> Table:
    """Models that are trained, and demonstrations, whose noise has a multiplier."""
    made = _headed("model", "noise", "steps", "batch\n(rate)")
    for item in variants:
        numbers = item.plan.numbers
        rate = f"{number(numbers.get('expected_batch'), 6)}\n({number(numbers.get('sampling_rate'), 4)})"
        shown = [number(numbers.get("noise_multiplier"), 5), number(numbers.get("steps")), rate]
        made.add_row(_title(item), *shown, *_costs(context, item))
    return made


def _written_table(context: Context, variants: list[Priced]) -> Table:
    """Variants written from private contexts: private tokens of each batch, examples to expect, tokens to read."""
    made = _headed("variant", "clip", "tokens\n(batches)", "examples\n(read)")
    for item in variants:
        numbers = item.plan.numbers
        shown = [
            number(numbers["clip"], 4),
            f"{number(numbers['tokens'])}\n({number(numbers['batches'])} of {number(numbers['batch_size'])})",
            f"{number(numbers['expected_examples'])}\n({float(numbers['forward_tokens']):.1e})",
        ]
        made.add_row(f"{item.name}\n{numbers['clipping']}\n{item.purpose}", *shown, *_costs(context, item))
    return made


def _chosen_table(context: Context, variants: list[Priced]) -> Table:
    """Variants whose texts the records choose: noise of a vote or of class means, rounds, what an author will write."""
    made = _headed("variant", "noise\n(rounds)", "rows\n(candidates)", "requests\n(tokens)")
    for item in variants:
        numbers = item.plan.numbers
        shown = [
            f"{number(numbers.get('sigma', numbers.get('scale')), 5)}\n({number(numbers.get('rounds'))})",
            f"{number(numbers.get('rows'))}\n({number(numbers.get('candidates'))})",
            f"{number(numbers.get('requests'))}\n({number(numbers.get('tokens'))})",
        ]
        made.add_row(f"{item.name}\n{item.plan.method}\n{item.purpose}", *shown, *_costs(context, item))
    return made


def _headed(first: str, *others: str) -> Table:
    made = table("Plan: no row was read")
    for heading in (first, *others, "epsilon", "epsilon\nRDP", "budget\ncost", "state"):
        made.add_column(heading, justify="left" if heading in (first, "state") else "right", overflow="fold")
    return made


def _title(item: Priced) -> str:
    """The model, and what is drawn from it without a further charge."""
    drawn = f"\ndraws: {', '.join(item.variants)}" if item.variants else ""
    return f"{item.name}\n{item.stage.partition('@')[0]} {item.purpose}{drawn}"


def _costs(context: Context, item: Priced) -> list[str]:
    """Epsilon by the plan's own accountant and by RDP, the cost to the budget, the state."""
    if not item.plan.feasible:
        return [MISSING, MISSING, MISSING, "[red]infeasible[/red]"]
    delta = context.asset.delta - item.own_delta
    own = f"{_epsilon(accounting.epsilon(item.whole, delta))}\n({accounting.primary(item.whole)})"
    costs = [own, _epsilon(accounting.epsilon(item.whole, delta, "rdp")), f"{budget_cost(context, item):.3f}"]
    return [*costs, "will run" if item.pending else "cached"]


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3f}"
