"""A comparison of two ledgers: where they part, and what both have spent. Nothing is ever merged."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.records import STATES, Asset, Charge
from palimpsest.privacy.ledger.rules import balance

_ORDER = ("refunded", *(state for state in STATES if state != "refunded"))  # from what costs nothing to what is done


@dataclass(frozen=True)
class Sum:
    """One data set in two ledgers.

    Attributes:
        spent: the epsilon of each ledger by itself; 0 where it does not know the data set.
        both: the epsilon of all charges of the two, with shared charges counted once.
        cap: the lower of their caps.
        fits: whether the sum is within that cap, and its deltas within theirs.
    """

    asset: str
    spent: tuple[float, float]
    both: float
    cap: float
    fits: bool


@dataclass(frozen=True)
class Comparison:
    """Two ledgers.

    Attributes:
        shared: how many entries they have in common from the start.
        own: how many further ones each has.
        sums: one for each data set in either ledger.
    """

    shared: int
    own: tuple[int, int]
    sums: tuple[Sum, ...]

    @property
    def diverged(self) -> bool:
        """Whether each has entries that the other lacks: then neither of them says what was spent."""
        return min(self.own) > 0


def compared(one: Books, other: Books) -> Comparison:
    """Compare two ledgers.

    Guarantee: a charge that counts in either counts in the sum, once, so that the sum says what was spent on the data
    set if both ledgers were used, by the filter that each was held to.

    Raises:
        LedgerError: they have a data set on terms under which epsilons do not add.
    """
    pairs = zip(one.chain.entries, other.chain.entries, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].hash == pair[1].hash, pairs))
    names = {name: None for books in (one, other) for name in books.chain.keys}
    sums = tuple(_sum(name, one, other) for name in names)
    return Comparison(shared, (one.entries - shared, other.entries - shared), sums)


def _sum(name: str, one: Books, other: Books) -> Sum:
    knowing = [books for books in (one, other) if name in books.chain.keys]
    asset = _terms([books.asset(name) for books in knowing])
    charges = [books.charges(name) if books in knowing else [] for books in (one, other)]
    both = balance(asset, furthest(*charges))
    first, second = (balance(asset, own).spent for own in charges)
    return Sum(name, (first, second), both.spent, asset.epsilon, both.fits)


def _terms(assets: list[Asset]) -> Asset:
    """Return the terms that count: the lower cap, where all else is equal."""
    first, *others = assets
    for other in others:
        if (
            replace(first, epsilon=other.epsilon, teams=other.teams, key=other.key, after_loss=other.after_loss)
            != other
        ):
            raise LedgerError(
                f"Asset {first.name!r} is registered in the two ledgers on other terms, under which epsilons do not "
                "add.",
                "Look at both with `palimpsest ledger`: they are of other data, or one of them was registered wrongly.",
            )
    return replace(first, epsilon=min(each.epsilon for each in assets))


def furthest(one: Iterable[Charge], other: Iterable[Charge]) -> list[Charge]:
    """Return all charges of two ledgers, each in the furthest state that it reached in either of them.

    Guarantee: what only the other has is of a scheme of its own: the two may have put a unit into different parts of
    the data set, though their runs have one key and one number.
    """
    first, second = ({charge.id: charge for charge in charges} for charges in (one, other))
    apart = [replace(charge, run=-charge.run) for key, charge in second.items() if key not in first]
    return [_further(charge, second.get(key, charge)) for key, charge in first.items()] + apart


def _further(one: Charge, other: Charge) -> Charge:
    return max(one, other, key=lambda charge: _ORDER.index(charge.state))
