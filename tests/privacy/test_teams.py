"""Caps of the teams that share an asset: each holds, and none admits what the asset's own cap refuses."""

from dataclasses import replace

import dp_accounting as dpa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.ledger.rules import balance, preview
from palimpsest.privacy.planned import PlannedQuery
from tests.machines import own_ledger

TEAMS = ("blue", "red")
EXACT = PlannedQuery("training", dpa.NonPrivateDpEvent())


def ask(ledger: Ledger, number: int, sigma: float, team: str | None, purpose: str = "release") -> bool:
    """Whether a run of its own was admitted."""
    query = EXACT if purpose == "reference" else PlannedQuery("votes", dpa.GaussianDpEvent(sigma))
    try:
        ledger.reserve("tickets", Run("fit", f"v{number}", purpose, "f", "p"), [query], team=team)
    except BudgetExceeded:
        return False
    return True


ASKED = st.lists(st.tuples(st.floats(1.5, 8.0), st.sampled_from(TEAMS)), min_size=1, max_size=8)


@settings(max_examples=12)
@given(filter=st.sampled_from(["renyi", "gdp"]), caps=st.tuples(st.floats(0.5, 5), st.floats(0.5, 5)), asked=ASKED)
def test_a_team_s_cap_holds_and_only_refuses_more(tmp_path_factory, filter, caps, asked):
    shared, free = (own_ledger(tmp_path_factory.mktemp(name)) for name in ("shared", "free"))
    for ledger in (shared, free):
        ledger.register(Asset("tickets", 1e-5, 4.0, 1000, filter=filter))
    for team, cap in zip(TEAMS, caps, strict=True):
        shared.cap_team("tickets", team, cap)
    for number, (sigma, team) in enumerate(asked):
        query = PlannedQuery("votes", dpa.GaussianDpEvent(sigma))
        told = preview(shared.asset("tickets"), shared.charges("tickets"), {("run", 1): [query]}, team)
        admitted = ask(shared, number, sigma, team)
        assert told.fits or not admitted
        if admitted:  # a plan said what it came to
            own = [charge for charge in shared.charges("tickets") if charge.team == team]
            assert told.spent == balance(replace(shared.asset("tickets"), epsilon=told.cap), own).spent
        if admitted:  # what was admitted with caps is admitted without them, on the same history
            assert ask(free, number, sigma, None)
    asset, charges = shared.asset("tickets"), shared.charges("tickets")
    assert balance(asset, charges).fits
    assert balance(asset, charges).spent == free.balance("tickets").spent
    for team, cap in asset.teams:
        assert balance(asset, [charge for charge in charges if charge.team == team]).spent <= cap


def test_a_run_that_would_pass_its_team_s_cap_is_refused_and_charges_nothing(ledger):
    ledger.cap_team("tickets", "blue", 1.0)
    ledger.cap_team("tickets", "red", 4.0)
    assert ledger.asset("tickets").teams == (("blue", 1.0), ("red", 4.0))
    head = ledger.head()
    assert not ask(ledger, 1, 3.0, "blue")
    assert ledger.head() == head
    assert ask(ledger, 1, 3.0, "red")
    assert [charge.team for charge in ledger.charges("tickets")] == ["red"]
    ledger.cap_team("tickets", "blue", 3.0)
    assert ask(ledger, 2, 3.0, "blue")


@pytest.mark.parametrize("team", [None, "green"])
def test_where_teams_share_an_asset_a_run_names_one_of_them(small, team):
    assert ask(small, 0, 9.0, team)
    small.cap_team("tickets", "blue", 1.0)
    with pytest.raises(LedgerError, match="is shared by the teams blue; this run names") as refused:
        ask(small, 1, 9.0, team)
    assert "PALIMPSEST_TEAM" in refused.value.remedy
    assert ask(small, 2, 9.0, team, purpose="reference")  # outside every total


@pytest.mark.parametrize(("team", "epsilon"), [("", 1.0), ("Blue!", 1.0), ("blue", 0.0), ("blue", float("nan"))])
def test_a_cap_that_is_none_is_refused(small, team, epsilon):
    with pytest.raises(LedgerError, match="cannot have a cap"):
        small.cap_team("tickets", team, epsilon)


def test_registering_again_keeps_the_teams(small, asset):
    small.cap_team("tickets", "blue", 1.0)
    assert small.register(asset).teams == (("blue", 1.0),)
    assert small.register(replace(asset, teams=())).teams == (("blue", 1.0),)
