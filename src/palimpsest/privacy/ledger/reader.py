"""The strict reader of one asset's entries, which derives its charges. Everything that relies on a ledger uses it.

Anybody who may add entries can bypass palimpsest and write nonsense that fits the chain. Such an entry stops nobody
from opening the ledger. It counts at what covers its event, or fills the budget where nothing does, and it is named
until the data's owner strikes it.

Guarantee: no entry makes a total smaller than what the entries before it come to, but a refund of what never began,
and the owner's strike of an entry that nothing covers. What began counts for ever, whoever may add entries.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import dp_accounting.dp_event as dpa
from dp_accounting.privacy_accountant import UnsupportedEventError

from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting, events
from palimpsest.privacy.gaussian_share import Share, cover_charge, covers
from palimpsest.privacy.ledger.chain import Entry
from palimpsest.privacy.ledger.records import MOVES, PURPOSES, STATES, Asset, Charge, Standing, canonical_json
from palimpsest.privacy.ledger.rules import composes
from palimpsest.privacy.planned import ADJACENCY, Versions

STRIKE = "strike"  # the kind of the owner's entries that take a faulty one out
_OF_RUN = ("run_key", "stage", "variant", "fingerprint", "query")
_UNCOUNTABLE = (ArithmeticError, ValueError, TypeError, NotImplementedError, UnsupportedEventError)
T = TypeVar("T")
_Judged: TypeAlias = tuple[Charge, str | None]  # a charge as it counts, and what is wrong with it


class Fault(NamedTuple):
    """An entry that says what no entry may.

    Attributes:
        seq: its number in the chain.
        what: what is wrong with it, as words that follow its kind.
        fills: whether it counts as all of the budget, because nothing covers it.
        struck: the owner's reason for striking it; None where it stands.
    """

    seq: int
    kind: str
    what: str
    fills: bool
    struck: str | None = None

    def __str__(self) -> str:
        return f"entry {self.seq} ({self.kind}) {self.what}"


@dataclass(frozen=True)
class Account:
    """The charges and the faults that follow from an asset's entries.

    Attributes:
        charges: as their entries left them, oldest first.
        faults: the entries that say what no entry may, oldest first, including struck ones.
    """

    charges: tuple[Charge, ...]
    faults: tuple[Fault, ...]


class _Malformed(ValueError):
    """A field of an entry has a value that it may not have; the message ends a sentence about the entry."""


def read(asset: Asset, entries: Iterable[Entry]) -> Account:
    """Return the account of an asset from its own entries, oldest first."""
    own = list(entries)
    struck, reading = struck_entries(own), _Reading(lambda charge: judge_charge(asset, charge))
    for entry in own:
        if entry.kind in MOVES:
            reading.take(entry, struck.get(entry.seq))
    return Account(tuple(reading.charges.values()), tuple(reading.faults))


def struck_entries(entries: Iterable[Entry]) -> dict[int, str]:
    """Return the number of each struck entry -> the owner's reason."""
    said = (body_of(entry) or {} for entry in entries if entry.kind == STRIKE)
    return {one["entry"]: str(one.get("because", "")) for one in said if events.is_count(one.get("entry"))}


def body_of(entry: Entry) -> Mapping[str, Any] | None:
    """Return the parsed body of an entry; None where it is not a JSON object."""
    try:
        return entry.says
    except LedgerError:
        return None


def standing_of(asset: str, entries: Iterable[Entry], struck: Mapping[int, str]) -> Standing:
    """Return where one charge stands, from its reservation and the entries that moved it; see `chain.read_charge`."""
    reading = _Reading(lambda charge: (charge, None))
    for entry in entries:
        reading.take(entry, struck.get(entry.seq))
    if not reading.charges:
        return Standing(asset, "struck", None, 0)
    (charge,) = reading.charges.values()
    return Standing(asset, charge.state, charge.steps, charge.steps_begun)


