"""The receipt of a run: what it was charged and what that proves. Everything that relies on a receipt checks it here.

A receipt names charges; the ledger has them. `Receipt.problems` recomputes all that a receipt says from the ledger's
own charges, and `Receipt.agreement` says whether the accountants contradict each other. The same rule serves `verify`,
the gates of a release, the statement and anybody who checks a release elsewhere.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import dp_accounting.dp_event as dpa
from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.privacy import accounting, events, fourier, planned
from palimpsest.privacy.accounting import NAMES
from palimpsest.privacy.ledger.records import PURPOSES, STATES, UNITS, Asset, Charge
from palimpsest.privacy.ledger.rules import compose_charges
from palimpsest.privacy.planned import ADJACENCY, find_withdrawn
from palimpsest.workspace import INTERNAL, Zone

GROUPS = (1, 2, 5, 10)  # units of privacy: records of one person, or persons where the person is the unit
# How far the stated epsilon may be from what other accountants say. RDP, a looser bound of the same, is below PLD by no
# more than the grid of PLD adds. Both ends of the Fourier accountant are bounds: the true epsilon is not below the
# lower one except for rounding, and the upper one counts its own error, a part of which is absolute.
ABOVE_RDP = 1e-3
ABOVE_LOW = 1e-6
BELOW_HIGH, BELOW_HIGH_BESIDE = 0.02, 1e-4
# Between the two ends: farther apart, the upper one by itself would be taken for a contradiction.
_WIDE, _WIDE_BESIDE = 0.015, 5e-5
_ROUNDING = 1e-6  # between a number and its recomputation
_KEPT = ("ledger_head", "seconds", "weights")  # these stay in the workspace: the last two tell of time and of a model
_OPTIONAL = ("plan", "weights")  # only a model's receipt has weights, and not every query notes its plan


def _require_that(holds: Callable[[Any], bool]) -> AfterValidator:
    def checked(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return AfterValidator(checked)


def _are_known(named: Sequence[str]) -> bool:
    return named == tuple(name for name in sorted(planned.ASSUMPTIONS) if name in named)


def _is_simple(plan: Mapping[str, Any]) -> bool:
    return all(isinstance(value, (str, int, float, type(None))) for value in plan.values())


# What a field of a receipt's document may hold.
Word = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Epsilon = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
Event = Annotated[dpa.DpEvent, PlainValidator(events.parse_strictly), PlainSerializer(events.to_json)]
_Purpose = Annotated[str, _require_that(PURPOSES.__contains__)]


class _Strict:
    """A dataclass that pydantic reads strictly: each field has its type, none is missing, none is unknown.

    Guarantee: nothing is taken for granted, so no document passes for another by what it leaves out. Errors name a
    field and never what it holds.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class QueryLine(_Strict):
    """One charge that a run rests on.

    Attributes:
        model: the model or variant that it was charged to.
        event: what it may have cost at most.
        own_delta: a delta that the event does not carry.
        partition: (scheme, cell) of a disjoint part of the data set; None for all of it.
        versions: of the query and the tools it used; see `privacy.planned`.
        charge: its id in the ledger.
    """

    name: Word
    model: Word
    purpose: _Purpose
    event: Event
    own_delta: Share
    partition: tuple[str, str] | None
    versions: Mapping[Word, Count]
    charge: Word
    state: Annotated[str, _require_that(STATES.__contains__)]

    @property
    def cell(self) -> tuple[str, str] | None:
        """The part and the model whose scheme it is: another model's scheme of that name may place units elsewhere."""
        return self.partition and (f"{self.model} {self.partition[0]}", self.partition[1])

    @classmethod
    def of(cls, charge: Charge) -> "QueryLine":
        """Return the line of a charge."""
        own = (charge.query, charge.variant, charge.purpose, charge.event, charge.own_delta, charge.partition)
        return cls(*own, versions=dict(charge.versions), charge=charge.id, state=charge.state)


@dataclass(frozen=True)
class Group(_Strict):
    """The epsilon for adding or removing `k` units of privacy at once; None where no finite one is proved.

    Where the unit is one record, the group is the rows of somebody who has `k` of them. Where it is one person, the
    group is `k` persons with all their rows.
    """

    k: Count
    epsilon: Epsilon


@dataclass(frozen=True)
class Curve(_Strict):
    """False-positive rates, and the least false-negative rate at each."""

    alpha: tuple[Share, ...]
    beta: tuple[Share, ...]


