"""The whole ledger at one moment, as values, and the bodies that its entries are written with.

What a charge is at a moment - reserved, begun (and after how many steps), answered, committed, refunded - is derived
from its entries by `reader`; nothing is ever updated in place. Books were checked before anybody reads in them.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.privacy import events
from palimpsest.privacy.gaussian_share import Share
from palimpsest.privacy.ledger import reader
from palimpsest.privacy.ledger.chain import Chain, Entry, report_malformed
from palimpsest.privacy.ledger.reader import STRIKE, Account, Fault
from palimpsest.privacy.ledger.records import MOVES, Asset, Balance, Cap, Charge, Run, digest_of
from palimpsest.privacy.ledger.rules import assign_shares, balance
from palimpsest.privacy.ledger.total import Total, total_of
from palimpsest.privacy.ledger.witness import Witnesses
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.keyed import digest

_BESIDE = ("key", "after_loss", "teams")  # fields that a registration leaves out, or writes in another form
ROWS = "rows"  # the kind of the entries by which a data set's rows are recognised
_OF_RUN = ("stage", "variant", "purpose", "fingerprint")


@dataclass(frozen=True)
class Books:
    """The whole ledger at one moment.

    Attributes:
        chain: its entries and keys, recomputed and checked against what was noted elsewhere.
        place: its address, for errors.
        witnesses: where its heads are noted.
    """

    chain: Chain
    place: str
    witnesses: Witnesses

    @property
    def entries(self) -> int:
        """How many entries the chain has."""
        return len(self.chain.entries)

    @property
    def head(self) -> str:
        """The hash of the newest entry."""
        return self.chain.head.hash

    def find_asset(self, name: str) -> Asset | None:
        """Return the asset of that name, or None if it is not registered; LedgerError where its entry is malformed."""
        if not (terms := self.chain.terms(name)):
            return None
        with report_malformed(f"The entry of asset {name!r}"):
            own = {each.name: terms[each.name] for each in fields(Asset) if each.name not in (*_BESIDE, "milestones")}
            own |= {name: tuple(terms.get(name, ())) for name in ("orders", "milestones")}
            own |= {"teams": tuple(sorted(terms.get("teams", {}).items()))}
            asset = Asset(**own, key=bytes.fromhex(self.chain.keys[name]), after_loss=bool(terms.get("lost")))
            asset.require_possible()
        return asset

    def asset(self, name: str) -> Asset:
        """The asset of that name.

        Raises:
            LedgerError: if it is not registered.
        """
        asset = self.find_asset(name)
        if asset is None:
            raise LedgerError(
                f"Asset {name!r} is not registered in the ledger at {self.place}.",
                "Register it with `palimpsest register`, or correct dataset.asset in params.yaml.",
            )
        return asset

    def caps(self, name: str) -> list[Cap]:
        """Return every cap the asset has had, oldest first: raising one is a decision that readers of a release see.

        Those of a registration that was corrected before anything was charged held for nothing.
        """
        since = self._registration(name).seq
        with report_malformed("A cap"):
            said = (
                (entry.says, entry.time) for entry in self.chain.of(name, "register", "amend") if entry.seq >= since
            )
            return [Cap(body["epsilon"], time) for body, time in said if "epsilon" in body]

    def _registration(self, name: str) -> Entry:
        """Return the registration whose terms its charges met: the newest one before them."""
        first, *others = self.chain.of(name, "register")
        charged = min((charge.seq for charge in self.account(name).charges), default=math.inf)
        return [first, *(entry for entry in others if entry.seq < charged)][-1]

    def highest_cap(self, name: str, since: int) -> float:
        """Return the asset's highest cap from the entry numbered `since` on."""
        with report_malformed("A cap"):
            said = [(entry.seq, entry.says) for entry in self.chain.of(name, "register", "amend")]
            caps = [(seq, float(body["epsilon"])) for seq, body in said if "epsilon" in body]
        standing = [epsilon for seq, epsilon in caps if seq <= since]
        return max([*standing[-1:], *(epsilon for seq, epsilon in caps if seq > since)])

    def charges(self, name: str) -> list[Charge]:
        """Return all charges to an asset's rows as their entries left them, oldest first: `asset` says by which name.

        Guarantee: every charge under every name that has the same rows for the same unit of privacy is among them, so
        that what follows from them - total, caps, plans, a release - is about the people and not about a name. Each
        counts for at least its event, whoever wrote its entries; see `reader`.
        """
        asset = self.asset(name)
        found = [charge for own in (name, *self.names(name)) for charge in self.account(own).charges]
        return assign_shares(asset, sorted(found, key=lambda charge: charge.seq))

    def account(self, name: str) -> Account:
        """Return what was charged under this name only, and which of its entries say what no entry may."""
        if name not in self._accounts:
            own = self.chain.of(name, STRIKE, *MOVES)
            self._accounts[name] = reader.read(self.asset(name), own)
        return self._accounts[name]

    def faults(self, name: str) -> list[Fault]:
        """Return the entries about an asset's rows that say what no entry may, oldest first, including struck ones."""
        names = (name, *self.names(name))
        return sorted(fault for own in names for fault in (*self.account(own).faults, *self._rows[own].faults))

    def filling_faults(self, name: str) -> list[Fault]:
        """Return the entries that fill the asset's budget because nothing covers them, and that nobody struck."""
        return [fault for fault in self.faults(name) if fault.fills and fault.struck is None]

    @cached_property
    def _accounts(self) -> dict[str, Account]:
        return {}

    def balance(self, name: str) -> Balance:
        """Return what was spent on the asset's rows, under whatever name, and its cap."""
        return balance(self.asset(name), self.charges(name))

    def total(self, name: str, after: Balance | None = None) -> Total:
        """Return what is proved of all releases of an asset's rows together, at the balance `after` or the current one.

        Guarantee: milestones that were registered after a query on these rows began may have been chosen by its answer,
        and count for nothing.
        """
        asset = replace(self.asset(name), milestones=self.milestones(name))
        return total_of(asset, after or self.balance(name), self.caps(name))

    def milestones(self, name: str) -> tuple[float, ...]:
        """Return the asset's milestones that count."""
        registered = self._registration(name)
        fresh = all(charge.seq > registered.seq for charge in self.charges(name) if charge.looked)
        return tuple(registered.says.get("milestones", ())) if fresh else ()

    def names(self, name: str) -> tuple[str, ...]:
        """Return the other names of an asset's rows for the same unit of privacy: charges under all of them add up."""
        asset = self.find_asset(name)
        alike = (other for other in self._find_alike(name) if asset is not None and self._has_unit(other, asset))
        return tuple(alike)

    def other_units(self, name: str) -> tuple[str, ...]:
        """Return the names of an asset's rows for another unit of privacy, whose epsilons say nothing of this one's."""
        return tuple(other for other in self._find_alike(name) if other not in self.names(name))

    def _has_unit(self, name: str, asset: Asset) -> bool:
        other = self.find_asset(name)
        return other is not None and (other.unit, other.unit_column) == (asset.unit, asset.unit_column)

    def _find_alike(self, name: str) -> list[str]:
        """Return all other names that share rows with this one, directly or through further names."""
        found, new = [name], [name]
        while new:
            own = frozenset[str]().union(*(self.known_likenesses(each) for each in new))
            new = [other for other in self.chain.keys if other not in found and own & self.known_likenesses(other)]
            found += new
        return found[1:]

    @property
    def rows_key(self) -> bytes:
        """The key by which rows are recognised across all data sets of this ledger: 32 secret bytes.

        It follows from the key of the data set that was registered first, which no entry ever changes.
        """
        first = next(entry.asset for entry in self.chain.entries if entry.kind == "register")
        return digest(bytes.fromhex(self.chain.keys[first]), "rows of a ledger")

    def known_likenesses(self, name: str) -> frozenset[str]:
        """Return every likeness of rows that was recorded for an asset; see `records.keyed.likeness`."""
        return self._rows[name].known if name in self._rows else frozenset()

    @cached_property
    def _rows(self) -> dict[str, "_Rows"]:
        return {name: _rows_of(self.chain.of(name, ROWS, STRIKE)) for name in self.chain.keys}

    def rows_entries(self, name: str) -> frozenset[int]:
        """Return the numbers of the entries that record an asset's rows, without those that carry the owner's word."""
        said = ((entry, reader.body_of(entry) or {}) for entry in self.chain.of(name, ROWS))
        return frozenset(entry.seq for entry, body in said if "word" not in body)

    def same_rows(self, name: str, likeness: str) -> str | None:
        """Return another asset with the same rows, unless the owner of the data gave a word for this one; else None."""
        if name in self._rows and self._rows[name].word:
            return None
        others = (other for other in self.chain.keys if other != name)
        return next((other for other in others if likeness in self.known_likenesses(other)), None)

    def count_elsewhere(self, name: str) -> int:
        """Count the other ledgers that have charged an asset of this name, by the heads noted here."""
        return self.witnesses.count_others(name, [digest_of(key) for key in self.chain.keys.values()])

    def require_alone(self, name: str) -> None:
        """Raise LedgerError where another ledger has charged this asset, by the heads noted here.

        Guarantee: on a machine that has noted charges of an asset, no other ledger begins it with a full budget or goes
        on with what is left of one of its own, unless it is marked as after a loss: then no total of it is stated.
        A copy of this ledger, wherever it lies, has the same random keys and is no other one.
        """
        asset = self.find_asset(name)
        if (asset is None or not asset.after_loss) and self.count_elsewhere(name):
            raise LedgerError(
                f"Asset {name!r} was charged on another ledger, by the entries noted in "
                f"{str(self.witnesses.folder)!r}; the one at {self.place} does not have these charges.",
                "Put that ledger back, or set PALIMPSEST_LEDGER to it; only other records may have another name. "
                "Where both have charged, `palimpsest ledger merge-check` says what both have spent. If the ledger is "
                "lost, or no total is wanted any more, `palimpsest register --lost` goes on with this one: what was "
                "spent is then unknown, and nothing can be released.",
            )