class _Reading:
    """A pass through entries: each moves one charge, or is a fault."""

    def __init__(self, judge: Callable[[Charge], _Judged]) -> None:
        self.charges: dict[str, Charge] = {}
        self.faults: list[Fault] = []
        self._judge, self._gone = judge, set[str]()

    def take(self, entry: Entry, struck: str | None) -> None:
        name = entry.charge or _entry_name(entry)
        if name in self._gone:
            return
        before = self.charges.get(name)
        after, what = _read_first(entry, self._judge) if before is None else _move_charge(before, entry)
        fills = before is None and what is not None and _is_uncovered(after)
        if what is not None:
            self.faults.append(Fault(entry.seq, entry.kind, what, fills, struck))
        if what is None or struck is None or (before is None and not fills):
            self.charges[name] = after
        elif before is None:
            self._gone.add(name)


def _is_uncovered(charge: Charge) -> bool:
    """Return whether nothing covers what a faulty charge may have told, so that it fills the budget."""
    return not accounting.is_private(charge.event) or charge.share == Share(math.inf, charge.own_delta)


def _read_first(entry: Entry, judge: Callable[[Charge], _Judged]) -> _Judged:
    """Return the charge of the first entry about it, and what is wrong with that entry."""
    if entry.kind != "reserve":
        return _uncovered_charge(entry), "moves a charge that was never reserved"
    try:
        return judge(charge_of(entry))
    except _Malformed as error:
        return _uncovered_charge(entry), f"says {error}"


def charge_of(entry: Entry) -> Charge:
    """Return the charge that an entry reserved, as it says.

    Raises:
        _Malformed: a field is missing or has a value that it may not have.
    """
    body = body_of(entry)
    if body is None or not entry.charge:
        raise _Malformed("nothing that can be read" if body is None else "no id of a charge")
    words: dict[str, Any] = {name: _field(body, name, _word) for name in _OF_RUN}
    _field(body, "adjacency", lambda value: _parse_choice(value, (ADJACENCY,)))
    return Charge(
        **words,
        asset=entry.asset,
        id=entry.charge,
        seq=entry.seq,
        run=_field(body, "run", _count),
        index=_field(body, "index", lambda value: _count(value + 1) - 1),
        purpose=_field(body, "purpose", lambda value: _parse_choice(value, PURPOSES)),
        event=_field(body, "event", events.parse_strictly),
        own_delta=_field(body, "own_delta", _share_of_one),
        partition=_field(body, "partition", _partition),
        steps=_field(body, "steps", _count) if "steps" in body else None,
        team=_field(body, "team", _word) if "team" in body else None,
        versions=_field(body, "versions", _versions),
        share=_field(body, "share", _share) if "share" in body else None,
        state=MOVES[entry.kind].after,
        time=entry.time,
    )


def judge_charge(asset: Asset, charge: Charge) -> _Judged:
    """Return the charge as it counts, and what is wrong with its numbers or with its share of a Gaussian budget.

    Guarantee: what is returned counts for at least its event, whatever share it was written with.
    """
    if what := _find_impossible(asset, charge):
        return replace(charge, event=dpa.NonPrivateDpEvent(), share=None), what
    if charge.purpose != "release":
        return charge, None
    if not accounting.is_private(charge.event):
        return charge, "adds no noise"
    if asset.filter != "gdp":
        return charge, None
    if charge.share is None:
        return replace(charge, share=Share(math.inf, charge.own_delta)), "has no share of the Gaussian budget"
    if covers(charge.share, charge.cost, charge.own_delta):
        return charge, None
    least = cover_charge(charge.cost, charge.own_delta, charge.share.beside - charge.own_delta)
    withdrawn = covers(charge.share, charge.event, charge.own_delta)
    return replace(charge, share=least), None if withdrawn else "takes less of the Gaussian budget than its event"


def _find_impossible(asset: Asset, charge: Charge) -> str | None:
    if not 0.0 <= charge.own_delta <= 1.0:
        return "says 'own_delta' outside 0 to 1"
    if charge.purpose not in PURPOSES or charge.state not in STATES:
        return "says a purpose or a state that there is none of"
    if charge.share is not None and not (charge.share.mu >= 0.0 and 0.0 <= charge.share.beside <= 1.0):
        return "says 'share' with a number that no share has"
    if charge.steps is not None and not composes(charge.event, charge.steps):
        return "says 'steps' that its event does not compose"
    return _find_uncountable(json.dumps(events.to_json(charge.event)), asset.orders)


