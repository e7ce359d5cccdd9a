"""What is asked: looks at private rows as a plan names them, their versions, and the assumptions of a run.

A version is a whole number that a person raises. A charge is recognised by its rows, its settings, and its queries with
these versions, never by code. So a release of palimpsest that asks the same things charges nobody again.

Raise a number by one when what is asked, released or charged changes: a query's sensitivity, event or noiseless answer,
how an encoder or a tokenizer reads a text, the form of a prompt, what the training engine sums. The query is then asked
anew, with the owner's word. `tests/privacy/test_versions.py` holds the behaviour of each version to a file and fails
where it changes under one number.

Where a version turns out to have cost more than it was charged, `WITHDRAWN` names it: its charges are counted anew at
what they cost, and `palimpsest verify` marks the releases that rest on them.

Assumptions that a run makes about its machine have ids. Receipts carry them and the statement lists them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dp_accounting.dp_event import DpEvent

Versions: TypeAlias = tuple[tuple[str, int], ...]  # (part, its version), in the order of the parts' names

# Tools that several queries share.
TOOLS: Mapping[str, int] = {"encoder": 2, "engine": 2, "prompts": 1, "tokenizer": 1}
# Query -> its own version and the tools that its answer depends on.
_QUERIES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "choice": (2, ()),
    "class_means": (1, ("encoder",)),
    "depth_picks": (1, ("encoder",)),
    "discriminator": (1, ("encoder", "engine", "prompts", "tokenizer")),
    "field_means": (1, ("encoder",)),
    "field_tables": (1, ()),
    "key_phrases": (2, ()),
    "label_histogram": (1, ()),
    "replaced_words": (2, ("encoder",)),
    "shots": (1, ("prompts", "tokenizer")),
    "statement_counts": (2, ()),
    "statement_phrases": (2, ()),
    "train": (1, ("engine", "prompts", "tokenizer")),
    "vote": (1, ("encoder",)),
    "vote rounds": (1, ("encoder",)),
    "wave": (1, ("prompts", "tokenizer")),
}
QUERIES = tuple(_QUERIES)
ADJACENCY = "add_remove"  # neighbours differ by one unit of privacy more or less
BATCH_BITS = "batch-bits"
LOGIT_ROUNDING = "logit-rounding"
ASSUMPTIONS = (BATCH_BITS, LOGIT_ROUNDING)  # report/assumptions.json has the sentence of each


def versions_of(query: str) -> Versions:
    """Returns the version of a query of this kind and of the tools that it uses.

    Raises:
        KeyError: no query of this kind is declared here.
    """
    own, tools = _QUERIES[query]
    return tuple(sorted({query: own, **{tool: TOOLS[tool] for tool in tools}}.items()))


@dataclass(frozen=True)
class Withdrawn:
    """A version that cost more than it was charged.

    Attributes:
        part: the query or the tool.
        version: the number that was withdrawn.
        why: what was wrong with it, in one sentence.
        cost: event as it was charged -> event that covers what was done.
    """

    part: str
    version: int
    why: str
    cost: Callable[[DpEvent], DpEvent]

    def concerns(self, versions: Iterable[tuple[str, int]]) -> bool:
        """Return whether this one is among these pairs (part, version)."""
        return (self.part, self.version) in set(versions)


WITHDRAWN: tuple[Withdrawn, ...] = ()


def find_withdrawn(versions: Versions) -> list[Withdrawn]:
    """Returns the withdrawn versions among these."""
    return [one for one in WITHDRAWN if one.concerns(versions)]


def true_cost(event: DpEvent, versions: Versions) -> DpEvent:
    """Returns what a charge of these versions really cost: its event, unless a version of it was withdrawn."""
    for one in find_withdrawn(versions):
        event = one.cost(event)
    return event


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
        versions: of the query and of the tools it uses; see `privacy.planned`.
    """

    name: str
    event: DpEvent
    steps: int | None = None
    partition: tuple[str, str] | None = None
    own_delta: float = 0.0
    adjacency: str = ADJACENCY
    versions: Versions = ()
