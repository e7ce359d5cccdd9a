"""`palimpsest sweep`: a variant for each point of a grid, priced as a whole, then run by the ordinary graph."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.cli.console import Rows, console, show
from palimpsest.cli.context import Context, open_workspace, render
from palimpsest.cli.graph import stage_names, standings
from palimpsest.cli.look import CHOICE, score_file, show_scores
from palimpsest.cli.plan import Priced, balance_after, predict_fingerprint, price_one
from palimpsest.cli.repro import STOPPED
from palimpsest.cli.run import hold_workspace, may_charge, run_workspace
from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.files import write_text
from palimpsest.graph.state import Standing, State
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.params.resolve import WAYS
from palimpsest.params.schema import Params
from palimpsest.params.sweep import Axis, Point, axis, marks, merge_sections, points
from palimpsest.params.text import flow, insert_entries
from palimpsest.privacy.ledger.records import Balance
from palimpsest.privacy.shown import delta_up, up
from palimpsest.progress import track
from palimpsest.report.formats import MISSING
from stages.spenders import Prices, spender
from stages.vouching import require_vouched

_EVALUATION = "downstream_eval"


@dataclass(frozen=True)
class Offer:
    """A point with what it would cost.

    Attributes:
        why: the reason why it is left out; empty if it can run.
        charges: the parts of it that ask private rows something.
        added: the epsilon that it adds to the data set's total, after the points before it.
    """

    point: Point
    why: str
    charges: tuple[Priced, ...] = ()
    added: float = 0.0


@dataclass(frozen=True)
class Sweep:
    """A grid, and the workspace to which it would be added.

    Attributes:
        text: params.yaml as it is.
        found: stage -> its state as it is.
    """

    context: Context
    variant: str
    text: str
    found: Mapping[str, Standing]

    @cached_property
    def written(self) -> dict[str, Any]:
        """params.yaml as a person wrote it."""
        return dict(YAML(typ="safe", pure=True).load(self.text))


def sweep(workspace: Path, variant: str, varied: Sequence[str], *, plan: bool, yes: bool) -> int:
    """Plan a grid, ask, write its points into params.yaml and run them; return the exit status.

    What is finished stays. A point that cannot run is named and left out; one that fails stops none of the others.

    Raises:
        PalimpsestError: no point can be made, nobody can be asked, or a run is at work.
    """
    with (
        nullcontext() if plan else hold_workspace(workspace)
    ):  # a run, or another sweep, reads the files that are written
        render(workspace)
        context = open_workspace(workspace)
        require_vouched(context.params, workspace)
        asked = Sweep(
            context, variant, (workspace / FILE).read_text(encoding="utf-8"),
            {one.name: one for one in standings(context, fresh=True)},
        )  # fmt: skip
        _require_all_run(asked)
        offers = _offers(asked, points(asked.written, variant, [_axis(text) for text in varied]))
        _show(asked, offers)
        if plan:
            return 0
        wanted = [offer.point for offer in offers if not offer.why]
        if not wanted:
            print("No point can run: nothing was charged, and params.yaml is as it was.")
            return 1
        if not _may_charge(sum(offer.added for offer in offers), yes=yes):
            print("Nothing ran, nothing was charged, and params.yaml is as it was.")
            return 1
        write_text(workspace / FILE, insert_points(asked, wanted))
        render(workspace)
    return _run(asked, wanted, yes=yes)


def _axis(text: str) -> Axis:
    """Read a key with its values; refuse values that params.yaml cannot hold."""
    try:
        found = axis(text)
        said = all(value == value for value in found.values)
    except TypeError:
        said = False
    if not said:
        raise ParamsError(f"{text!r} has NaN or a date among its values.", "Take numbers, and write a date in quotes.")
    return found


def _require_all_run(asked: Sweep) -> None:
    if (asked.written.get("runs") or {}).get("evaluate") is not None:
        raise ParamsError(
            f"runs.evaluate of {FILE} lists the variants that run, and a sweep adds some.",
            "Take runs.evaluate out: all variants run then.",
        )


def insert_points(asked: Sweep, wanted: Sequence[Point]) -> str:
    """Return params.yaml with these points and the note that a sweep made them.

    Raises:
        ParamsError: it has one of their names with other settings, or is written so that nothing can be added.
    """
    there = asked.written
    made: dict[str, Any] = {"sweeps": marks(wanted, asked.variant)}
    for point in wanted:
        made = merge_sections(made, point.settings)
    new = {key: _select_new(key, there.get(key) or {}, entries) for key, entries in made.items()}
    text = insert_entries(asked.text, new)
    if not _parses_to(text, merge_sections(there, {key: value for key, value in new.items() if value})):
        raise ParamsError(
            f"Points cannot be added to {FILE}: a section of it is written on one line in braces.",
            "Give each entry of variants, lms, discriminators and sweeps a line of its own.",
        )
    return text


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(YAML(typ="safe", pure=True).load(text) == wanted)
    except YAMLError:
        return False


def _select_new(section: str, there: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are not there yet."""
    other = [name for name in entries if section != "sweeps" and name in there and there[name] != entries[name]]
    if other:
        raise ParamsError(
            f"{section}.{other[0]} is there with other settings, and would be charged again with these.",
            "Rename it, or sweep other values.",
        )
    return {name: entry for name, entry in entries.items() if name not in there}


def _offers(asked: Sweep, grid: Sequence[Point]) -> list[Offer]:
    """Return what each point would cost after those before it. Reads no row."""
    refused = {point.name: _refusal(asked, point) for point in grid}
    params = loads(insert_points(asked, [point for point in grid if not refused[point.name]]))
    till = Till(asked, params)
    told = track(grid, name="price the points", total=len(grid), private=False, unit="point")
    return [Offer(point, why) if (why := refused[point.name]) else till.offer(point) for point in told]


