"""With a unit column delta, rates, sizes and warnings follow from persons, and from records without one."""

import copy
import math
from typing import Any

import pytest

from palimpsest.errors import ParamsError
from palimpsest.methods.dp_lm.plan import training_plan
from palimpsest.params.load import parse
from palimpsest.params.schema import Params
from palimpsest.records.preprocess import audit_rate
from palimpsest.records.schema import default_delta
from tests.settings_file import demo

CONTENT = demo()
RECORDS, PERSONS = 10_000, 5_000
BATCH = CONTENT["lms"]["dp3"]["train"]["batch"]


def params(*, persons: int | None = PERSONS, delta: float | None = None, **changes: Any) -> Params:
    content = copy.deepcopy(CONTENT)
    content["run"]["audit"], content["release"]["variants"] = [], []
    for model in content["discriminators"].values():
        model["train"]["batch"] = min(model["train"]["batch"], persons or RECORDS)
    if persons is not None:
        content["dataset"]["unit"] |= {"column": "author", "max_rows": 4, "persons": persons}
    content["privacy"]["budget"]["delta"] = delta
    content["audit"]["size"] = min(content["audit"]["size"], persons or RECORDS)
    for section, values in changes.items():
        content[section] |= values
    return parse(content)


@pytest.mark.parametrize(("persons", "units"), [(None, RECORDS), (PERSONS, PERSONS), (RECORDS, RECORDS)])
def test_delta_is_the_default_of_so_many_units_and_at_most_one_over_them(persons: int | None, units: int) -> None:
    assert params(persons=persons).delta == default_delta(units)
    assert params(persons=persons, delta=1 / units).delta == 1 / units
    with pytest.raises(ParamsError, match=rf"at most 1 / n for the {units} "):
        params(persons=persons, delta=1.001 / units)


@pytest.mark.parametrize(("persons", "word"), [(None, "record"), (PERSONS, "person")])
def test_a_delta_that_publishing_one_unit_would_meet_is_flagged(persons: int | None, word: str) -> None:
    units = persons or RECORDS
    (flag,) = params(persons=persons, delta=1 / units).flags()
    assert f"1 / {units}: a mechanism that publishes all of one {word}" in flag
    assert params(persons=persons, delta=1 / (2 * units)).flags() == []


def test_the_audit_subset_is_of_persons() -> None:
    with pytest.raises(ParamsError, match="at most the 5000 persons declared"):
        params(audit={"size": PERSONS + 1})
    found = params(audit={"size": PERSONS})
    assert audit_rate(found.audit.size, found.schema_of_data.n_units) == 1.0


@pytest.mark.parametrize(("persons", "units"), [(None, RECORDS), (PERSONS, PERSONS)])
def test_a_training_samples_at_a_rate_of_units(persons: int | None, units: int) -> None:
    found = params(persons=persons)
    plan = training_plan(found.lms["dp3"].train, found.schema_of_data, 1.0)
    assert plan.rate == BATCH / units
    assert plan.divisor == BATCH
    assert math.isclose(plan.steps * plan.rate, found.lms["dp3"].train.epochs, rel_tol=0.01)


def test_no_batch_expects_more_persons_than_there_are() -> None:
    with pytest.raises(ParamsError, match=rf"train.batch is {BATCH}; allowed is at most the {BATCH - 1} persons"):
        params(persons=BATCH - 1)
