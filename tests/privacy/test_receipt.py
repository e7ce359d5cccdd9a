"""Receipts: what is no whole one is refused, what the ledger does not have is found, accountants have one rule."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest

from palimpsest.errors import LedgerError
from palimpsest.files import write_json
from palimpsest.privacy import receipt as module
from palimpsest.privacy.accounting import gdp_epsilon
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.fourier import Bracket
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.privacy.session import Session, receipt
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.receipts import a_line, a_receipt

WHOLE = a_receipt(plan={"sigma": 4.0, "steps": 3}, weights="ab" * 32, assumptions=("batch-bits", "logit-rounding"))
PLACES = ("", "queries", "group", "curve")
LEFT_OUT = ("plan", "weights")
SCHEMA = PublicSchema("tickets", "text", "body", n_public=1000, max_length=100)


def of(body: dict[str, Any], place: str) -> dict[str, Any]:
    """The object at a place of a receipt's document."""
    part = body[place] if place else body
    return dict.__getitem__(body, place)[0] if isinstance(part, list) else part


def names(place: str) -> list[str]:
    return list(of(WHOLE.to_json(), place))


FIELDS = [(place, name) for place in PLACES for name in names(place)]


@pytest.mark.parametrize("published", [False, True])
def test_a_receipt_comes_back_from_its_file(published: bool):
    body = json.loads(json.dumps(WHOLE.to_json(published=published)))
    found = Receipt.from_json(body, published=published)
    kept = {"ledger_head": "", "seconds": None, "weights": None} if published else {}
    assert found == replace(WHOLE, **kept)
    assert found.to_json(published=published) == body
    assert list(body) == [field.name for field in fields(Receipt) if field.name not in kept]


@pytest.mark.parametrize(("place", "name"), [one for one in FIELDS if one[1] not in LEFT_OUT])
def test_a_field_that_is_missing_is_named(place: str, name: str):
    body = copy.deepcopy(WHOLE.to_json())
    del of(body, place)[name]
    with pytest.raises(LedgerError, match=rf"field {place}\.?{name} is missing") as caught:
        Receipt.from_json(body)
    assert "palimpsest run" in caught.value.remedy


@pytest.mark.parametrize("place", PLACES)
def test_a_field_that_is_not_known_is_named(place: str):
    body = copy.deepcopy(WHOLE.to_json())
    of(body, place)["note"] = "a row's text"
    with pytest.raises(LedgerError, match=rf"field {place}\.?note is not known") as caught:
        Receipt.from_json(body)
    assert "a row's text" not in str(caught.value)


@pytest.mark.parametrize(("place", "name"), FIELDS)
@pytest.mark.parametrize("value", [[["a row's text"]], {"a": [1]}, math.nan])
def test_a_field_of_another_type_is_named_and_not_told(place: str, name: str, value: Any):
    body = copy.deepcopy(WHOLE.to_json())
    of(body, place)[name] = value
    with pytest.raises(LedgerError, match=rf"field {place}\.?{name}") as caught:
        Receipt.from_json(body)
    assert "a row's text" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("", "purpose", "Release"),
        ("", "purpose", ""),
        ("curve", "alpha", [0.0, math.nan, 1.0]),
        ("queries", "purpose", "released"),
        ("queries", "state", "done"),
        ("", "accountant", "best"),
        ("", "adjacency", "replace_one"),
        ("", "noise_fixed", 0),
        ("", "noise_fixed", None),
        ("", "epsilon", -1.0),
        ("", "epsilon", True),
        ("", "delta", 2.0),
        ("", "ledger_head", ""),
        ("", "run", 0),
        ("queries", "own_delta", -1e-9),
        ("queries", "partition", ["batch"]),
        ("queries", "event", {"type": "ZCDpEvent", "rho": 0.03, "xi": 0, "more": 1}),
        ("queries", "event", {"type": "ZCDpEvent", "rho": "0.03", "xi": 0}),
        ("queries", "event", {"type": "Nothing"}),
        ("group", "k", 1.5),
        ("curve", "beta", [1.0, 2.0, 0.0]),
    ],
)
def test_a_value_that_may_not_be_is_refused(place: str, name: str, value: Any):
    body = copy.deepcopy(WHOLE.to_json())
    of(body, place)[name] = value
    with pytest.raises(LedgerError, match=name):
        Receipt.from_json(body)


