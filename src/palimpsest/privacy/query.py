"""The protocol of a metered query, the register of those that may be asked, and what a stopped one leaves."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from palimpsest.errors import LedgerError
from palimpsest.files import read_json, write_json
from palimpsest.privacy.rows import PrivateRow

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a declaration of a method needs none of it


class Query(Protocol):
    """One metered look at private rows.

    `event` and every field are public; the rows are an argument of `run` only. `subject` is what an answer refers to
    and has no meaning without: labels, candidates, the grid of a count, the encoder of a mean. It is made of plain
    values and arrays. A stored answer is replayed only onto the same subject and, where the class says `reads_model`,
    only with the same public sources: a model that the user named, or the texts that ours learned from. A query that
    reads one of disjoint parts of the data set has an attribute `partition`, (scheme, cell), and reads only the records
    of that cell. A query that keeps to its event only up to some delta has an attribute `own_delta`.

    Guarantee: what `run` returns with and without one unit of privacy (a row; all rows of a person where rows name
    persons and the class is marked `bounds_persons`) is as far apart as `event` says, up to a total variation of
    `own_delta` where there is one (see `LimitedDomain`). Each registered query has a test of that (an enumeration or a
    record replay).

    A query whose work before the first draw is slow (encoding, reading with a model) has a method `prepare(rows)`. The
    view calls it before the query begins, so that a run that is stopped there has paid nothing.

    Guarantee: `prepare` is handed no noise, and what it returns goes nowhere: it fills memories beside the rows, such
    as the vectors of private texts, which `run` then finds. It cannot refuse: what it raises is raised after the query
    has begun, where `run` would have raised it. So on every data set the same queries begin in the same order, and what
    is told before one begins is time alone.

    A query of many identical steps under one charge, which another attempt may continue after a crash, has an attribute
    `steps`: `event` composes one mechanism that often. The view calls its `run_steps(rows, noise, meter)`, not `run`.

    Guarantee: no step draws anything, or lets anything of the rows out, before `meter.begin` counted it. A step that is
    begun again draws a new batch and new noise, and counts as one more. All attempts together then run at most `steps`
    mechanisms, each chosen from the noisy results of those before, which is what `event` composes: a crash costs steps,
    never privacy.
    """

    @property
    def name(self) -> str:
        """Its name in plans, receipts and the ledger."""

    @property
    def subject(self) -> Any:
        """What is asked about."""

    def event(self) -> DpEvent:
        """Return the privacy event of all that it draws."""

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> Any:
        """Return the noisy answer of these rows."""


class Meter(Protocol):
    """A counter of the steps of one charge, over all attempts to run it.

    Attributes:
        charge: its id; it names what an attempt keeps for the next one.
        begun: steps begun so far, those of earlier attempts included.
        limit: steps that the charge pays for.
        resumed: whether an earlier attempt began steps.
        lasting: False where a seed fixes the noise: another attempt would draw it again, so nothing may be continued.
    """

    @property
    def charge(self) -> str: ...
    @property
    def begun(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def resumed(self) -> bool: ...
    @property
    def lasting(self) -> bool: ...

    def begin(self, steps: int) -> None:
        """Write durably that `steps` more begin now, before their batches and noise are drawn.

        Raises:
            LedgerError: if that would pass the limit, or if another process advanced the same charge.
        """


class View(Protocol):
    """Private rows as a generator sees them: an object that answers the queries of its plan, and nothing else."""

    def ask(self, query: Query) -> Any:
        """Run one planned query and return its noisy answer."""


class Stored:
    """A query whose noisy answer is kept for a retry, which then costs nothing; an exact, non-private one is not."""

    @property
    def stores_answer(self: Query) -> bool:
        """Whether its answer is noisy, and so kept."""
        return not isinstance(type(self).event(self), NonPrivateDpEvent)  # what the class says, as the view asks it


_QueryClass = TypeVar("_QueryClass", bound=type)

_REGISTER: set[type] = set()
_PERSONS: set[type] = set()


def register_query(query: _QueryClass) -> _QueryClass:
    """Class decorator: admit a query to the private view.

    Raises:
        TypeError: the class does not say what its answer refers to.
    """
    if not hasattr(query, "subject"):
        raise TypeError(f"{query.__name__} has no subject")
    _REGISTER.add(query)
    return query


def bounds_persons(query: _QueryClass) -> _QueryClass:
    """Class decorator: the query's event also holds for adding or removing a person with all their rows."""
    _PERSONS.add(query)
    return query


