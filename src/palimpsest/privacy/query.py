"""The protocol of a metered query, and the register of those that may be asked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dp_accounting import DpEvent

from palimpsest.privacy.rows import PrivateRow

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a declaration of a method needs none of it


class Query(Protocol):
    """One metered look at private rows.

    `event` and every field are public; the rows are an argument of `run` alone. A query that reads one of disjoint
    parts of the data set has an attribute `partition`, (scheme, cell), and reads the records of that cell alone. One
    that keeps to its event only up to some delta has an attribute `own_delta`.

    Guarantee: what `run` returns with and without one unit of privacy (a row; all rows of a person where rows name
    persons and the class is marked `bounds_persons`) is as far apart as `event` says, up to a total variation of
    `own_delta` where there is one (see `LimitedDomain`). Each registered query has a test of that (an enumeration or a
    record replay).
    """

    @property
    def name(self) -> str: ...

    def event(self) -> DpEvent: ...

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> Any: ...


class Meter(Protocol):
    """What counts the steps of one charge, over all attempts to run it."""

    @property
    def charge(self) -> str:
        """The charge's id; it names what an attempt keeps for the next one."""

    @property
    def begun(self) -> int:
        """Steps begun so far, those of earlier attempts included."""

    @property
    def limit(self) -> int:
        """Steps that the charge pays for."""

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt began steps."""

    @property
    def lasting(self) -> bool:
        """False where a seed fixes the noise: another attempt would draw it again, so nothing may be continued."""

    def begin(self, steps: int) -> None:
        """Write durably that `steps` more begin now, before their batches and noise are drawn.

        Raises:
            LedgerError: if that would pass the limit, or if another process advanced the same charge.
        """


class SteppedQuery(Query, Protocol):
    """A query of many identical steps under one charge, which another attempt may continue after a crash.

    `event` composes one mechanism `steps` times. The view calls `run_steps` instead of `run`.

    Guarantee: no step touches the rows or draws anything before `meter.begin` counted it. A step that is begun again
    draws a new batch and new noise, and counts as one more. All attempts together then run at most `steps` mechanisms,
    each chosen from the noisy results of those before, which is what `event` composes: a crash costs steps, never
    privacy.
    """

    @property
    def steps(self) -> int: ...

    def run_steps(self, rows: Sequence[PrivateRow], noise: "NoiseSource", meter: Meter) -> Any: ...


class View(Protocol):
    """Private rows as a generator knows them: what answers the queries of its plan, and nothing else."""

    def ask(self, query: Query) -> Any:
        """Run one planned query and return its noisy answer."""


QueryClass = TypeVar("QueryClass", bound=type)

_REGISTER: set[type] = set()
_PERSONS: set[type] = set()


def registered(query: QueryClass) -> QueryClass:
    """Class decorator: admit a query to the private view."""
    _REGISTER.add(query)
    return query


def bounds_persons(query: QueryClass) -> QueryClass:
    """Class decorator: the query's event also holds for adding or removing a person with all their rows."""
    _PERSONS.add(query)
    return query


def is_registered(query: Query) -> bool:
    """Whether this exact class, not a subclass, was admitted."""
    return type(query) in _REGISTER


def is_for_persons(query: Query) -> bool:
    """Whether this exact class bounds what a person with several rows can change."""
    return type(query) in _PERSONS


def is_stepped(query: Query) -> bool:
    """Whether the query's class runs in steps that a meter counts."""
    return hasattr(type(query), "run_steps")
