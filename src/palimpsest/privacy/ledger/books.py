"""The whole ledger at one moment, as values. It was checked before anybody reads in it."""

from dataclasses import dataclass

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import bodies
from palimpsest.privacy.ledger.chain import Chain
from palimpsest.privacy.ledger.filter import balance
from palimpsest.privacy.ledger.hashes import digest_of
from palimpsest.privacy.ledger.records import Asset, Balance, Cap, Charge
from palimpsest.privacy.ledger.witness import Witnesses


@dataclass(frozen=True)
class Books:
    """The whole ledger at one moment.

    Attributes:
        chain: its entries and keys, recomputed and held against what was noted elsewhere.
        place: its address, for errors.
        witnesses: where its heads are noted.
    """

    chain: Chain
    place: str
    witnesses: Witnesses

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self.chain.entries)

    @property
    def head(self) -> str:
        """The hash of the newest entry."""
        return self.chain.head.hash

    @property
    def assets(self) -> list[str]:
        """Names of all registered assets."""
        return sorted(self.chain.keys)

    def known(self, name: str) -> Asset | None:
        """The asset of that name; None where it is not registered."""
        return bodies.asset_of(self.chain, name)

    def has_key_hash(self, name: str) -> bool:
        """Whether the chain holds the hash of the asset's key."""
        return bodies.has_key_hash(self.chain, name)

    def asset(self, name: str) -> Asset:
        """The asset of that name.

        Raises:
            LedgerError: if it is not registered, or was registered without the hash of its key.
        """
        asset = self.known(name)
        if asset is None:
            raise LedgerError(
                f"Asset {name!r} is not registered in the ledger at {self.place}.",
                "Register it with `palimpsest register`, or correct dataset.asset in params.yaml.",
            )
        if not self.has_key_hash(name):
            raise LedgerError(
                f"Asset {name!r} was registered in the ledger at {self.place} without the hash of its key.",
                "Run `palimpsest register` once: it writes the hash down; nothing else changes.",
            )
        return asset

    def caps(self, name: str) -> list[Cap]:
        """Every cap that the asset has had, oldest first: to raise one is a decision that readers of a release see."""
        return bodies.caps_of(self.chain, name)

    def charges(self, name: str) -> list[Charge]:
        """All charges of an asset, oldest first."""
        self.asset(name)
        return bodies.charges_of(self.chain, name)

    def balance(self, name: str) -> Balance:
        """What the asset has spent and what its cap is."""
        return balance(self.asset(name), self.charges(name))

    def elsewhere(self, name: str) -> int:
        """How many other ledgers have charged an asset of this name, by what is noted here, while this knows none."""
        lineages = [digest_of(key) for key in self.chain.keys.values()]
        return 0 if name in self.chain.keys else self.witnesses.others(name, lineages)