def is_registered(query: Query) -> bool:
    """Return whether this exact class, not a subclass, was admitted."""
    return type(query) in _REGISTER


def is_for_persons(query: Query) -> bool:
    """Return whether this exact class bounds what a person with several rows can change."""
    return type(query) in _PERSONS


def is_prepared(query: Query) -> bool:
    """Return whether the query's class has slow work before its first draw."""
    return hasattr(type(query), "prepare")


def is_stepped(query: Query) -> bool:
    """Return whether the query's class runs in steps that a meter counts."""
    return hasattr(type(query), "run_steps")


def subject_digest(query: Query, provenance: str) -> str:
    """Return the SHA-256 of what the query's answer refers to: equal for equal plain values, whatever class holds them.

    Args:
        provenance: identifies the public sources of the run's model.
    """
    return plain_digest([query.subject, provenance if getattr(type(query), "reads_model", False) else ""])


def plain_digest(value: Any) -> str:
    """Return the SHA-256 of plain values and arrays, in lists, tuples and mappings.

    Raises:
        TypeError: there is something else among them.
    """
    known = hashlib.sha256()
    _take(known, value)
    return known.hexdigest()


def _take(known: "hashlib._Hash", value: Any) -> None:
    """Add a plain value, each part after its kind and length, so that no two values add the same bytes."""
    if isinstance(value, Mapping):
        _take(known, [[name, inner] for name, inner in value.items()])
    elif isinstance(value, (list, tuple)):
        known.update(f"[{len(value)}".encode())
        for inner in value:
            _take(known, inner)
    elif isinstance(value, np.ndarray):
        known.update(f"array {value.dtype.str} {value.shape}".encode())
        known.update(np.ascontiguousarray(value).tobytes())
    elif value is None or isinstance(value, (str, bool, int, float)):
        text = repr(value).encode()
        known.update(f"{type(value).__name__} {len(text)} ".encode() + text)
    else:
        raise TypeError(f"a subject has a {type(value).__name__} in it, which is no plain value")


def mark_of(encode: Any) -> str:
    """Return the fingerprint of an encoder's weights, which tells it from others; empty for one that has none."""
    return str(getattr(encode, "fingerprint", ""))


@dataclass(frozen=True)
class Kept:
    """The outputs of the mechanism that a stopped run under one charge leaves for the next, and nothing else.

    No record, no threshold and no state of a random generator is kept.

    Attributes:
        folder: where they lie; None keeps nothing.
        meter: the charge's; nothing is kept where a seed fixes its noise.
    """

    folder: Path | None
    meter: Meter

    def load(self) -> Any:
        """Return what an earlier attempt kept, or None.

        Raises:
            LedgerError: it was kept after more steps than the ledger has counted.
        """
        path = self._path
        if path is None or not self.meter.resumed or not path.is_file():
            return None
        body = read_json(path)
        if body["begun"] > self.meter.begun:
            raise LedgerError(
                f"A stopped run was at step {body['begun']}; the ledger counts {self.meter.begun}: it is an old copy.",
                "Put the newest copy of the ledger back.",
            )
        return body["kept"]

    def save(self, body: Any) -> None:
        """Keep this with the number of steps that have begun, readable by the owner only."""
        if (path := self._path) is not None:
            write_json(path, {"begun": self.meter.begun, "kept": body})

    @property
    def _path(self) -> Path | None:
        if self.folder is None or not self.meter.lasting:
            return None
        return self.folder / f"{self.meter.charge}.json"
