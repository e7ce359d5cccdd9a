"""The ledger: every look at a private data set, reserved before it, written down as it begins, never forgotten.

An append-only chain of entries in a transactional database (SQLite, or PostgreSQL by URL): `chain` links them, `store`
reads and writes them, `books` is the ledger at one moment and gives its entries their meaning, `rules` decides.
"""

import json
import math
import re
import secrets
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from palimpsest import validate
from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import rules
from palimpsest.privacy.ledger.books import Books, fixed_terms
from palimpsest.privacy.ledger.exported import Exported
from palimpsest.privacy.ledger.records import (
    MOVES,
    Asset,
    Balance,
    Charge,
    Reservation,
    Run,
    digest_of,
    milestone_problem,
    require_unit,
)
from palimpsest.privacy.ledger.rules import (
    attempt,
    check_advance,
    check_plan,
    require_budget,
    require_consent,
    require_kept,
    require_team,
    resume_never,
    select_paying,
)
from palimpsest.privacy.ledger.store import Store
from palimpsest.privacy.planned import PlannedQuery


class Ledger:
    """Reserve, begin, advance, answer, commit: the only way to spend privacy budget.

    Guarantee: the charges counted for one asset satisfy (epsilon, delta)-DP in total, also when each plan is chosen
    after looking at the results of earlier ones; `rules` says why.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.place = store.place

    @classmethod
    def create(cls, url: str) -> "Ledger":
        """Make the ledger's tables; a ledger that exists is left as it is.

        Raises:
            LedgerError: if the place cannot be written.
        """
        return cls(Store.create(url))

    @classmethod
    def open(cls, url: str) -> "Ledger":
        """Open a ledger that exists.

        Raises:
            LedgerError: if there is none, or it cannot be read. A missing ledger is never taken for an empty one.
        """
        return cls(Store.open(url))

    def register(self, asset: Asset, *, lost: bool = False) -> Asset:
        """Enter a data asset, with a fresh key whose hash is in the chain; entering it again changes nothing.

        Terms under which nothing was ever charged may be corrected: further entries replace them, and the key stays.
        Where an earlier ledger of this data set is `lost`, that is written down, also for a registered asset: what that
        ledger spent is unknown.

        Guarantee: from the first reservation on, for whatever purpose and under whatever name of the same rows, delta,
        unit, its column, adjacency and milestones never change, also if it was given back. With the owner's word that a
        ledger is lost the asset is marked for good, whatever was noted of that ledger here.

        Raises:
            LedgerError: if it is known with other values and was charged, or may have been on a ledger that is lost; or
                a milestone is not below its cap.
        """
        asset.require_possible()
        with self._store.write() as writing:
            books = writing.books()
            known = books.find_asset(asset.name)
            if known is None:
                _require_below(asset)
                made = replace(asset, key=secrets.token_bytes(32), after_loss=lost)
                writing.register(made)
                return made
            others = fixed_terms(known) != fixed_terms(replace(asset, epsilon=known.epsilon))  # than the cap: `amend`
            if others and not (known.after_loss or lost or books.charges(asset.name)):
                _require_below(asset)
                made = replace(asset, key=known.key, teams=known.teams)
                writing.register_anew(made)
                return made
            require_terms(known, asset)
            if lost and not known.after_loss:
                writing.amend(asset.name, {"lost": True})
        return replace(known, after_loss=known.after_loss or lost)

    def amend(self, name: str, epsilon: float) -> Asset:
        """Change an asset's cap: a decision of the data's owner, written into the chain.

        A cap raised because of what earlier releases showed is not covered by the filter's guarantee.
        """
        validate.require_positive(epsilon=epsilon)
        with self._store.write() as writing:
            asset = replace(writing.books().asset(name), epsilon=epsilon)
            writing.amend(name, {"epsilon": epsilon})
        return asset

    def cap_team(self, name: str, team: str, epsilon: float) -> Asset:
        """Set the cap of a team that shares an asset; the total of that team's charges stays within it.

        From the first such cap on, every run of the asset names a team that has one. Caps of teams may add up to more
        than the asset's own, which holds as before.
        """
        if not re.fullmatch(r"[a-z0-9_]{1,40}", team) or not 0.0 < epsilon < math.inf:
            raise LedgerError(
                f"Team {team!r} cannot have a cap of epsilon {epsilon:g}.",
                "Name it with lower-case letters, digits and _, at most 40, and give a number above 0.",
            )
        with self._store.write() as writing:
            asset = writing.books().asset(name)
            teams = {**dict(asset.teams), team: epsilon}
            writing.amend(name, {"teams": teams})
        return replace(asset, teams=tuple(sorted(teams.items())))

    def know_rows(self, name: str, likeness: str) -> None:
        """Write down once the likeness by which an asset's rows are recognised; the ledger holds nothing else of them.

        Guarantee: within one ledger, the same rows are not read under a second name without the owner's word, so that
        their total is not divided unseen. Rows that merely overlap with another asset's, a file that was edited, and
        another ledger are not found.

        Args:
            likeness: `records.keyed.likeness` of all rows, under `Books.rows_key`.

        Raises:
            LedgerError: another asset has these rows.
        """
        with self._store.write() as writing:
            books = writing.books()
            books.asset(name)
            if likeness in books.known_likenesses(name):
                return
            if other := books.same_rows(name, likeness):
                raise LedgerError(
                    f"The rows of asset {name!r} are those of {other!r}: under two names, each total counts a part of "
                    "what is told about the same people.",
                    f"Go on with {other!r} as dataset.asset, or, if the data's owner agrees, give a reason to "
                    "`palimpsest register --same-rows REASON`: both totals then add up.",
                )
            writing.rows(name, {"likeness": likeness})

    def strike(self, name: str, seq: int, because: str) -> None:
        """Take out an entry that says what no entry may, by the word of the data's owner, with the reason.

        An entry that counts at what covers its event still counts, but is no longer named. An entry that nothing
        covers, one that moves a charge in a forbidden way and one about rows are read as if they were not there.

        Guarantee: no entry that says what it may takes back a charge, whoever writes it; only faulty ones are struck.

        Raises:
            LedgerError: no reason is given, or that entry of the asset is not faulty and is not about rows.
        """
        if not because.strip():
            raise LedgerError("--because has no reason.", "Say in a few words why the entry told nothing.")
        with self._store.write() as writing:
            books = writing.books()
            faulty = {fault.seq for fault in books.account(name).faults if fault.struck is None}
            if seq not in faulty and seq not in books.rows_entries(name):
                raise LedgerError(
                    f"Entry {seq} is none of asset {name!r} that can be struck.",
                    "Name one that `palimpsest ledger` lists as faulty. What was charged stays charged; what was "
                    "reserved and never began is given back by `palimpsest ledger --refund ID`.",
                )
            writing.strike(name, seq, because)

    def allow_same_rows(self, name: str, word: str, likeness: str | None = None) -> None:
        """Write down the owner's word that an asset may have the rows of another one, with the reason.

        Args:
            likeness: of the asset's rows, as `know_rows` takes it, if they were read: from then on the charges under
                both names add up.

        Raises:
            LedgerError: no reason is given.
        """
        if not word.strip():
            raise LedgerError("--same-rows has no reason.", "Say in a few words why the data have two names.")
        with self._store.write() as writing:
            writing.books().asset(name)
            writing.rows(name, {"word": word} | ({} if likeness is None else {"likeness": likeness}))

    def books(self, witnesses: Collection[str] = ()) -> Books:
        """Recompute the whole chain, check it against all that was noted elsewhere, and return what it says.

        Args:
            witnesses: hashes of entries noted outside the ledger (`head` after a run), in receipts, beside those in
                the owner's files of heads: they show that the newest entries were cut off, that an old copy was put
                back, or that the hashes were made anew behind a change.

        Raises:
            LedgerError: naming the first entry that does not fit, or if a witness is missing.
        """
        return self._store.books(witnesses)

    def unchecked_books(self) -> Books:
        """Return the books without a check against what was noted elsewhere: only for comparing two ledgers.

        Raises:
            LedgerError: the chain itself does not hold.
        """
        return self._store.unchecked_books()

    def export(self) -> Exported:
        """Return all that the ledger holds, checked as `books` checks it."""
        with self._store.write() as writing:
            return writing.export()

    def take_in(self, ledger: Exported) -> Books:
        """Write a whole ledger into this one, which must be empty; entries, keys and answers stay as they were.

        Raises:
            LedgerError: this one is not empty, or the other one's chain, answers or age do not hold; nothing is
                written then.
        """
        with self._store.write() as writing:
            return writing.take_in(ledger)

    def asset(self, name: str) -> Asset:
        """Return a data set by its name."""
        return self.books().asset(name)

    def charges(self, name: str) -> list[Charge]:
        """Return every charge to the rows of a data set."""
        return self.books().charges(name)

    def balance(self, name: str) -> Balance:
        """Return what is spent of a data set's budget, and what is left."""
        return self.books().balance(name)

    def head(self) -> str:
        """The hash of the newest entry."""
        return self.books().head

    def lock_run(self, name: str, run_key: str) -> AbstractContextManager[None]:
        """Hold a run of an asset while the block lasts.

        Raises:
            LedgerError: another process, or another thread of this one, holds it; or it cannot be locked here.
        """
        return self._store.lock_run(name, run_key)

    def reserve(
        self,
        name: str,
        run: Run,
        planned: Sequence[PlannedQuery],
        resumable: Callable[[Charge], bool] = resume_never,
        witnesses: Collection[str] = (),
        again: Container[str] = (),
        team: str | None = None,
        *,
        invented: bool = False,
    ) -> Reservation:
        """Set budget aside for a plan, before any row is read.

        A retry of a run that never finished reuses what never began, replays what was answered, continues what began
        in steps and can be resumed, and is charged again for what began and was lost. A run that finished and is run
        again is a second look and is charged in full. Both need the owner's word.

        Guarantee: nothing is reserved in a ledger that lacks an entry noted elsewhere, or beside another ledger that
        was charged for the same asset here; all are looked at in the transaction that reserves. What an earlier attempt
        reserved is used only where it says what this plan asks, and is held against the cap as it is now.

        Args:
            resumable: whether the caller has what it needs to continue a begun charge; asked only of the newest
                charge of a query that runs in steps and whose noise no seed fixed. The ledger is locked meanwhile.
            witnesses: hashes of entries that the workspace's receipts noted.
            again: the words of the data's owner for second charges (`again.given`).
            team: the team whose share of the asset the run counts in.
            invented: whether the rows belong to nobody. Other ledgers are then not looked for.

        Raises:
            ConsentNeeded: if something would be charged again without that word; nothing is charged then.
            BudgetExceeded: if the plan would pass the asset's budget, or the team's; nothing is charged then.
            LedgerError: for an unknown asset, one that another ledger has charged, another adjacency or purpose, a
                release query without noise, steps that the event does not compose, a stored answer that was changed,
                or a chain that does not hold.
            ValueError: for an own delta outside [0, 1].
        """
        check_plan(run, planned)
        with self._store.write() as writing:
            books = writing.books(witnesses)
            asset, charges = books.asset(name), books.charges(name)
            if not invented:
                books.require_alone(name)
            now = attempt(run.key, books.account(name).charges, resumable)
            now = now._replace(kept=select_paying(now.kept, planned, run))
            missing = {index: query for index, query in enumerate(planned) if index not in now.kept}
            if run.purpose == "release":
                kept, wanted = now.kept.values(), list(missing.values())
                require_budget(asset, charges, wanted, run, now.number, kept, books.filling_faults(name))
                require_team(asset, charges, wanted, run, now.number, team, kept)
                for charge in (one for one in kept if one.state == "begun"):
                    require_kept(asset, charges, charge, books.highest_cap(name, charge.seq), run)
                require_consent(asset, charges, missing, run, now, again)
            taken = rules.shares(asset, charges, list(missing.values()), run, now.number)
            made = {
                index: writing.reserve(name, run, now.number, index, query, share, team)
                for (index, query), share in zip(missing.items(), taken, strict=True)
            }
            charge_of = {**now.kept, **made}
            used = tuple(charge_of[index] for index in range(len(planned)))
            lost = now.begun - {charge.id for charge in used}
            return Reservation(used, now.number, writing.replays(used), len(lost))

    def begin(self, charge: Charge, noise_fixed: bool = False, subject: str = "") -> None:
        """Write durably, before the first noise is drawn, that the query has begun: from here it is spent.

        Args:
            subject: digest of what the query is asked about.

        Raises:
            LedgerError: unless the charge is reserved and nothing has begun.
        """
        with self._store.write() as writing:
            writing.move(charge, "begin", noise_fixed=noise_fixed, subject=subject)

    def advance(self, charge: Charge, begun: int, steps: int) -> None:
        """Write durably, before their batches and noise are drawn, that `steps` more steps of a begun charge begin.

        Guarantee: over all attempts and processes, the steps that begin under one charge never pass the number that
        its event composes, because each is counted here first, whatever becomes of it. A run that stops early has
        used a part of what was charged.

        Raises:
            LedgerError: unless the charge and as many of its steps as the caller says have begun, or if it would pass
                the reserved number.
            ValueError: for less than one step.
        """
        validate.require_in_range(1, math.inf, steps=steps)
        if not isinstance(steps, int):
            raise ValueError(f"steps must be a whole number, got {steps!r}")
        with self._store.write() as writing:
            check_advance(charge, writing.require_movable(charge, "advance"), begun, steps)
            writing.move(charge, "advance", begun=begun + steps)

    def answer(self, charge: Charge, body: Any) -> None:
        """Store a query's noisy answer for good: rows are made from it again at no cost; its hash is in the chain."""
        text = json.dumps(body)
        with self._store.write() as writing:
            writing.move(charge, "answer", answer_hash=digest_of(text))
            writing.keep_answer(charge, text)

    def commit(self, reservation: Reservation) -> None:
        """Close a run whose outputs are complete. Its answers stay."""
        with self._store.write() as writing:
            for charge in reservation.charges:
                writing.move(charge, "commit")

    def find_answered(self, name: str, run: Run, planned: Sequence[PlannedQuery]) -> Reservation | None:
        """Return the newest run of this key with its answers, if it was committed and all are stored; else None.

        Guarantee: nothing is reserved. Its charges can begin nothing more, so a view on it replays what they paid for
        and asks nothing. Each of them pays for the query that is planned in its place, for the purpose of this run: a
        charge that says a cheaper event, or a reference, answers for no release.

        Raises:
            LedgerError: a stored answer is not the one that the chain has the hash of.
        """
        with self._store.write() as writing:
            own = rules.committed_charges(run.key, writing.books().charges(name))
            paid = rules.select_paying({charge.index: charge for charge in own}, planned, run)
            if not own or not len(own) == len(paid) == len(planned) or any(one.answer_hash is None for one in own):
                return None
            return Reservation(tuple(own), own[0].run, writing.replays(own))

    def refund(self, charges: Iterable[Charge]) -> int:
        """Give back what never began; what has begun stays charged for ever. Returns how many were given back.

        The caller must hold the run (`lock_run`); otherwise it could take back what another process is about to begin.
        """
        count = 0
        for charge in charges:
            with self._store.write() as writing:
                if writing.standing(charge).state in MOVES["refund"].before:
                    writing.move(charge, "refund")
                    count += 1
        return count


def _require_below(asset: Asset) -> None:
    if why := milestone_problem(asset.milestones, asset.filter, asset.epsilon):
        raise LedgerError(
            f"Asset {asset.name!r} cannot be registered: {why}.",
            "Correct privacy.budget.milestones in params.yaml.",
        )


def require_terms(known: Asset, wanted: Asset) -> None:
    """Raise LedgerError where an asset was registered on other terms than these."""
    require_unit(known, wanted)
    if fixed_terms(known) != fixed_terms(wanted):
        raise LedgerError(
            f"Asset {wanted.name!r} is registered with other terms: {describe_differences(known, wanted)}.",
            "Delta, unit, size, adjacency and milestones of a data asset never change once something was charged. "
            "Restore them in params.yaml; to change the budget's epsilon alone, use `palimpsest register --amend`.",
        )


def describe_differences(known: Asset, wanted: Asset) -> str:
    """Describe the terms in which two registrations of an asset differ."""
    before, now = fixed_terms(known), fixed_terms(wanted)
    names = [name for name in before | now if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {_format_term(before.get(name))}, not {_format_term(now.get(name))}" for name in names)


def _format_term(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
