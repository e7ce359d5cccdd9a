"""The protocol of a metered query, and the register of those that may be asked."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from dp_accounting import DpEvent

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow


class Query(Protocol):
    """One metered look at private rows.

    `event` and every field are public; the rows are an argument of `run` alone.

    Guarantee: what `run` returns is the output of the mechanism whose privacy loss `event` describes, for adding or
    removing one row. Each registered query has a test of that (an enumeration or a record replay).
    """

    @property
    def name(self) -> str: ...

    def event(self) -> DpEvent: ...

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any: ...


QueryClass = TypeVar("QueryClass", bound=type)

_REGISTER: set[type] = set()


def registered(query: QueryClass) -> QueryClass:
    """Class decorator: admit a query to the private view."""
    _REGISTER.add(query)
    return query


def is_registered(query: Query) -> bool:
    """Whether this exact class, not a subclass, was admitted."""
    return type(query) in _REGISTER