def _refusal(asked: Sweep, point: Point) -> str:
    """Return why params.yaml cannot have a point; empty if it can."""
    try:
        params = loads(insert_points(asked, [point]))
        spender(params, params.run.dp_lm.get(point.name, point.name)).require_protection()
    except ParamsError as error:
        return error.problem
    return ""


class Till:
    """Prices points one after the other, each on top of those before it that fit."""

    def __init__(self, asked: Sweep, params: Params) -> None:
        self._asked, self._params, self._prices = asked, params, Prices(params)
        self._charges = asked.context.ledger.charges(asked.context.asset.name)
        self._rows = predict_fingerprint(asked.context, asked.found)
        self._items: dict[str, Priced] = {}
        self._total = balance_after(asked.context, [], self._charges).spent

    def offer(self, point: Point) -> Offer:
        """Return a point with what it would add; one that cannot run adds nothing."""
        try:
            own = self._price(point)
        except ParamsError as error:  # its sources leave nothing for the choice
            return Offer(point, error.problem)
        wanted, context = [*(self._items | own).values()], self._asked.context
        after = balance_after(context, wanted, self._charges)
        if why := _explain_infeasible(own) or _explain_excess(after):
            return Offer(point, why, tuple(own.values()))
        added, self._total = after.spent - self._total, after.spent
        self._items |= own
        return Offer(point, "", tuple(own.values()), added)

    def _price(self, point: Point) -> dict[str, Priced]:
        """Return all that a point asks of private rows: its own queries, and those of what it builds on."""
        charged = self._params.run.dp_lm.get(point.name, point.name)
        found = [spender(self._params, name) for name in self._prices.chain(charged)]
        return {each.stage: price_one(self._prices, each, self._asked.found, self._rows) for each in found}


def _explain_infeasible(own: Mapping[str, Priced]) -> str:
    notes = [f"{item.name}: {' '.join(item.plan.notes)}" for item in own.values() if not item.plan.feasible]
    return f"infeasible: {'; '.join(notes)}" if notes else ""


def _explain_excess(after: Balance) -> str:
    return "" if after.fits else f"does not fit: the total would be epsilon {up(after.spent)} of {after.cap:g}"


def _show(asked: Sweep, offers: Sequence[Offer]) -> None:
    keys = list(offers[0].point.values)
    rows = [
        [
            offer.point.name,
            *(flow(offer.point.values[key]) for key in keys),
            MISSING if offer.why else up(offer.added),
            _state(asked, offer),
        ]
        for offer in offers
    ]
    out, headings = console(), ("point", *keys, "adds epsilon", "state")
    show(out, Rows(f"Sweep of {asked.variant}: no row was read", headings, rows, ("point", *keys, "state")))
    for text in _sentences(asked, offers):
        out.print(text, markup=False, soft_wrap=True)


def _state(asked: Sweep, offer: Offer) -> str:
    if offer.why:
        return f"left out: {offer.why}"
    return "finished" if _is_finished(asked, offer.point) else "will run"


def _is_finished(asked: Sweep, point: Point) -> bool:
    standing = asked.found.get(f"{_EVALUATION}@{point.name}")
    return standing is not None and standing.state is State.CACHED


def _sentences(asked: Sweep, offers: Sequence[Offer]) -> Iterator[str]:
    asset, spent = asked.context.asset, asked.context.ledger.balance(asked.context.asset.name).spent
    added = sum(offer.added for offer in offers)
    open_offers = [offer for offer in offers if not offer.why]
    if any(item.pending and item.purpose == "release" for offer in open_offers for item in offer.charges):
        yield (
            f"{len(open_offers)} of {len(offers)} points fit. They add epsilon {up(added)}: the total of {asset.name} "
            f"goes from {up(spent)} to {up(spent + added)} of {asset.epsilon:g} at delta {delta_up(asset.delta)}."
        )
    elif open_offers:
        yield f"{len(open_offers)} of {len(offers)} points can run. They charge 0: private rows are asked nothing new."
    yield CHOICE


def _may_charge(added: float, *, yes: bool) -> bool:
    if yes or added <= 0.0:
        return True
    return may_charge("This sweep", f"epsilon {up(added)}", "Nothing was charged, and params.yaml is as it was.")


def _run(asked: Sweep, wanted: Sequence[Point], *, yes: bool) -> int:
    """Run the points one after the other and print their scores."""
    workspace, failed = asked.context.workspace, list[str]()
    for point in wanted:
        code = 0 if _is_finished(asked, point) else _run_point(workspace, point.name, yes)
        if code == STOPPED:
            return code
        failed += [point.name] if code else []
    if failed:
        print(f"Failed: {', '.join(failed)}. The same line again goes on; what is finished stays.", file=sys.stderr)
    if scored := [point.name for point in wanted if score_file(workspace, point.name).is_file()]:
        show_scores([workspace], scored)
    return int(bool(failed))


def _run_point(workspace: Path, name: str, yes: bool) -> int:
    context = open_workspace(workspace)
    try:
        return run_workspace(workspace, [_target(context.params, workspace, name)], ui=False, stay=False, yes=yes)
    except PalimpsestError as error:
        print(error.lines, file=sys.stderr)
        return 1


def _target(params: Params, workspace: Path, name: str) -> str:
    """Return the stage that evaluates a variant or, without one, the stage that writes its rows."""
    evaluation = f"{_EVALUATION}@{name}"
    if evaluation in stage_names(workspace):
        return evaluation
    drawn = name in params.run.dp_lm
    return f"{'pplm_generate' if drawn else WAYS[params.variants[name].method].stage}@{name}"