@dataclass(frozen=True, kw_only=True)
class Receipt(_Strict):
    """The charges of a run, and what they prove.

    Attributes:
        variant: the variant whose rows it is about.
        model: the model that the rows are drawn from; the variant itself where there is no model in between.
        epsilon_target: the epsilon that was asked for; None for infinity.
        epsilon: proved by `accountant`; None where no finite one is proved, as for all epsilons here.
        unit: the unit of privacy of every epsilon, curve and charge here.
        adjacency: the difference between neighbours: one unit more or less.
        queries: every charge that the rows rest on.
        curve: the trade-off curve of the events only.
        ledger_head: hash of the ledger's newest entry after the run; "" in a receipt that was published.
        noise_fixed: whether a seed fixed the noise of any charge.
        run: 1 for the first run of this plan on this data, 2 when it was repeated, ...
        seconds: how long the run took; None in a receipt that was published.
        plan: public numbers of the plan; None where none were noted.
        weights: digest of the model's weights; None where the receipt is not a model's.
        assumptions: the assumptions made about the machine, ids of `privacy.planned`, sorted.
    """

    variant: Word
    model: Word
    stage: Word
    method: Word
    purpose: _Purpose
    asset: Word
    epsilon_target: Epsilon
    delta: Share
    epsilon: Epsilon
    epsilon_rdp: Epsilon
    accountant: Annotated[str, _require_that(NAMES.__contains__)]
    unit: Annotated[str, _require_that(UNITS.__contains__)]
    adjacency: Annotated[str, _require_that(ADJACENCY.__eq__)]
    queries: tuple[QueryLine, ...]
    group: tuple[Group, ...]
    curve: Curve
    ledger_head: Word = ""
    noise_fixed: bool
    run: Count
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    plan: Annotated[Mapping[str, Any], _require_that(_is_simple)] | None = None
    weights: Word | None = None
    assumptions: Annotated[tuple[str, ...], _require_that(_are_known)] = ()

    @classmethod
    def from_json(cls, body: Any, *, published: bool = False, name: str = "A receipt") -> "Receipt":
        """Parse the receipt in a document.

        Guarantee: nothing is taken for granted. A field that is missing, unknown or of another type is refused, so no
        document passes for a release's by leaving out that it is not. What is `published` is the form that leaves,
        without `ledger_head`, `seconds` and `weights`.

        Raises:
            LedgerError: naming the field, not what it holds.
        """
        try:
            _check_names(body, published)
            return _RECEIPT.validate_json(json.dumps(body))
        except ValueError as error:
            raise LedgerError(
                f"{name} is not a whole receipt: {_describe_error(error)}.",
                "It was changed by hand, or another version wrote it. Make it again with `palimpsest run`.",
            ) from None

    def to_json(self, *, published: bool = False) -> dict[str, Any]:
        """Return the receipt's form in a file, or the published form."""
        left_out = {name for name in (*_KEPT, *_OPTIONAL) if getattr(self, name) in (None, "")}
        left_out |= set(_KEPT) if published else set()
        body: dict[str, Any] = _RECEIPT.dump_python(self, mode="json", warnings=False)
        return {key: value for key, value in body.items() if key not in left_out}

    @property
    def builds_on_reference(self) -> bool:
        """Whether one of its queries was asked for a reference."""
        return any(line.purpose != "release" for line in self.queries)

    @property
    def private(self) -> bool:
        """Whether rows under it may leave: it is a release of finite epsilon, fresh noise and no reference below."""
        fresh = self.purpose == "release" and not self.noise_fixed and not self.builds_on_reference
        return fresh and self.epsilon is not None

    @property
    def zone(self) -> str:
        """The zone of the rows, and of what is computed only from them and public files: "dp" or "internal"."""
        return Zone.DP if self.private else INTERNAL

    @property
    def claim(self) -> float | None:
        """The epsilon that an attack on the rows may refute; None for a reference, which claims nothing."""
        return self.epsilon if self.purpose == "release" else None

    @property
    def own_delta(self) -> float:
        """The deltas of its queries that no event carries, added up."""
        return sum(line.own_delta for line in self.queries)

    @property
    def charges(self) -> frozenset[str]:
        """The ids of its charges in the ledger."""
        return frozenset(line.charge for line in self.queries)

    @property
    def stated_curve(self) -> Curve:
        """The curve of the whole run: the curve of its events, less the deltas that no event carries."""
        return Curve(self.curve.alpha, tuple(max(0.0, beta - self.own_delta) for beta in self.curve.beta))

    def recompute_epsilon(self) -> fourier.Bracket | None:
        """Recompute both ends of epsilon by the Fourier accountant from the receipt's own events.

        None where it does not take a mechanism, or its ends are too far apart to say anything. However far apart, they
        say something where the lower one is above the stated epsilon and the upper one is finite. Both are infinite
        where the deltas that no event carries leave nothing of delta.
        """
        if self.epsilon is None:
            return None
        if self.own_delta >= self.delta:
            return fourier.Bracket(math.inf, math.inf)
        terms = [(line.event, line.cell) for line in self.queries]  # disjoint parts compose in parallel
        bracket = fourier.epsilon(events.compose_terms(terms), self.delta - self.own_delta)
        if bracket is None or math.isinf(bracket.high):
            return None
        wide = bracket.high - bracket.low > _WIDE * bracket.high + _WIDE_BESIDE
        return None if wide and bracket.low <= self.epsilon else bracket

    def agreement(self, second: fourier.Bracket | None) -> list[str]:
        """Return where an accountant contradicts the stated epsilon; empty where they agree.

        RDP is a second opinion only where it does not state the epsilon itself, and must not be below it. The
        Fourier accountant is tight: its lower end must not be above the stated epsilon at all, its upper end not by
        more than its own error.
        """
        against, name = [], self.accountant.upper()
        if self.accountant != "rdp":
            if self.epsilon is None or self.epsilon_rdp is None:
                against.append(f"{name} or RDP gives no finite epsilon")
            elif self.epsilon > self.epsilon_rdp * (1 + ABOVE_RDP) + self._grid_error:
                against.append(f"the two accountants disagree: {name} is above RDP")
        if self.epsilon is None or second is None:
            return against
        if second.low > self.epsilon * (1 + ABOVE_LOW):
            against.append(f"the Fourier accountant gives at least {second.low:.6f}, above the stated epsilon")
        if second.high > self.epsilon * (1 + BELOW_HIGH) + BELOW_HIGH_BESIDE:
            against.append(f"the Fourier accountant proves no less than {second.high:.6f}, above the stated epsilon")
        return against

    @property
    def _grid_error(self) -> float:
        """The most that the grid of losses may have added to the stated epsilon; infinite where PLD takes the worst
        interval of each choice of bounded range, which RDP need not."""
        if self.accountant != "pld":
            return 0.0
        terms = [(line.event, line.cell) for line in self.queries]
        return accounting.grid_error(events.compose_terms(terms), max(self.delta - self.own_delta, math.ulp(0.0)))

    def problems(self, asset: Asset, charges: Sequence[Charge]) -> list[str]:
        """List what does not hold in the receipt, one sentence each: its terms, charges, epsilons and what they imply.
        `charges` are all charges of the asset, in the ledger or in an extract of it.

        Guarantee: where there is none, the ledger covers the receipt: all was recomputed from the ledger's own charges,
        their partitions too; the receipt only names them. Its unit is the asset's, of which there is one for ever, so
        receipts that hold beside one ledger are all of one unit. Whether such rows may leave is `private`.
        """
        ledgered = {charge.id: charge for charge in charges}
        own = [ledgered[line.charge] for line in self.queries if line.charge in ledgered]
        if not own or len(own) < len(self.queries):
            return ["the ledger does not know a charge of it"]
        wrong = [*_other_terms(self, stated_fields(asset, own)), *_other_lines(self, own)]
        if len(self.charges) < len(self.queries):
            wrong.append("it names a charge twice")
        runs = {(charge.run_key, charge.run) for charge in own}
        beside = {c.id for c in charges if (c.run_key, c.run) in runs and c.state == "committed"}
        if beside != self.charges:
            wrong.append("it does not list every charge of its runs")
        return [*wrong, *_other_epsilons(self, asset, own), *_describe_withdrawn(own)]


