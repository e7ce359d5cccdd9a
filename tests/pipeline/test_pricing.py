"""What is priced before a row is read: the demo's own file, in which a model and a variant share a name."""

import math
import subprocess
import sys
from pathlib import Path

from palimpsest.params.load import load, loads
from stages.spenders import Prices, spenders

ROOT = Path(__file__).resolve().parents[2]


def test_everything_that_the_demo_spends_has_a_price() -> None:
    params = loads((ROOT / "params.full.yaml").read_text(encoding="utf-8"))
    assert {"dp3", "inf"} <= set(params.lms) & set(params.variants)
    prices = Prices(params)
    for each in spenders(params):
        plan, (_, own_delta) = prices.plan_of(each.name), prices.total_charge(each.name)
        assert plan.queries
        assert math.isfinite(own_delta)


def test_a_discriminator_is_charged_behind_its_model() -> None:
    params = load(ROOT)
    behind = {each.name: each for each in spenders(params)}
    assert behind["judge3"].origin == "dp3"
    prices = Prices(params)
    event, _ = prices.total_charge("judge3")
    assert len(event.events) == sum(len(prices.plan_of(name).queries) for name in ("dp3", "judge3"))


PLANS = """
import math, sys
from dataclasses import replace
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.method import Basis
from palimpsest.params.load import load
from stages.spenders import Prices
from stages.spenders import spenders
params = load(sys.argv[1])
prices, planned = Prices(params), spenders(params)
assert all(prices.plan_of(each.name).queries for each in planned)
for method in METHODS:
    if method.name not in {each.method.name for each in planned}:
        budget = Budget(math.inf if method.name == "custext" else 6.0, params.delta)
        own = {"filters": {}, "token_epsilon": 3.0, "attributes": {"a": {"values": {"b": []}}}}  # what has no default
        given = {key: value for key, value in own.items() if key in method.settings.model_fields}
        schema = replace(params.schema_of_data, fields={"kind": ("one", "other")})
        method.plan(method.settings(**given), schema, budget, Basis(prices.total_charge("dp3")[0]))
heavy = {"torch", "transformers", "sklearn", "opendp", "pandas", "pyarrow", "numba", "sentence_transformers"}
print(sorted(heavy & set(sys.modules)))
"""


def test_the_plan_of_no_method_loads_what_trains_or_draws() -> None:
    done = subprocess.run([sys.executable, "-c", PLANS, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
