"""The filter's promise, checked by the other accountant: what was admitted never composes above the cap."""

import math

import dp_accounting as dpa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import BudgetExceeded
from palimpsest.privacy import accounting
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import FILTERS, Asset, Run
from palimpsest.privacy.planned import PlannedQuery
from tests.machines import own_ledger

DELTA = 1e-5
GAUSSIANS = st.lists(st.floats(0.8, 30.0), min_size=1, max_size=8)
MIXTURE = [
    dpa.GaussianDpEvent(4.0),
    DiscreteGaussianDpEvent(6.0),
    dpa.LaplaceDpEvent(5.0),
    dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1)), 200),
    dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(3.0)), 50),
]


def admitted(ledger: Ledger, cap: float, events: list[dpa.DpEvent], counted: str) -> list[dpa.DpEvent]:
    """What an insistent client gets: each event asked in turn, refusals ignored."""
    name = f"asset{len(ledger.books().chain.keys)}"
    ledger.register(Asset(name, DELTA, cap, 1000, filter=counted))
    for number, event in enumerate(events):
        run = Run("fit", f"v{number}", "release", "f", "p")
        try:
            ledger.begin(ledger.reserve(name, run, [PlannedQuery("query", event)]).charges[0])
        except BudgetExceeded:
            continue
    assert ledger.balance(name).fits
    return [charge.event for charge in ledger.charges(name)]


@settings(max_examples=8, deadline=None)
@given(st.floats(0.2, 10.0), GAUSSIANS, st.sampled_from(FILTERS))
def test_admitted_gaussians_stay_within_the_exact_cap(tmp_path_factory, cap, sigmas, counted):
    ledger = own_ledger(tmp_path_factory.mktemp("filter"))
    passed = admitted(ledger, cap, [dpa.GaussianDpEvent(sigma) for sigma in sigmas], counted)
    mu = math.sqrt(sum(event.noise_multiplier**-2 for event in passed))
    assert not passed or accounting.gdp_epsilon(mu, DELTA) <= cap


@settings(max_examples=5, deadline=None)
@given(st.floats(0.5, 6.0), st.lists(st.sampled_from(MIXTURE), min_size=1, max_size=10), st.sampled_from(FILTERS))
def test_admitted_mixtures_stay_within_the_cap_by_loss_distributions(tmp_path_factory, cap, events, counted):
    ledger = own_ledger(tmp_path_factory.mktemp("filter"))
    passed = admitted(ledger, cap, events, counted)
    each = [dpa.SelfComposedDpEvent(event, passed.count(event)) for event in MIXTURE if event in passed]
    assert accounting.epsilon(dpa.ComposedDpEvent(each), DELTA) <= cap


@pytest.mark.parametrize(("counted", "part"), [("renyi", 0.6), ("gdp", 0.9)])
@pytest.mark.parametrize("cap", [1.0, 4.0, 10.0])
def test_the_filter_admits_a_good_part_of_the_cap(tmp_path, cap, counted, part):
    ledger = Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    passed = admitted(ledger, cap, [dpa.GaussianDpEvent(16.0 / cap)] * 20, counted)
    assert accounting.gdp_epsilon(math.sqrt(len(passed)) * cap / 16.0, DELTA) > part * cap