_RECEIPT = TypeAdapter(Receipt)


def stated_fields(asset: Asset, own: Sequence[Charge]) -> dict[str, Any]:
    """Return the receipt's fields, epsilons apart, that follow from the asset and the charges, the run's own last."""
    last = own[-1]
    return {
        "model": last.variant,
        "stage": last.stage,
        "purpose": last.purpose,
        "run": last.run,
        "asset": asset.name,
        "delta": asset.delta,
        "unit": asset.unit,
        "adjacency": asset.adjacency,
        "noise_fixed": any(charge.noise_fixed for charge in own),
        "accountant": accounting.primary_accountant(compose_charges(own)),
    }


def _describe_withdrawn(own: Iterable[Charge]) -> Iterator[str]:
    """Yield the versions that were withdrawn since: they cost something else than they were charged."""
    found = dict.fromkeys(one for charge in own for one in find_withdrawn(charge.versions))
    yield from (f"version {one.version} of {one.part} was withdrawn: {one.why}" for one in found)


def _other_terms(receipt: Receipt, terms: Mapping[str, Any]) -> Iterator[str]:
    for field, value in terms.items():
        if getattr(receipt, field) != value:
            yield f"{field} must be {value!r}; the receipt says {getattr(receipt, field)!r}"


def _other_lines(receipt: Receipt, own: Sequence[Charge]) -> Iterator[str]:
    for line, charge in zip(receipt.queries, own, strict=True):
        if charge.state != "committed":
            yield f"charge {charge.id} is {charge.state}, not committed"
        if replace(line, partition=charge.partition) != QueryLine.of(charge):
            yield f"charge {charge.id} has another name, model, purpose, event, delta or state in the ledger"
        if line.partition != charge.partition:
            yield f"charge {charge.id} is of another part of the data set in the ledger"
        if receipt.purpose == "release" and charge.purpose != "release":
            yield f"charge {charge.id} is of a reference run, outside the total; nothing released may build on it"


