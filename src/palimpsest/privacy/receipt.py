"""The receipt of a run: what it was charged and what that proves. Whoever relies on one asks it here.

A receipt names charges; the ledger has them. `Receipt.problems` recomputes all that a receipt says from the ledger's
own charges, and `Receipt.agreement` says whether the accountants contradict each other: one rule for `verify`, for the
gates of a release, for the statement and for whoever checks a release elsewhere.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dp_accounting as dpa

from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.privacy import accounting, assumptions, composition, events, forms, fourier
from palimpsest.privacy.accounting import NAMES
from palimpsest.privacy.ledger.filter import composed
from palimpsest.privacy.ledger.records import PURPOSES, STATES, UNITS, Asset, Charge
from palimpsest.privacy.planned import ADJACENCY
from palimpsest.workspace import INTERNAL, Zone

# How far the stated epsilon may be from what other accountants say. PLDs round up on a grid; RDP, a looser bound of the
# same, is never below them. Of the Fourier accountant both ends are bounds: the true epsilon is not below the lower one
# but for rounding, and the upper one counts its own error, of which a part is absolute.
ABOVE_RDP = 1e-3
ABOVE_LOW = 1e-6
BELOW_HIGH, BELOW_HIGH_BESIDE = 0.02, 1e-4
_WIDE, _WIDE_BESIDE = 0.015, 5e-5  # of both ends: farther apart, the upper one alone would be taken for a contradiction
_ROUNDING = 1e-6  # between a number and its recomputation
_KEPT = ("ledger_head", "seconds", "weights")  # what stays in the workspace: the last two tell of time and of a model
_OPTIONAL = ("plan", "weights")  # a model's receipt has weights, and what was planned is not said of every query


@dataclass(frozen=True)
class QueryLine:
    """One charge that a run rests on.

    Attributes:
        name: of the query.
        model: the model or variant that it was charged to.
        purpose: "release" or "reference".
        event: what it may have cost at most.
        own_delta: a delta that the event does not carry.
        partition: (scheme, cell) of a disjoint part of the data set; None for all of it.
        charge: its id in the ledger.
        state: where it stood.
    """

    name: str
    model: str
    purpose: str
    event: dpa.DpEvent
    own_delta: float
    partition: tuple[str, str] | None
    charge: str
    state: str

    def to_json(self) -> dict[str, Any]:
        """Its form in a file."""
        return forms.plain(self) | {"event": events.to_json(self.event)}


@dataclass(frozen=True)
class Group:
    """The epsilon for adding or removing `k` units of privacy at once; None where no finite one is proved.

    Where the unit is one record, they are the rows of somebody who has `k` of them. Where it is one person, they are
    `k` persons with all their rows.
    """

    k: int
    epsilon: float | None


@dataclass(frozen=True)
class Curve:
    """False-positive rates, and the least false-negative rate at each."""

    alpha: tuple[float, ...]
    beta: tuple[float, ...]


@dataclass(frozen=True)
class Receipt:
    """What a run was charged, and what that proves.

    Attributes:
        variant: whose rows it is about.
        model: the model that they are drawn from; the variant itself where there is none between.
        stage: what spent.
        method: how the rows are made.
        purpose: "release" or "reference".
        asset: the data set.
        epsilon_target: what was asked for; None for infinity.
        delta: of the data set.
        epsilon: proved by `accountant`; None where no finite one is, as for all epsilons here.
        epsilon_rdp: by RDP.
        accountant: "pld", "zcdp" or "rdp".
        unit: the unit of privacy of every epsilon, curve and charge here: "record" or "person".
        adjacency: "add_remove": what neighbours differ by is one unit more or less.
        queries: every charge that the rows rest on.
        group: epsilons for several units at once.
        curve: the trade-off curve of the events alone.
        ledger_head: hash of the ledger's newest entry after the run; "" in a receipt that was published.
        noise_fixed: whether a seed fixed the noise of any charge.
        run: 1 for the first run of this plan on this data, 2 when it was repeated, ...
        seconds: how long the run took; None in a receipt that was published.
        plan: public numbers of the plan; None where none were noted.
        weights: digest of the model's weights; None where the receipt is not a model's.
        assumptions: what had to be assumed of the machine, ids of `privacy.assumptions`, sorted.
    """

    variant: str
    model: str
    stage: str
    method: str
    purpose: str
    asset: str
    epsilon_target: float | None
    delta: float
    epsilon: float | None
    epsilon_rdp: float | None
    accountant: str
    unit: str
    adjacency: str
    queries: tuple[QueryLine, ...]
    group: tuple[Group, ...]
    curve: Curve
    ledger_head: str
    noise_fixed: bool
    run: int
    seconds: float | None
    plan: Mapping[str, Any] | None = None
    weights: str | None = None
    assumptions: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Any, *, published: bool = False, name: str = "A receipt") -> "Receipt":
        """The receipt in a document.

        Guarantee: nothing is taken for granted. A field that is missing, unknown or of another type is refused, so no
        document passes for a release's by leaving out that it is not.

        Args:
            published: whether it is the form that leaves, without `ledger_head`, `seconds` and `weights`.
            name: of the receipt, for the error.

        Raises:
            LedgerError: naming the field, not what it holds.
        """
        kinds = {key: kind for key, kind in _RECEIPT.items() if not (published and key in _KEPT)}
        try:
            found = forms.parsed(body, kinds, "", _OPTIONAL)
        except forms.Malformed as error:
            raise LedgerError(
                f"{name} is not a whole receipt: {error}.",
                "It was changed by hand, or another version wrote it. Make it again with `palimpsest run`.",
            ) from None
        return cls(**({"ledger_head": "", "seconds": None} | found if published else found))

    def to_json(self, *, published: bool = False) -> dict[str, Any]:
        """Its form in a file, or the form that leaves."""
        left_out = {name for name in (*_KEPT, *_OPTIONAL) if getattr(self, name) in (None, "")}
        left_out |= set(_KEPT) if published else set()
        body = forms.plain(self) | {
            "queries": [line.to_json() for line in self.queries],
            "group": [forms.plain(row) for row in self.group],
            "curve": forms.plain(self.curve),
        }
        return {key: value for key, value in body.items() if key not in left_out}

    @property
    def builds_on_reference(self) -> bool:
        """Whether any charge of it is outside the total."""
        return any(line.purpose != "release" for line in self.queries)

    @property
    def private(self) -> bool:
        """Whether rows under it may leave: a release's, with a finite epsilon, fresh noise and no reference below."""
        fresh = self.purpose == "release" and not self.noise_fixed and not self.builds_on_reference
        return fresh and self.epsilon is not None

    @property
    def zone(self) -> str:
        """The zone of the rows, and of what is computed from them and public files alone: "dp" or "internal"."""
        return Zone.DP if self.private else INTERNAL

    @property
    def claim(self) -> float | None:
        """The epsilon that an attack on the rows may refute; None of a reference, which claims nothing."""
        return self.epsilon if self.purpose == "release" else None

    @property
    def own_delta(self) -> float:
        """The deltas that no event carries, added up."""
        return sum(line.own_delta for line in self.queries)

    @property
    def charges(self) -> frozenset[str]:
        """The ids of its charges."""
        return frozenset(line.charge for line in self.queries)

    @property
    def stated_curve(self) -> Curve:
        """The curve of the whole run: that of its events, less the deltas that no event carries."""
        return Curve(self.curve.alpha, tuple(max(0.0, beta - self.own_delta) for beta in self.curve.beta))

    def second(self) -> fourier.Bracket | None:
        """Both ends of epsilon by the Fourier accountant, recomputed from the receipt's own events.

        None where it does not take a mechanism, or its ends are too far apart to say anything. They say something,
        however far apart, where the lower one is above the stated epsilon and the upper one finite. Both are infinite
        where the deltas that no event carries leave nothing of delta.
        """
        if self.epsilon is None:
            return None
        if self.own_delta >= self.delta:
            return fourier.Bracket(math.inf, math.inf)
        terms = [(line.event, line.partition) for line in self.queries]  # disjoint parts compose in parallel
        found = fourier.epsilon(composition.composed(terms), self.delta - self.own_delta)
        if found is None or math.isinf(found.high):
            return None
        wide = found.high - found.low > _WIDE * found.high + _WIDE_BESIDE
        return None if wide and found.low <= self.epsilon else found

    def agreement(self, second: fourier.Bracket | None) -> list[str]:
        """Where an accountant speaks against the stated epsilon; nothing where they agree.

        RDP is an opinion of its own only where it does not state the epsilon itself, and must not be below it. The
        Fourier accountant is tight: its lower end must not be above the stated epsilon at all, its upper end not by
        more than its own error.

        Args:
            second: what `second` returns.
        """
        found, name = [], self.accountant.upper()
        if self.accountant != "rdp":
            if self.epsilon is None or self.epsilon_rdp is None:
                found.append(f"{name} or RDP gives no finite epsilon")
            elif self.epsilon > self.epsilon_rdp * (1 + ABOVE_RDP):
                found.append(f"the two accountants disagree: {name} is above RDP")
        if self.epsilon is None or second is None:
            return found
        if second.low > self.epsilon * (1 + ABOVE_LOW):
            found.append(f"the Fourier accountant gives at least {second.low:.6f}, above the stated epsilon")
        if second.high > self.epsilon * (1 + BELOW_HIGH) + BELOW_HIGH_BESIDE:
            found.append(f"the Fourier accountant proves no less than {second.high:.6f}, above the stated epsilon")
        return found

    def problems(self, asset: Asset, charges: Sequence[Charge]) -> list[str]:
        """What does not hold in it, one sentence each: its terms, its charges, its epsilons and what follows from them.

        Guarantee: where there is none, the ledger covers the receipt: all was recomputed from the ledger's own charges,
        their partitions too; the receipt only names them. Its unit is the asset's, of which there is one for ever, so
        receipts that hold beside one ledger are all of one unit. Whether such rows may leave is `private`.

        Args:
            asset: the data set, as the ledger knows it.
            charges: all of its charges in the ledger, or those of an extract of it.
        """
        ledgered = {charge.id: charge for charge in charges}
        own = [ledgered[line.charge] for line in self.queries if line.charge in ledgered]
        if not own or len(own) < len(self.queries):
            return ["the ledger does not know a charge of it"]
        found = [*self._terms(asset, own), *self._lines(own)]
        if len(self.charges) < len(self.queries):
            found.append("it names a charge twice")
        runs = {(charge.run_key, charge.run) for charge in own}
        beside = {c.id for c in charges if (c.run_key, c.run) in runs and c.state == "committed"}
        if beside != self.charges:
            found.append("it does not list every charge of its runs")
        return [*found, *self._epsilons(asset, own)]

    def _terms(self, asset: Asset, own: Sequence[Charge]) -> Iterator[str]:
        last = own[-1]
        terms = {
            "model": last.variant,
            "stage": last.stage,
            "purpose": last.purpose,
            "run": last.run,
            "asset": asset.name,
            "delta": asset.delta,
            "unit": asset.unit,
            "adjacency": asset.adjacency,
            "noise_fixed": any(charge.noise_fixed for charge in own),
            "accountant": accounting.primary(composed(own)),
        }
        for field, value in terms.items():
            if getattr(self, field) != value:
                yield f"{field} must be {value!r}; the receipt says {getattr(self, field)!r}"

    def _lines(self, own: Sequence[Charge]) -> Iterator[str]:
        for line, charge in zip(self.queries, own, strict=True):
            if charge.state != "committed":
                yield f"charge {charge.id} is {charge.state}, not committed"
            said = line.name, line.model, line.purpose, line.event, line.own_delta, line.state
            if said != (charge.query, charge.variant, charge.purpose, charge.event, charge.own_delta, charge.state):
                yield f"charge {charge.id} has another name, model, purpose, event, delta or state in the ledger"
            if line.partition != charge.partition:
                yield f"charge {charge.id} is of another part of the data set in the ledger"
            if self.purpose == "release" and charge.purpose != "release":
                yield f"charge {charge.id} is of a reference run, outside the total; nothing released may build on it"

    def _epsilons(self, asset: Asset, own: Sequence[Charge]) -> Iterator[str]:
        event, beside = composed(own), sum(charge.own_delta for charge in own)
        if not accounting.is_private(event):
            if self.purpose == "release":
                yield "it is marked for release and adds no noise"
            return
        if beside >= asset.delta:
            yield "the deltas that no event carries leave nothing of delta"
            return
        for field, accountant in (("epsilon", accounting.primary(event)), ("epsilon_rdp", "rdp")):
            again = accounting.epsilon(event, asset.delta - beside, accountant)
            if not close(again, getattr(self, field)):
                yield f"{field} is {again:.6f} by the charges; the receipt says {getattr(self, field)}"
        groups = [accounting.group_epsilon(event, row.k, asset.delta, beside) for row in self.group]
        if not all(map(close, groups, (row.epsilon for row in self.group))):
            yield "the epsilons of its groups are others"
        alpha, beta = accounting.trade_off(event)
        if not (equal(alpha, self.curve.alpha) and equal(beta, self.curve.beta)):
            yield "its trade-off curve is another"
        limit = -math.inf if self.epsilon_target is None else self.epsilon_target * (1 + _ROUNDING)
        if self.epsilon is None or self.epsilon > limit:
            yield "its proved epsilon is above its target"
        yield from self.agreement(self.second())


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file.

    Raises:
        LedgerError: there is none, or it is not whole.
    """
    try:
        body = read_json(path)
    except (OSError, ValueError):
        raise LedgerError(
            f"The receipt {path.name!r} is missing or is not JSON: it was changed by hand.",
            "Make it again with `palimpsest run`.",
        ) from None
    return Receipt.from_json(body, name=f"The file {path.name!r}")


def equal(values: Sequence[float], said: Sequence[float]) -> bool:
    """Whether two lists are the same within rounding."""
    return len(values) == len(said) and all(map(close, values, said))


def close(value: float, said: float | None) -> bool:
    """The same within rounding; JSON holds no infinity, so None stands for it."""
    return math.isinf(value) if said is None else math.isclose(value, said, rel_tol=_ROUNDING, abs_tol=1e-12)


def _is_part(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value))


def _are_assumptions(value: Any) -> bool:
    known = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return known and value == [name for name in sorted(assumptions.KNOWN) if name in value]


def _is_plan(value: Any) -> bool:
    simple = (str, int, float, type(None))
    return isinstance(value, Mapping) and all(isinstance(item, simple) for item in value.values())


_EPSILON = forms.kind(lambda value: value is None or (forms.is_number(value) and value >= 0))
_QUERY: dict[str, forms.Kind] = {
    "name": forms.WORD,
    "model": forms.WORD,
    "purpose": forms.one_of(PURPOSES),
    "event": forms.kind(events.is_written, events.from_json),
    "own_delta": forms.SHARE,
    "partition": forms.kind(_is_part, lambda value: None if value is None else tuple(value)),
    "charge": forms.WORD,
    "state": forms.one_of(STATES),
}
_RECEIPT: dict[str, forms.Kind] = {
    **dict.fromkeys(("variant", "model", "stage", "method", "asset", "ledger_head", "weights"), forms.WORD),
    **dict.fromkeys(("epsilon_target", "epsilon", "epsilon_rdp"), _EPSILON),
    "purpose": forms.one_of(PURPOSES),
    "delta": forms.SHARE,
    "accountant": forms.one_of(tuple(NAMES)),
    "unit": forms.one_of(UNITS),
    "adjacency": forms.one_of((ADJACENCY,)),
    "queries": forms.list_of(forms.part_of(QueryLine, _QUERY)),
    "group": forms.list_of(forms.part_of(Group, {"k": forms.WHOLE, "epsilon": _EPSILON})),
    "curve": forms.part_of(Curve, {"alpha": forms.list_of(forms.SHARE), "beta": forms.list_of(forms.SHARE)}),
    "noise_fixed": forms.TRUTH,
    "run": forms.WHOLE,
    "seconds": forms.number(0.0),
    "plan": forms.kind(_is_plan, dict),
    "assumptions": forms.kind(_are_assumptions, tuple),
}
