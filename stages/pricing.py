"""Computes what every spender would ask and cost; reads no row."""

from collections.abc import Sequence
from pathlib import Path

from dp_accounting.dp_event import DpEvent

from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.method import Basis, Resumes
from palimpsest.methods.shared.tools import Reads
from palimpsest.params.schema import Params
from palimpsest.privacy.events import composed
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.planned import PlannedQuery
from stages import resuming
from stages.spenders import Spender, spender


class Prices:
    """The plans of one params.yaml, each made once: a spender that builds on another needs its plan too."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self._plans: dict[str, Plan] = {}

    def planned(self, name: str) -> Plan:
        """Return the plan of one spender, for itself only."""
        if name not in self._plans:
            self._plans[name] = self._plan(spender(self.params, name))
        return self._plans[name]

    def whole(self, name: str) -> tuple[DpEvent, float]:
        """Return all that a fitted model, or a charged variant, will have been charged, with what it builds on: its
        event, and the sum of the deltas that no event carries."""
        return _whole(self._asked(self.chain(name)))

    def _plan(self, who: Spender) -> Plan:
        below = self._asked(self.chain(who.name)[:-1])
        author = self.params.authors[str(who.origin)] if Reads.AUTHOR in who.method.reads else None
        return who.plan(self.params, Basis(*_whole(below), author))

    def _asked(self, chain: Sequence[str]) -> list[tuple[str, PlannedQuery]]:
        """Return each query with its spender's name, bases first: a receipt's order, so that both compose alike."""
        return [(each, query) for each in chain for query in self.planned(each).queries]

    def chain(self, name: str) -> tuple[str, ...]:
        """Return the spenders that a spender builds on, from the ground up, and itself."""
        below = (part for each in self._below(spender(self.params, name)) for part in self.chain(each))
        return (*dict.fromkeys(below), name)

    def _below(self, who: Spender) -> tuple[str, ...]:
        """Return what was charged before: a fitted model, or what the variants to choose from were charged by."""
        named = who.origins or ((who.origin,) if who.origin else ())
        if Reads.FITTED in who.method.reads:
            return named
        # A model and a variant may share a name: only a variant that is drawn from is looked for among the variants.
        drawn = self.params.run.dp_lm
        chooses = who.method.reads & {Reads.SOURCE, Reads.SOURCES}
        return tuple(drawn.get(name, name) for name in named) if chooses else ()


def _whole(asked: Sequence[tuple[str, PlannedQuery]]) -> tuple[DpEvent, float]:
    parts = [(query.event, _cell(name, query.partition)) for name, query in asked]
    return composed(parts) if parts else Basis().event, sum(query.own_delta for _, query in asked)


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