def _other_epsilons(receipt: Receipt, asset: Asset, own: Sequence[Charge]) -> Iterator[str]:
    event, beside = compose_charges(own), sum(charge.own_delta for charge in own)
    if not accounting.is_private(event):
        if receipt.purpose == "release":
            yield "it is marked for release and adds no noise"
        return
    if beside >= asset.delta:
        yield "the deltas that no event carries leave nothing of delta"
        return
    for field, accountant in (("epsilon", accounting.primary_accountant(event)), ("epsilon_rdp", "rdp")):
        again = accounting.epsilon(event, asset.delta - beside, accountant)
        if not is_close(again, getattr(receipt, field)):
            yield f"{field} is {again:.6f} by the charges; the receipt says {getattr(receipt, field)}"
    groups = [accounting.group_epsilon(event, row.k, asset.delta, beside) for row in receipt.group]
    if not all(map(is_close, groups, (row.epsilon for row in receipt.group))):
        yield "the epsilons of its groups are others"
    alpha, beta = accounting.trade_off(event)
    if not (are_close(alpha, receipt.curve.alpha) and are_close(beta, receipt.curve.beta)):
        yield "its trade-off curve is another"
    limit = -math.inf if receipt.epsilon_target is None else receipt.epsilon_target * (1 + _ROUNDING)
    if receipt.epsilon is None or receipt.epsilon > limit:
        yield "its proved epsilon is above its target"
    yield from receipt.agreement(receipt.recompute_epsilon())


def read_receipt(path: Path) -> Receipt:
    """Read the receipt in a file.

    Raises:
        LedgerError: there is no receipt, or it is not whole.
    """
    try:
        body = read_json(path)
    except (OSError, ValueError):
        raise LedgerError(
            f"The receipt {path.name!r} is missing or is not JSON.",
            "Make it again with `palimpsest run`.",
        ) from None
    return Receipt.from_json(body, name=f"The file {path.name!r}")


def are_close(values: Sequence[float], said: Sequence[float]) -> bool:
    """Return whether two lists are equal within rounding."""
    return len(values) == len(said) and all(map(is_close, values, said))


def is_close(value: float, said: float | None) -> bool:
    """Return whether two numbers are equal within rounding; JSON holds no infinity, so None stands for it."""
    return math.isinf(value) if said is None else math.isclose(value, said, rel_tol=_ROUNDING, abs_tol=1e-12)


def _check_names(body: Any, published: bool) -> None:
    """Raise ValueError for a field that the form does not have, lacks, or has as null."""
    if not isinstance(body, Mapping):
        raise ValueError("it is no object")
    may_lack = {*_OPTIONAL, *(_KEPT if published else ())}
    for name in (field.name for field in fields(Receipt)):
        if name not in body and name not in may_lack:
            raise ValueError(f"field {name} is missing")
        if published and name in body and name in _KEPT:
            raise ValueError(f"field {name} is not known")
        if name in (*_KEPT, *_OPTIONAL) and body.get(name, "") is None:
            raise ValueError(f"field {name} has another form than it may have")


def _describe_error(error: ValueError) -> str:
    """Describe an error by the name of the field and not by what it holds."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(part for part in first["loc"] if isinstance(part, str))
    what = {"missing": "is missing", "unexpected_keyword_argument": "is not known"}.get(first["type"])
    return f"field {place} {what or 'has another form than it may have'}"
