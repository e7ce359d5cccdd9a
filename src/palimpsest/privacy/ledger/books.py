"""The whole ledger at one moment, as values, and the bodies that its entries have: the one place for both.

What a charge is at a moment - reserved, begun (and after how many steps), answered, committed, refunded - is derived
from its entries; nothing is ever updated in place. Books were checked before anybody reads in them.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.privacy import events
from palimpsest.privacy.gaussian_share import Share
from palimpsest.privacy.ledger.chain import Chain, Entry, forbidden, interpreted
from palimpsest.privacy.ledger.records import MOVES, Asset, Balance, Cap, Charge, Run, Standing, digest_of
from palimpsest.privacy.ledger.rules import balance
from palimpsest.privacy.ledger.witness import Witnesses
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.keyed import digest

_BESIDE = ("key", "after_loss", "teams")  # what a registration does not say of an asset, or says otherwise
ROWS = "rows"  # the kind of the entries that know a data set's rows again
_OF_RUN = ("stage", "variant", "purpose", "fingerprint")


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
        return len(self.chain.entries)

    @property
    def head(self) -> str:
        """The hash of the newest entry."""
        return self.chain.head.hash

    def known(self, name: str) -> Asset | None:
        """The asset of that name, None where it is not registered; LedgerError where its entry has not its form."""
        if not (terms := self.chain.terms(name)):
            return None
        with interpreted(f"The entry of asset {name!r}"):
            own = {each.name: terms[each.name] for each in fields(Asset) if each.name not in _BESIDE}
            own |= {"orders": tuple(terms["orders"]), "teams": tuple(sorted(terms.get("teams", {}).items()))}
            asset = Asset(**own, key=bytes.fromhex(self.chain.keys[name]), after_loss=bool(terms.get("lost")))
            asset.require_possible()
        return asset

    def asset(self, name: str) -> Asset:
        """The asset of that name.

        Raises:
            LedgerError: if it is not registered.
        """
        asset = self.known(name)
        if asset is None:
            raise LedgerError(
                f"Asset {name!r} is not registered in the ledger at {self.place}.",
                "Register it with `palimpsest register`, or correct dataset.asset in params.yaml.",
            )
        return asset

    def caps(self, name: str) -> list[Cap]:
        """Every cap that the asset has had, oldest first: to raise one is a decision that readers of a release see."""
        with interpreted("A cap"):
            said = ((entry.says, entry.time) for entry in self.chain.of(name, "register", "amend"))
            return [Cap(body["epsilon"], time) for body, time in said if "epsilon" in body]

    def charges(self, name: str) -> list[Charge]:
        """All charges of an asset as their entries left them, oldest first.

        Guarantee: each moved as `MOVES` admits, whoever wrote the entry: what has begun counts for ever.

        Raises:
            LedgerError: an entry moves a charge otherwise.
        """
        self.asset(name)
        charges: dict[str | None, Charge] = {}
        for entry in self.chain.of(name, *MOVES):
            with interpreted(f"Entry {entry.seq}"):
                before = charges.get(entry.charge)
                _check_move(before, entry)
                charges[entry.charge] = charge_of(entry) if before is None else _moved(before, entry)
        return list(charges.values())

    def balance(self, name: str) -> Balance:
        """What the asset has spent and what its cap is."""
        return balance(self.asset(name), self.charges(name))

    @property
    def rows_key(self) -> bytes:
        """The key under which the rows of all data sets of this ledger are known again: 32 secret bytes.

        It follows from the key of the data set that was registered first, which no entry ever changes.
        """
        first = next(entry.asset for entry in self.chain.entries if entry.kind == "register")
        return digest(bytes.fromhex(self.chain.keys[first]), "rows of a ledger")

    def rows_known(self, name: str) -> frozenset[str]:
        """Every likeness of rows that was written down of an asset; see `records.keyed.likeness`."""
        with interpreted("What is known of rows"):
            return frozenset(str(one.says["likeness"]) for one in self.chain.of(name, ROWS) if "likeness" in one.says)

    def same_rows(self, name: str, likeness: str) -> str | None:
        """Another asset with the same rows, unless the owner of the data gave a word for this one; None for none."""
        if any("word" in entry.says for entry in self.chain.of(name, ROWS)):
            return None
        others = (other for other in self.chain.keys if other != name)
        return next((other for other in others if likeness in self.rows_known(other)), None)

    def elsewhere(self, name: str) -> int:
        """How many other ledgers have charged an asset of this name, by what is noted here."""
        return self.witnesses.others(name, [digest_of(key) for key in self.chain.keys.values()])

    def require_alone(self, name: str) -> None:
        """Raise LedgerError where another ledger has charged this asset, by what is noted here.

        Guarantee: on a machine that has noted charges of an asset, no other ledger begins it with a full budget or goes
        on with what is left of one of its own, unless it is marked as after a loss: then no total of it is stated.
        A copy of this ledger, wherever it lies, has the same random keys and is no other one.
        """
        asset = self.known(name)
        if (asset is None or not asset.after_loss) and self.elsewhere(name):
            raise LedgerError(
                f"Asset {name!r} was charged on another ledger, by the entries noted in "
                f"{str(self.witnesses.folder)!r}; the one at {self.place} does not have these charges.",
                "Put that ledger back, or set PALIMPSEST_LEDGER to it; only other records may have another name. "
                "Where both have charged, `palimpsest ledger merge-check` says what both have spent. If the ledger is "
                "lost, or no total is wanted any more, `palimpsest register --lost` goes on with this one: what was "
                "spent is then unknown, and nothing can be released.",
            )


def registration(asset: Asset) -> dict[str, Any]:
    """What is registered of an asset: its public terms, the hash of its key, and that an earlier ledger is lost."""
    return _public(asset) | {"key_hash": digest_of(asset.key.hex())} | ({"lost": True} if asset.after_loss else {})


def fixed_terms(asset: Asset) -> dict[str, Any]:
    """What registering an asset again must say alike."""
    return {name: value for name, value in _public(asset).items() if name != "orders"}


def _public(asset: Asset) -> dict[str, Any]:
    return {name: value for name, value in asdict(asset).items() if name not in _BESIDE}


def reservation(
    run: Run, number: int, index: int, query: PlannedQuery, share: Share | None, team: str | None
) -> dict[str, Any]:
    """What is reserved for one query of a run, with its share of a Gaussian budget and its team where there is one."""
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


def charge_of(entry: Entry) -> Charge:
    """The charge that an entry reserved."""
    body = entry.says
    names = ("run_key", "run", "index", *_OF_RUN, "query", "own_delta")
    return Charge(
        **{name: body[name] for name in names},
        id=str(entry.charge),
        seq=entry.seq,
        event=events.from_json(body["event"]),
        partition=tuple(body["partition"]) if body["partition"] else None,
        steps=body.get("steps"),
        team=body.get("team"),
        versions=tuple(sorted(body["versions"].items())),
        share=Share(**body["share"]) if "share" in body else None,
        state=MOVES[entry.kind].after,
        time=entry.time,
    )


def standing_of(first: Entry, last: Entry) -> Standing:
    """Where a charge stands, by its reservation and its newest entry."""
    with interpreted(f"Entry {last.seq}"):
        return Standing(first.asset, MOVES[last.kind].after, first.says.get("steps"), last.says.get("begun", 0))


def _check_move(before: Charge | None, entry: Entry) -> None:
    admitted = entry.kind == "reserve" if before is None else before.state in MOVES[entry.kind].before
    if not admitted:
        raise forbidden(entry)


def _moved(charge: Charge, entry: Entry) -> Charge:
    body = entry.says
    return replace(
        charge,
        state=MOVES[entry.kind].after,
        noise_fixed=bool(body.get("noise_fixed", charge.noise_fixed)),
        steps_begun=int(body.get("begun", charge.steps_begun)),
        answer_hash=body.get("answer_hash", charge.answer_hash),
        subject=body.get("subject", charge.subject),
    )
