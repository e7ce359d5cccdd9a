"""What is priced before a row is read: the demo's own file, in which a model and a variant share a name."""

import math
from pathlib import Path

from palimpsest.params.load import load
from stages.pricing import planned, whole
from stages.spenders import spenders

ROOT = Path(__file__).resolve().parents[2]


def test_everything_that_the_demo_spends_has_a_price() -> None:
    params = load(ROOT)
    assert {"dp3", "inf"} <= set(params.lms) & set(params.variants)
    for each in spenders(params):
        plan, (_, own_delta) = planned(params, each.name), whole(params, each.name)
        assert plan.queries
        assert math.isfinite(own_delta)


def test_a_discriminator_is_charged_behind_its_model() -> None:
    params = load(ROOT)
    behind = {each.name: each for each in spenders(params)}
    assert behind["judge3"].origin == "dp3"
    event, _ = whole(params, "judge3")
    assert len(event.events) == len(planned(params, "dp3").queries) + len(planned(params, "judge3").queries)
