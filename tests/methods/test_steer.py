"""`steer`: one look at noisy means of hidden states; the model that they move writes, and what it writes is free."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import ClassSums
from palimpsest.methods.steer.declaration import STEER, SteerSettings
from palimpsest.methods.steer.fit import Moved, Space, Steer, Voice, estimate_kept, lift
from palimpsest.privacy.accounting import epsilon, gdp_epsilon, is_private
from palimpsest.privacy.means import GRID, ClassMeans, class_steps
from palimpsest.privacy.rows import PrivateRow
from tests.methods.encoders import Apart, encoding
from tests.methods.two_classes import NAMES, two_class_records

BUDGET = Budget(3.0, 1e-3)


def settings_of(**changes: object) -> SteerSettings:
    """Small settings without a histogram; keyword arguments replace them."""
    told = {
        "rows": 8, "label_counts": "prior", "max_tokens": 20, "side_by_side": 6, "pilot": 4, "pool": 2,
        "strengths": (1.0, 4.0), "filters": {"chain": ()},
    }  # fmt: skip
    return SteerSettings.model_validate({**told, **changes})


def planned(schema, budget: Budget = BUDGET, **changes: object) -> Plan:
    return STEER.plan(settings_of(**changes), schema, budget, None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def voice(base: Path, schema) -> Voice:
    return Voice(settings_of(), base, schema.labels, 5)


@pytest.fixture
def steer(schema, voice: Voice) -> Callable[..., Steer]:
    states = encoding(lambda texts: voice.reader.encode_batch(list(texts)), voice.reader.dimension)
    return lambda plan, **changes: Steer(settings_of(**changes), schema, plan, voice, states)


# Plans.


@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
@pytest.mark.parametrize("target", [0.5, 3.0])
def test_plan_spends_the_budget_and_no_more(schema, label_counts, target):
    plan = planned(schema, Budget(target, 1e-3), label_counts=label_counts)
    looks = ["class_means", "class_means"]
    assert [query.name for query in plan.queries] == ["label_histogram"] * (label_counts == "noisy") + looks
    assert 0.99 * target <= epsilon(plan.event, 1e-3) <= target
    if label_counts == "prior":
        whole = math.hypot(1.0 / float(plan.numbers["sigma"]), 1.0 / float(plan.numbers["first_sigma"]))
        assert 0.99999 * target <= gdp_epsilon(whole, 1e-3) <= target


def test_the_first_look_takes_its_share(schema):
    numbers = planned(schema, first=0.25).numbers
    assert (float(numbers["sigma"]) / float(numbers["first_sigma"])) ** 2 == pytest.approx(1 / 3)


def test_one_label_is_refused(schema):
    with pytest.raises(ParamsError, match="steer needs two labels"):
        planned(replace(schema, labels={"only": ""}))


# What is asked.


def test_private_texts_are_read_by_themselves(schema, voice: Voice):
    apart, plan = Apart(), planned(schema)
    states = apart.encoding(lambda texts: voice.reader.encode_batch(list(texts)), voice.reader.dimension)

    class Reads:
        def ask(self, query: ClassMeans) -> list[list[float]]:
            query.encode(["a private text"])
            return [[0.5] * query.dimensions for _ in query.labels]

    Steer(settings_of(), schema, plan, voice, states).ask(Reads())
    assert apart.holds(["a private text"])


def test_each_look_moves_by_at_most_one_unit_whatever_the_model_makes_of_a_text(schema, steer):
    """Sums of lifted deviations: with a text more, all of them together move by at most length 1, exactly."""
    asked: list[ClassMeans] = []

    class Noting:
        def ask(self, query: ClassMeans) -> list[list[float]]:
            asked.append(query)
            return [[0.5 * len(asked)] * query.dimensions for _ in query.labels]

    steer(planned(schema)).ask(Noting())
    records = two_class_records()
    for query in asked:
        for text in ("", "x", "The lamp is great. " * 9, records[0].text):
            more = [*records[:6], replace(records[0], text=text)]
            vectors = [query.encode([record.text]) for record in more]
            classes = [query.labels.index(record.label or "") for record in more]
            both = (class_steps(np.concatenate(vectors[:n]), classes[:n], len(NAMES)) for n in (6, 7))
            assert np.linalg.norm(np.subtract(*both)) <= GRID
    assert len(asked) == 2
    assert not np.allclose(asked[0].encode(["x"]), asked[1].encode(["x"]))  # the second is around the first's answer


@given(
    arrays(np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True) | st.floats(-2, 2)),
)
def test_lifted_deviations_have_length_one_and_keep_what_is_shorter(deviations):
    found = lift(deviations)
    for own, given_one in zip(found, deviations, strict=True):
        length = np.linalg.norm(given_one)
        if not np.isfinite(length):
            assert not own.any()
            continue
        assert np.linalg.norm(own) == pytest.approx(1.0)
        assert np.allclose(own[:-1], given_one if length <= 1 else given_one / length)


def test_noise_is_fresh_and_what_is_made_is_free(schema, steer, open_view, ledger):
    plan, found = planned(schema), []
    for _ in range(2):
        with open_view(plan, "release") as view:
            found.append(steer(plan).ask(view))
    assert not np.array_equal(found[0].sums.sums, found[1].sums.sums)
    assert not np.array_equal(found[0].mean, found[1].mean)
    assert np.array_equal(found[0].own, found[1].own)  # the model by itself: public
    charged = ledger.charges("tiny")
    made = [steer(plan).made(found[0]) for _ in range(2)]
    assert made[0].rows == made[1].rows
    assert ledger.charges("tiny") == charged


def test_a_reference_is_not_private(schema):
    assert not is_private(planned(schema, Budget(math.inf, 1e-3)).event)


# What is made.


@pytest.fixture(scope="module")
def exact(schema, voice: Voice) -> Moved:
    """What a reference run is told."""
    states = encoding(lambda texts: voice.reader.encode_batch(list(texts)), voice.reader.dimension)
    plan = planned(schema, Budget(math.inf, 1e-3))

    class Exact:
        def ask(self, query: ClassMeans) -> object:
            rows = [PrivateRow(record.text, record.label) for record in two_class_records()]
            return query.run(rows, Silent())

    return Steer(settings_of(), schema, plan, voice, states).ask(Exact())


class Silent:
    """No noise."""

    def whole_normal(self, size: int, _std: float) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


def test_a_moved_model_writes_what_lies_nearer_to_the_private_rows(schema, steer, voice, exact):
    plan = planned(schema, Budget(math.inf, 1e-3))
    many = replace(exact, counts=dict.fromkeys(NAMES, 20))
    made = steer(plan, strengths=(0.25, 0.5, 1.0), pilot=20, pool=1).made(many)
    assert min(made.told["strengths"].values()) > 0.0
    for label, own in zip(NAMES, exact.own, strict=True):
        texts = [row.text for row in made.rows if row.label == label]
        found = exact.space.deviations(voice.reader.encode_batch(texts)).mean(axis=0)
        assert np.linalg.norm(found - exact.mean) < np.linalg.norm(own - exact.mean)


def test_states_in_halves_are_near_and_have_a_memory_of_their_own(base: Path, schema, voice: Voice) -> None:
    half, texts = Voice(settings_of(precision="bf16"), base, schema.labels, 5), ["superb stay", "awful", "the end"]
    states, wanted = (one.reader.encode_batch(texts) for one in (half, voice))
    assert 0.0 < np.abs(states - wanted).max() < 0.05 * np.abs(wanted).max()
    assert half.told != voice.told
    assert all(half.texts("praise", range(3), np.ones(voice.reader.dimension)))


def test_strength_zero_is_kept_where_the_model_is_there_already(schema, steer, exact):
    plan = planned(schema, Budget(math.inf, 1e-3))
    there = replace(exact, own=np.stack([exact.mean] * 2), sums=ClassSums(NAMES, np.zeros_like(exact.sums.sums)))
    assert steer(plan).made(there).told["strengths"] == dict.fromkeys(NAMES, 0.0)


def test_one_strength_is_taken_as_it_is_and_a_pool_of_one_keeps_all(schema, steer, exact):
    plan = planned(schema, Budget(math.inf, 1e-3))
    made = steer(plan, strengths=(2.0,), pool=1).made(exact)
    assert made.told["strengths"] == dict.fromkeys(NAMES, 2.0)
    assert len(made.rows) == made.drawn  # no filter, and no choice


def test_a_difference_that_is_all_noise_moves_nothing():
    noise = np.random.default_rng(0).normal(size=400)
    assert estimate_kept(noise, 1.1) == 0.0
    assert estimate_kept(noise, 0.0) == 1.0
    assert estimate_kept(np.zeros(4), 1.0) == 0.0
    assert estimate_kept(10 * noise, 1.0) == pytest.approx(0.99, abs=0.01)


def test_a_space_brings_states_to_deviations_and_back():
    states = np.random.default_rng(1).normal(3.0, [0.1, 5.0, 100.0], size=(200, 3))
    space = Space.of(states)
    deviations = space.deviations(states)
    assert np.allclose(deviations.mean(axis=0), 0.0, atol=1e-9)
    assert np.median(np.linalg.norm(deviations, axis=1)) == pytest.approx(1 / 1.5)
    assert np.allclose(states[0] + space.shift(deviations[1] - deviations[0]), states[1])
    assert np.allclose(space.centre_at(deviations[1]).deviations(states)[1], 0.0)


def test_a_coordinate_that_never_varies_does_no_harm():
    states = np.random.default_rng(1).normal(size=(20, 3)) * [1.0, 0.0, 1.0]
    assert np.isfinite(Space.of(states).deviations(states)).all()


def test_a_prompt_that_leaves_no_room_is_refused(base, schema):
    with pytest.raises(ModelError, match="leave no room"):
        Voice(settings_of(prompt="word " * 60), base, schema.labels, 5).texts("praise", range(2))


def test_texts_are_those_of_their_numbers(voice):
    whole = voice.texts("praise", range(6))
    assert voice.texts("praise", range(3, 6)) == whole[3:]
    assert voice.texts("a complaint", range(6)) != whole