@lru_cache(maxsize=4096)
def _find_uncountable(body: str, orders: tuple[float, ...]) -> str | None:
    """Return why an event in its JSON form cannot be accounted for; None where it can."""
    try:
        event = events.parse_strictly(json.loads(body))
    except ValueError:
        return "says 'event' with a number that no mechanism has"
    try:
        if accounting.is_private(event):
            accounting.rdp(event, orders)
    except _UNCOUNTABLE:
        return "says an event that no accountant takes"
    return None


def _move_charge(charge: Charge, entry: Entry) -> _Judged:
    """Return the charge after an entry that moves it, and what is wrong with that entry."""
    if charge.state not in MOVES[entry.kind].before:
        return _force_move(charge, entry), f"moves a charge that is {charge.state}, as no charge may move"
    try:
        return _apply_move(charge, entry), None
    except _Malformed as error:
        return _force_move(charge, entry), f"says {error}"


def _apply_move(charge: Charge, entry: Entry) -> Charge:
    body = body_of(entry)
    if body is None:
        raise _Malformed("nothing that can be read")
    after = replace(charge, state=MOVES[entry.kind].after)
    if entry.kind == "begin":
        noise_fixed, subject = _field(body, "noise_fixed", _truth), _field(body, "subject", str)
        return replace(after, noise_fixed=noise_fixed, subject=subject)
    if entry.kind == "advance":
        if entry.body != canonical_json({"begun": body.get("begun")}):
            raise _Malformed("more than how many steps have begun")
        return replace(after, steps_begun=_field(body, "begun", lambda value: _parse_advance(charge, value)))
    if entry.kind == "answer":
        return replace(after, answer_hash=_field(body, "answer_hash", _word))
    return after


def _force_move(charge: Charge, entry: Entry) -> Charge:
    """Return what a charge counts as after an entry that may not stand: never less than before.

    The writer of an entry that it began, or how far it is, may have looked: so it has begun, and so have all its steps.
    """
    if entry.kind in ("reserve", "refund"):
        return charge
    return replace(charge, state=charge.state if charge.looked else "begun", steps_begun=charge.steps or 0)


def _uncovered_charge(entry: Entry) -> Charge:
    """Return the charge for an entry of which nothing is known: a look without noise, in a run of its own."""
    unknown: dict[str, Any] = dict.fromkeys(_OF_RUN, f"entry {entry.seq}")
    state = MOVES[entry.kind].after
    return Charge(
        **unknown, asset=entry.asset, id=entry.charge or _entry_name(entry), seq=entry.seq, run=1, index=0,
        purpose="release", event=dpa.NonPrivateDpEvent(), own_delta=0.0, partition=None, time=entry.time,
        state="begun" if state == "refunded" else state,
    )  # fmt: skip


def _entry_name(entry: Entry) -> str:
    return f"of entry {entry.seq}"


# --- fields ----------------------------------------------------------------------------------------------------------


def _field(body: Mapping[str, Any], name: str, read_as: Callable[[Any], T]) -> T:
    try:
        return read_as(body[name])
    except KeyError:
        raise _Malformed(f"no {name!r}") from None
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise _Malformed(f"{name!r} that it may not say") from None


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if not events.is_count(value):
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError
    return float(value)


def _share_of_one(value: Any) -> float:
    if not 0.0 <= _number(value) <= 1.0:
        raise ValueError
    return float(value)


def _parse_choice(value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError
    return str(value)


def _partition(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    scheme, cell = value
    if not isinstance(cell, str):
        raise ValueError
    return _word(scheme), cell


def _versions(value: Any) -> Versions:
    return tuple(sorted((_word(part), _count(number)) for part, number in value.items()))


def _share(value: Any) -> Share:
    if value.keys() != {"mu", "beside"}:
        raise ValueError
    mu = _number(value["mu"])
    if mu < 0.0:
        raise ValueError
    return Share(mu, _share_of_one(value["beside"]))


def _parse_advance(charge: Charge, value: Any) -> int:
    if _count(value) <= charge.steps_begun or charge.steps is None or value > charge.steps:
        raise ValueError
    return int(value)
