"""One look at private rows, as a plan names it and the ledger charges it."""

from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from palimpsest.privacy.versions import Versions

ADJACENCY = "add_remove"  # neighbours differ by one unit of privacy more or less


@dataclass(frozen=True)
class PlannedQuery:
    """One look at private rows that a plan will take, and what it may cost at most.

    Attributes:
        name: the query's name.
        event: what it costs.
        steps: how many identical steps the event composes, for a query that runs and may be continued in steps; None
            for one that runs at once.
        partition: (scheme, cell) where it reads one of disjoint parts of the data set; None where it reads all.
        own_delta: a delta that the event does not carry, for all steps together.
        adjacency: the adjacency that the event is stated for.
        versions: of the query and of the tools it uses; see `privacy.versions`.
    """

    name: str
    event: DpEvent
    steps: int | None = None
    partition: tuple[str, str] | None = None
    own_delta: float = 0.0
    adjacency: str = ADJACENCY
    versions: Versions = ()