@dataclass(frozen=True)
class _Rows:
    """The recorded rows of an asset; `word` says whether the data's owner gave their word for rows of another asset."""

    known: frozenset[str]
    word: bool
    faults: tuple[Fault, ...]


def _rows_of(entries: Iterable[Entry]) -> _Rows:
    own = list(entries)
    struck, rows = reader.struck_entries(own), [one for one in own if one.kind == ROWS]
    bodies = {one.seq: reader.body_of(one) or {} for one in rows}
    malformed = {seq for seq, body in bodies.items() if not body or not isinstance(body.get("likeness", ""), str)}
    faults = (Fault(seq, ROWS, "says nothing that can be read", False, struck.get(seq)) for seq in sorted(malformed))
    said = [body for seq, body in bodies.items() if seq not in malformed and seq not in struck]
    known = frozenset(body["likeness"] for body in said if "likeness" in body)
    return _Rows(known, any("word" in body for body in said), tuple(faults))


def registration(asset: Asset, noted_in: str | None = None) -> dict[str, Any]:
    """Return the body of a registration: the asset's public terms, the hash of its key, that an earlier ledger is lost,
    and the folder in which its heads are noted, where that is not beside the ledger."""
    lost: dict[str, Any] = {"lost": True} if asset.after_loss else {}
    noted = {} if noted_in is None else {"noted_in": noted_in}
    return _public_terms(asset) | {"key_hash": digest_of(asset.key.hex())} | lost | noted


def fixed_terms(asset: Asset) -> dict[str, Any]:
    """Return the terms that must be the same when an asset is registered again."""
    return {name: value for name, value in _public_terms(asset).items() if name != "orders"}


def _public_terms(asset: Asset) -> dict[str, Any]:
    return {name: value for name, value in asdict(asset).items() if name not in _BESIDE}


def reservation(
    run: Run, number: int, index: int, query: PlannedQuery, share: Share | None, team: str | None
) -> dict[str, Any]:
    """Return the reservation of one query of a run, with its share of a Gaussian budget and its team, if any."""
    steps = {} if query.steps is None else {"steps": query.steps}
    return {
        "run_key": run.key,
        "run": number,
        "index": index,
        **{name: getattr(run, name) for name in _OF_RUN},
        "query": query.name,
        "event": events.to_json(query.event),
        "own_delta": query.own_delta,
        "adjacency": query.adjacency,
        "partition": query.partition,
        "versions": dict(query.versions),
        **steps,
        **({} if share is None else {"share": share._asdict()}),
        **({} if team is None else {"team": team}),
    }
