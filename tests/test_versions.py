"""What is asked is what its versions say: a query, a tool or a default that changes under one number fails here."""

import copy
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from dp_accounting.dp_event import DpEvent, GaussianDpEvent

from bench.versions import alike, asks, changed, raised
from palimpsest.methods.registry import METHODS
from palimpsest.params.load import load
from palimpsest.privacy import planned as versions
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.planned import QUERIES, TOOLS, PlannedQuery, Withdrawn, find_withdrawn, versions_of
from stages.spenders import Prices, spenders
from tests.behaviour import FILE, found

KEPT = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return dict(json.loads(json.dumps(found())))


def test_nothing_that_is_asked_changed_under_the_same_version(now: dict[str, Any]):
    """To mend it: raise a number in `palimpsest.privacy.planned`, then `python -m bench.versions --write`."""
    assert list(changed(KEPT, now)) == []
    assert raised(KEPT, now) == [], "write the file anew"
    assert KEPT["queries"].keys() == set(QUERIES)
    assert KEPT["tools"].keys() == set(TOOLS)


def test_a_changed_mechanism_asks(now: dict[str, Any]):
    """Wording asks, too: it is a question, and not an error."""
    if names := asks(KEPT, now):
        warnings.warn(
            f"{', '.join(names)} changed. Does it ask, release or charge anything else than before? Then raise a "
            "version; `python -m bench.versions --write` answers this question.",
            stacklevel=1,
        )


def _edit(place: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def edited(body: dict[str, Any]) -> None:
        for key in place[:-1]:
            body = body[key]
        body[place[-1]] = value

    return edited


@pytest.mark.parametrize(
    "edit",
    [
        _edit(("queries", "class_means", "cases", 0, "event", "noise_multiplier"), 1.9),
        _edit(("queries", "vote", "cases", 0, "noise", 0, 1), 1.0),
        _edit(("queries", "train", "cases", 0, "moved"), 0.4),
        _edit(("queries", "label_histogram", "cases", 0, "answers", "persons", 1), 9.0),
        _edit(("queries", "key_phrases", "cases", 0, "own_delta"), 0.1),
        _edit(("tools", "prompts", "makes", "praise"), []),
        _edit(("defaults", "predict", "micro_batch"), 1),
    ],
)
def test_a_change_is_seen_and_a_raised_version_lets_it_pass(edit: Callable[[dict[str, Any]], None]):
    other = copy.deepcopy(KEPT)
    edit(other)
    (told,) = changed(KEPT, other)
    name = told.partition(":")[0]
    if name in QUERIES:
        other["queries"][name]["versions"][name] += 1
    elif name in TOOLS:
        other["tools"][name]["version"] += 1
    else:
        return  # a default belongs to no number: the query that it changes what is asked of has one
    assert list(changed(KEPT, other)) == []
    assert raised(KEPT, other) == [name]


def test_last_bits_are_the_machines():
    assert alike({"a": [1.0, "x"]}, {"a": [1.00001, "x"]})
    assert not alike({"a": [1.0, "x"]}, {"a": [1.001, "x"]})
    assert not alike([0.0], [0.1])


def test_a_new_key_with_a_default_is_no_change():
    other = copy.deepcopy(KEPT)
    other["defaults"]["select"]["new"] = 3
    assert list(changed(KEPT, other)) == []


def test_every_query_of_every_plan_has_its_versions():
    params = load()
    prices = Prices(params)
    planned = [query for each in spenders(params) for query in prices.plan_of(each.name).queries]
    assert planned
    for query in planned:
        own = [name for name, _ in query.versions if name in QUERIES]
        assert len(own) == 1
        assert query.versions == versions_of(own[0])


def test_every_method_asks_a_query_that_is_declared():
    assert {name for query in QUERIES for name, _ in versions_of(query)} == {*QUERIES, *TOOLS}
    assert len(METHODS) == 15
    with pytest.raises(KeyError):
        versions_of("a query that nobody declared")


# Versions that are withdrawn.


def _half_the_noise(event: DpEvent) -> DpEvent:
    return GaussianDpEvent(event.noise_multiplier / 2) if isinstance(event, GaussianDpEvent) else event


WRONG = Withdrawn("class_means", 1, "Its noise was half of what was charged.", _half_the_noise)
MEANS = PlannedQuery("class_means", GaussianDpEvent(4.0), versions=versions_of("class_means"))
VOTE = PlannedQuery("vote", GaussianDpEvent(4.0), versions=versions_of("vote"))


@pytest.mark.parametrize("kind", ["renyi", "gdp"])
def test_a_charge_of_a_withdrawn_version_counts_at_what_it_cost(tmp_path, monkeypatch, kind: str):
    def spent(*planned: PlannedQuery) -> float:
        return ledger.reserve(name, Run("s", "v", "release", "f", str(planned)), planned) and ledger.balance(name).spent

    ledger, totals = Ledger.create(f"sqlite:///{tmp_path}/ledger.db"), []
    for name, planned in (
        ("wrong", MEANS),
        ("true", PlannedQuery("class_means", GaussianDpEvent(2.0))),
        ("other", VOTE),
    ):
        ledger.register(Asset(name, 1e-5, 9.0, 1000, filter=kind))
        totals.append(spent(planned))
    monkeypatch.setattr(versions, "WITHDRAWN", (WRONG,))
    wrong, true, other = (ledger.balance(name).spent for name in ("wrong", "true", "other"))
    assert wrong == pytest.approx(true, rel=1e-6)
    assert wrong > totals[0]
    assert (true, other) == tuple(totals[1:])


def test_a_version_is_withdrawn_by_its_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(versions, "WITHDRAWN", (WRONG,))
    assert find_withdrawn((("class_means", 1), ("encoder", 1))) == [WRONG]
    assert find_withdrawn((("class_means", 2), ("encoder", 1))) == []
    assert math.isfinite(versions.true_cost(GaussianDpEvent(4.0), (("class_means", 1),)).noise_multiplier)
    assert versions.true_cost(GaussianDpEvent(4.0), (("class_means", 2),)) == GaussianDpEvent(4.0)


def test_none_is_withdrawn_unseen():
    """A version that is withdrawn is not the one in use."""
    used = {name: number for query in QUERIES for name, number in versions_of(query)}
    assert [one for one in versions.WITHDRAWN if used.get(one.part) == one.version] == []