@pytest.mark.parametrize(
    "named", [["none such"], ["logit-rounding", "batch-bits"], ["batch-bits", "batch-bits"], "batch-bits", [1], None]
)
def test_an_assumption_is_one_of_a_list_named_once_and_in_order(named: Any):
    with pytest.raises(LedgerError, match="field assumptions has another form"):
        Receipt.from_json(WHOLE.to_json() | {"assumptions": named})


def test_what_was_published_tells_neither_time_nor_weights():
    assert {"ledger_head", "seconds", "weights"}.isdisjoint(WHOLE.to_json(published=True))
    with pytest.raises(LedgerError, match="ledger_head is not known"):
        Receipt.from_json(WHOLE.to_json(), published=True)
    with pytest.raises(LedgerError, match="ledger_head is missing"):
        Receipt.from_json(WHOLE.to_json(published=True))


@pytest.mark.parametrize("text", [None, "{", "[]", "null"])
def test_a_file_without_a_receipt_is_refused(tmp_path: Path, text: str | None):
    path = tmp_path / "dp3.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LedgerError, match=r"dp3\.json"):
        read_receipt(path)
    write_json(path, WHOLE.to_json())
    assert read_receipt(path) == WHOLE


# Which rows may leave.


@pytest.mark.parametrize(
    ("changes", "private"),
    [
        ({}, True),
        ({"purpose": "reference"}, False),
        ({"noise_fixed": True}, False),
        ({"epsilon": None}, False),
        ({"queries": (a_line(), a_line("b", purpose="reference"))}, False),
    ],
)
def test_rows_leave_with_fresh_noise_and_no_reference_below(changes: dict[str, Any], private: bool):
    found = a_receipt(**changes)
    assert (found.private, found.zone) == (private, "dp" if private else "internal")


def test_a_reference_claims_nothing():
    assert (a_receipt().claim, a_receipt(purpose="reference").claim) == (2.98, None)


# Do the accountants agree?


@pytest.mark.parametrize(
    ("changes", "second", "agree"),
    [
        ({"epsilon_rdp": 2.98}, None, True),
        ({"epsilon_rdp": 2.98 / 1.0009}, None, True),
        ({"epsilon_rdp": 2.98 / 1.0011}, None, False),
        ({"epsilon_rdp": None}, None, False),
        ({"epsilon": None}, None, False),
        ({"accountant": "rdp", "epsilon_rdp": 1.0}, None, True),
        ({}, Bracket(2.9, 2.98), True),
        ({}, Bracket(2.98 * (1 + 9e-7), 2.99), True),
        ({}, Bracket(2.98 * (1 + 2e-6), 2.99), False),
        ({}, Bracket(2.9, 2.98 * 1.02), True),
        ({}, Bracket(2.9, 2.98 * 1.02 + 2e-4), False),
        ({"epsilon": 0.0}, Bracket(0.0, 9e-5), True),
        ({"epsilon": 0.0}, Bracket(0.0, 2e-4), False),
    ],
)
def test_an_accountant_that_speaks_against_the_epsilon_is_heard(
    changes: dict[str, Any], second: Bracket | None, agree: bool
):
    assert (a_receipt(**changes).agreement(second) == []) is agree


def test_what_a_grid_adds_to_very_many_counts_is_no_contradiction():
    """Losses narrower than the grid: PLD is above RDP there, and both hold."""
    event = dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(10_000.0), 10**6)
    many = a_receipt(accountant="pld", queries=(a_line(event=event),), epsilon=0.4310, epsilon_rdp=0.4299)
    assert many.agreement(None) == []
    assert replace(many, epsilon=0.8).agreement(None) != []
    assert replace(many, accountant="zcdp").agreement(None) != []
    few = replace(many, queries=(a_line(event=dpa.GaussianDpEvent(10.0)),))
    assert few.agreement(None) != []


