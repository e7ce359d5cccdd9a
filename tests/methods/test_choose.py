"""`choose`: one charged look says whose rows are taken; its epsilon counts all variants that it is among."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest
from ruamel.yaml import YAML

from palimpsest.errors import DataError, ParamsError
from palimpsest.graph.expand import expand
from palimpsest.graph.render import document, features, find_authored
from palimpsest.methods.choose.declaration import ChooseSettings
from palimpsest.methods.choose.fit import Choose, classifier
from palimpsest.methods.choose.fit import plan as planned
from palimpsest.methods.shared.base import Budget
from palimpsest.params.load import loads
from palimpsest.params.resolve import to_plain
from palimpsest.params.schema import Params
from palimpsest.privacy.accounting import epsilon
from palimpsest.privacy.choice import Choice
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import compose_terms
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.shown import up
from palimpsest.records.record import Record
from stages.spenders import Prices, spender

ROOT = Path(__file__).resolve().parents[2]
DELTA = 1e-3
BEFORE = dpa.ComposedDpEvent([dpa.GaussianDpEvent(4.0), dpa.GaussianDpEvent(3.0)])
GOOD = [Record("money back", "refund"), Record("my money", "refund"), Record("server down", "outage")] * 4
SWAPPED = [replace(row, label={"refund": "outage", "outage": "refund"}[str(row.label)]) for row in GOOD]
MEMBERS = [PrivateRow("give money", "refund"), PrivateRow("a server", "outage")] * 20
TEXTS = ["money", "down", "unheard", "", "server money money", "back"]


@dataclass
class Told:
    """A view that answers and remembers what it was asked."""

    asked: list[Choice] = field(default_factory=list)

    def ask(self, query: Any) -> Any:
        self.asked.append(query)
        return query.run(MEMBERS, NoiseSource())


def chooser(target: float, rows: Mapping[str, Sequence[Record]] | None = None) -> Choose:
    both = {"bad": SWAPPED, "good": GOOD}
    return Choose(ChooseSettings(), planned(Budget(target, DELTA), BEFORE), both if rows is None else rows)


def test_one_query_is_asked_and_the_rows_of_the_best_are_taken():
    fit, view = chooser(3.0), Told()
    made = fit.made(fit.ask(view))
    assert [(query.name, query.event()) for query in view.asked] == [
        (query.name, query.event) for query in fit.plan.queries
    ]
    assert (list(made.rows), made.drawn, made.told) == (GOOD, len(GOOD), {"chosen": "good"})


def test_what_is_told_of_a_choice_is_a_name_alone():
    assert set(chooser(3.0).made("bad").told) == {"chosen"}


@pytest.mark.parametrize("target", [1.5, 3.0])
def test_all_variants_and_the_choice_meet_the_budget(target):
    plan = planned(Budget(target, DELTA), BEFORE)
    whole = epsilon(dpa.ComposedDpEvent([BEFORE, plan.event]), DELTA)
    assert 0.99 * target < whole <= target


def test_a_budget_that_the_variants_use_up_is_refused_with_what_they_cost():
    spent = epsilon(dpa.ComposedDpEvent([BEFORE, dpa.ZCDpEvent(1e-12)]), DELTA)
    with pytest.raises(ParamsError, match=f"cost epsilon {up(spent)} together"):
        planned(Budget(0.99 * spent, DELTA), BEFORE)
    with pytest.raises(ParamsError, match="not private"):
        planned(Budget(3.0, DELTA), dpa.NonPrivateDpEvent())


def test_without_a_bound_the_best_is_taken_exactly():
    fit, view = chooser(math.inf), Told()
    assert fit.ask(view) == "good"
    assert view.asked[0].event() == dpa.NonPrivateDpEvent()


def test_a_variant_without_rows_is_named():
    with pytest.raises(DataError, match="no row of empty"):
        chooser(3.0, {"empty": [], "good": GOOD})


def test_a_text_is_given_its_label_whatever_comes_with_it():
    learned = classifier(GOOD, 2)
    alone = [learned([text])[0] for text in TEXTS]
    assert list(learned(TEXTS)) == alone
    assert list(learned(TEXTS[::-1])) == alone[::-1]
    assert learned([]) == []
    assert alone[:2] == ["refund", "outage"]


@pytest.mark.parametrize("rows", [[Record("money", "refund")], [Record("!", "refund"), Record("?", "refund")]])
def test_where_there_is_nothing_to_learn_every_text_gets_the_usual_label(rows):
    assert classifier(rows, 2)(TEXTS) == ["refund"] * len(TEXTS)


# What params.yaml may name, what dvc.yaml lists and what is priced.


def demo(**variants: Mapping[str, Any]) -> Params:
    """The demo's own file at its full size, with further variants."""
    text = (ROOT / "params.full.yaml").read_text(encoding="utf-8")
    body = YAML(typ="safe", pure=True).load(text)
    body["variants"] |= variants
    stream = StringIO()
    YAML().dump(body, stream)
    return loads(stream.getvalue())