def test_there_is_one_set_of_tolerances():
    assert (module.ABOVE_RDP, module.ABOVE_LOW, module.BELOW_HIGH, module.BELOW_HIGH_BESIDE) == (1e-3, 1e-6, 0.02, 1e-4)


def test_the_second_opinion_composes_what_the_receipt_lists():
    lines = tuple(a_line(f"{i}", event=dpa.GaussianDpEvent(2.0), partition=("batch", str(i))) for i in range(3))
    parts = a_receipt(epsilon=2.0, queries=lines)
    whole = replace(parts, queries=tuple(replace(line, partition=None) for line in lines))
    own = replace(parts, queries=(replace(lines[0], own_delta=5e-6),))
    for found, mu, delta in ((parts, 0.5, 1e-5), (whole, 0.5 * math.sqrt(3), 1e-5), (own, 0.5, 5e-6)):
        bracket = found.recompute_epsilon()
        assert bracket is not None
        assert bracket.low <= gdp_epsilon(mu, delta) <= bracket.high
        assert bracket.high == pytest.approx(gdp_epsilon(mu, delta), rel=3e-3)
    others = (lines[0], replace(lines[1], model="another"))  # a record may be in the first part of both
    bracket = replace(parts, queries=others).recompute_epsilon()
    assert bracket is not None
    assert bracket.low <= gdp_epsilon(0.5 * math.sqrt(2), 1e-5) <= bracket.high
    assert replace(parts, epsilon=None).recompute_epsilon() is None
    assert replace(own, delta=5e-6).agreement(replace(own, delta=5e-6).recompute_epsilon())


def test_ends_too_far_apart_are_no_second_opinion_but_a_proof_is():
    steps = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(2000.0), 4_000_000)  # true epsilon 4.89, lower end 4.24
    found = a_receipt(delta=1e-6, queries=(a_line(event=steps),))
    assert replace(found, epsilon=4.9).recompute_epsilon() is None
    wrong = replace(found, epsilon=4.0).recompute_epsilon()
    assert wrong is not None
    assert wrong.low > 4.0
    endless = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(1e-6, dpa.GaussianDpEvent(1.0)), 50_000_000)
    assert a_receipt(delta=1e-6, epsilon=0.3, queries=(a_line(event=endless),)).recompute_epsilon() is None


def test_a_contradiction_is_a_problem_of_the_receipt(small: Ledger, run: Callable[..., Run], monkeypatch):
    """Another accountant's word counts wherever a receipt is relied on."""
    reservation = small.reserve("tickets", run(), [PlannedQuery("counts", dpa.GaussianDpEvent(8.0))])
    small.begin(reservation.charges[0])
    small.commit(reservation)
    asset, (charge,) = small.asset("tickets"), small.charges("tickets")
    view = PrivateView([], SCHEMA, small, reservation, NoiseSource())
    found = receipt(small, asset, Session(reservation, 0.0, view), method="select", target=3.0)
    assert found.problems(asset, [charge]) == []
    assert found.recompute_epsilon() is not None
    monkeypatch.setattr(Receipt, "recompute_epsilon", lambda _: Bracket(2.0, 2.1))
    assert any("Fourier" in problem for problem in found.problems(asset, [charge]))
    monkeypatch.undo()
    for change, told in (
        ({"queries": found.queries * 2}, "names a charge twice"),
        ({"queries": (replace(found.queries[0], purpose="reference"),)}, "another name, model, purpose"),
        ({"noise_fixed": True}, "noise_fixed must be False"),
        ({"epsilon": 0.5}, "by the charges"),
        ({"epsilon_target": None}, "above its target"),
        ({"queries": ()}, "does not know a charge"),
    ):
        assert any(told in problem for problem in replace(found, **change).problems(asset, [charge])), told
    assert any("every charge of its runs" in p for p in found.problems(asset, [charge, replace(charge, id="b")]))