def best(*names: str, epsilon: float = 8.0) -> dict[str, Any]:
    return {"method": "choose", "epsilon": epsilon, "from": list(names)}


def test_its_stage_reads_the_rows_and_the_receipt_of_each_and_no_other():
    params = demo(best=best("select3", "predict3"), all=best("select3", "predict3", "dp3", epsilon=9.0))
    graph = document(features(params), find_authored(params))["stages"]
    deps = {one.name: set(one.paths("deps")) for one in expand(graph, to_plain(params)) if one.stage == "choose"}
    for name, among in (("best", {"select3", "predict3"}), ("all", {"select3", "predict3", "dp3"})):
        read = {path for path in deps[f"choose@{name}"] if path.startswith(("data/synthetic", "reports/receipts"))}
        rows = {f"data/synthetic/{one}.parquet" for one in among}
        assert read == rows | {f"reports/receipts/{one}.json" for one in among}


def test_it_is_charged_behind_each_of_them_and_a_shared_model_once():
    other = {"method": "dp_lm", "from": "judge3", "variant": "filter", "best_of": 2}
    params = demo(other=other, best=best("dp3", "other", "select3"))
    chain = Prices(params).chain("best")
    assert chain[-1] == "best"
    assert sorted(set(chain)) == sorted(chain)
    assert {"dp3", "select3"} < set(chain)
    assert spender(params, "best").origins == ("dp3", "other", "select3")


@pytest.mark.parametrize("changes", [{"together": 1024}, {"batch_size": 48}])
def test_variants_that_cut_the_rows_otherwise_are_planned_as_they_are_charged(changes):
    """The cells of a partition are one variant's: those of two add up, whatever their numbers."""
    predict3 = {"method": "predict", "epsilon": 3.0, "from": "taught/similar", "prompt": {"text_tokens": 32}}
    params = demo(other=predict3 | {"together": 2048} | changes, best=best("predict3", "other"))
    prices = Prices(params)
    charged = [
        (query.event, query.partition and (f"run {name} {query.partition[0]}", query.partition[1]))
        for name in ("predict3", "other", "best")
        for query in prices.plan_of(name).queries
    ]
    both, _ = prices.total_charge("best")
    assert epsilon(both, params.delta) == pytest.approx(epsilon(compose_terms(charged), params.delta))
    assert epsilon(both, params.delta) <= 8.0 * (1 + 1e-6)
    assert epsilon(compose_terms(charged[:-1]), params.delta) > 1.3 * epsilon(
        prices.total_charge("predict3")[0], params.delta
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (best("select3"), "two or more variants"),
        (best("select3", "select3"), "two or more variants"),
        (best("select3", "nobody"), "'nobody'"),
        (best("select3", "best"), "'best'"),
        (best("select3", "inf"), "meant for release, but its source 'inf' is not"),
        (best("select3", "dp3", epsilon=3.0), "allowed is more than that"),
        ({**best(), "from": "select3"}, "is no list"),
        ({"method": "select", "epsilon": 1.0, "from": ["dp3"]}, "is a list"),
    ],
)
def test_what_it_is_among_must_be_there_and_meant_for_it(row, words):
    with pytest.raises(ParamsError) as caught:
        demo(best=row)
    assert words in str(caught.value)
