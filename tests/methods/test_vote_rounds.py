"""What holds for every method that votes in rounds, whether it evolves texts or embeddings."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest

from palimpsest.errors import LedgerError, OtherSubject, ParamsError
from palimpsest.methods.embed.plan import plan as plan_embed
from palimpsest.methods.evolve.plan import plan as plan_evolve
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.rounds import ask_rounds
from palimpsest.privacy.accounting import epsilon, gdp_epsilon, is_private
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.votes import Ballot, DomainBallot, Slate, VoteRounds
from palimpsest.records.schema import PublicSchema, default_delta
from tests.methods.embed import embedding
from tests.methods.embed.test_embed import embed
from tests.methods.evolve import evolving
from tests.methods.evolve.test_evolve import evolve

BUDGET = Budget(20.0, 1e-3)
SIGMAS = {
    1_939_290: {1.0: 15.4045, 2.0: 8.0389, 4.0: 4.2451},
    8_396: {1.0: 11.5998, 2.0: 6.2107, 4.0: 3.3743},
    75_316: {1.0: 13.2506, 2.0: 7.0010, 4.0: 3.7493},
}


@dataclass(frozen=True)
class World:
    """A method, its small world, and how an attempt is made there as the stage makes it."""

    world: Any
    planned: Callable[..., Plan]
    settings: Callable[..., Any]
    means: Any
    attempt: Callable[..., Any]
    selection: Any = None

    def plan(self, budget: Budget, schema: PublicSchema | None = None, **changes: Any) -> Plan:
        own = {} if self.selection is None else {"selection": self.selection}
        return self.planned(self.settings(**own, **changes), schema or self.world.schema_of(), budget)


def texts(ledger: Ledger, **changes: Any) -> Any:
    return evolve(ledger, evolving.Writer(), **changes)


TEXTS = World(evolving, plan_evolve, evolving.evolve_settings, evolving.STEERING, texts)
EMBEDDINGS = World(embedding, plan_embed, embedding.embed_settings, embedding.AIM, embed)
LIMITED = replace(EMBEDDINGS, selection=embedding.LIMITED)
GAUSSIAN = pytest.mark.parametrize("world", [TEXTS, EMBEDDINGS], ids=["texts", "embeddings"])
EVERY = pytest.mark.parametrize("world", [TEXTS, EMBEDDINGS, LIMITED], ids=["texts", "embeddings", "limited domain"])


# What a plan costs.


@GAUSSIAN
@pytest.mark.parametrize(
    ("n_public", "target"), [(n_public, target) for n_public in SIGMAS for target in SIGMAS[n_public]]
)
def test_the_noise_of_ten_rounds_is_that_of_the_table(world: World, n_public: int, target: float) -> None:
    plan = world.plan(Budget(target, default_delta(n_public)), world.world.schema_of(n_public), rounds=10)
    assert round(float(plan.numbers["sigma"]), 4) == SIGMAS[n_public][target]


@EVERY
@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
@pytest.mark.parametrize(("n_public", "target"), [(1_939_290, 1.0), (8_396, 4.0), (1_000_000, 0.05)])
def test_a_plan_spends_its_budget_and_no_more(world: World, n_public, target, label_counts, means) -> None:
    schema, delta = world.world.schema_of(n_public), min(1e-3, default_delta(n_public))
    changes = {"rounds": 5, "label_counts": label_counts, "class_means": world.means if means else None}
    plan = world.plan(Budget(target, delta), schema, **changes)
    assert target * (1 - 2e-3) <= epsilon(plan.event, delta - plan.own_delta) <= target
    names = ["label_histogram"] * (label_counts == "noisy") + ["class_means"] * means
    assert [query.name for query in plan.queries] == [*names, "vote rounds"]
    assert [query.steps for query in plan.queries] == [None] * len(names) + [5]
    assert [query.own_delta for query in plan.queries[:-1]] == [0.0] * len(names)


@GAUSSIAN
@pytest.mark.parametrize("budget", [BUDGET, Budget(1.0, 1e-3)])
def test_class_means_take_their_share_of_the_budget(world: World, budget: Budget) -> None:
    plan = world.plan(budget, class_means=world.means, rounds=4)
    means, rounds = float(plan.numbers["means_sigma"]), float(plan.numbers["sigma"])
    assert plan.queries[0].event == dpa.GaussianDpEvent(means)
    assert plan.queries[1].event == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(rounds), 4)
    assert means**-2 / (means**-2 + 4 * rounds**-2) == pytest.approx(0.25, rel=2e-3)
    assert gdp_epsilon(math.sqrt(means**-2 + 4 * rounds**-2), budget.delta) == pytest.approx(budget.epsilon, rel=1e-3)


@GAUSSIAN
def test_a_histogram_is_not_asked_for_where_there_is_one_label(world: World) -> None:
    plan = world.plan(BUDGET, world.world.schema_of(labels={}), label_counts="noisy")
    assert [query.name for query in plan.queries] == ["vote rounds"]


@pytest.mark.parametrize(
    ("world", "changes"),
    [
        *((TEXTS, changes) for changes in ({"votes": {"neighbours": 9}}, {"expand": 1}, {"look_ahead": 4})),
        *((EMBEDDINGS, changes) for changes in ({"parents": 2}, {"offspring": 99}, {"rows": 90})),
        (EMBEDDINGS, {"selection": {"kind": "gaussian", "neighbours": 9}}),
        (TEXTS, {"rows": 900}),
    ],
)
def test_gaussian_noise_depends_on_rounds_alone(world: World, changes: dict[str, Any]) -> None:
    assert world.plan(BUDGET, **changes).numbers["sigma"] == world.plan(BUDGET).numbers["sigma"]


@EVERY
@pytest.mark.parametrize("means", [False, True])
def test_a_reference_adds_no_noise(world: World, means: bool) -> None:
    plan = world.plan(Budget(math.inf, 1e-3), class_means=world.means if means else None, label_counts="noisy")
    assert not any(is_private(query.event) for query in plan.queries)
    assert plan.queries[-1].event == dpa.SelfComposedDpEvent(dpa.NonPrivateDpEvent(), 3)
    assert (plan.own_delta, plan.feasible, plan.notes) == (0.0, True, ())
    assert plan.numbers.get("sigma", 0) == 0


@GAUSSIAN
@pytest.mark.parametrize(
    ("means", "changes", "schema", "problem"),
    [
        (False, {}, {"task": "span", "label": "label", "labels": {}}, "free label"),
        (True, {}, {"task": "text", "label": None, "labels": {}}, "two labels"),
        (True, {}, {"labels": {"refund": ""}}, "two labels"),
        (False, {"prior": {"refund": 1.0}}, {}, "does not name the public labels"),
        (False, {"rows": 1}, {}, "fewer than the 2 labels"),
    ],
)
def test_settings_that_do_not_fit_the_schema_are_refused(world: World, means, changes, schema, problem) -> None:
    changes = changes | ({"class_means": world.means} if means else {})
    with pytest.raises(ParamsError, match=problem):
        world.plan(BUDGET, replace(world.world.schema_of(), **schema), **changes)


# Attempts that are stopped.


@EVERY
def test_all_rounds_lost_are_an_error_that_says_what_to_do(world: World, tmp_path: Path, monkeypatch) -> None:
    ledger = world.world.new_ledger(tmp_path)
    own = {} if world.selection is None else {"selection": world.selection}

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DomainBallot if own else Ballot, "held", stopped)
            with pytest.raises(KeyboardInterrupt):
                world.attempt(ledger, folder=tmp_path / "kept", **own)
    with pytest.raises(LedgerError, match="Every round of votes was begun"):
        world.attempt(ledger, folder=tmp_path / "kept", **own)
    assert [(charge.state, charge.steps_begun) for charge in ledger.charges("tickets")] == [("begun", 3)]


@GAUSSIAN
def test_without_a_folder_nothing_is_written(world: World, tmp_path: Path) -> None:
    world.attempt(world.world.new_ledger(tmp_path))
    assert all(path.name.startswith("ledger") for path in tmp_path.iterdir())


# Rounds that were paid for, and are replayed.


@dataclass(frozen=True)
class Told:
    """A view that answers with rounds of before."""

    rounds: list[dict[str, Any]]

    def ask(self, _query: Any) -> list[dict[str, Any]]:
        return self.rounds


@pytest.mark.parametrize("moved", [False, True])
def test_rounds_over_other_candidates_are_not_replayed(moved: bool) -> None:
    """Candidates that are no texts come of what our code makes of the answers before them."""
    slates = [Slate({}, {"refund": np.full((2, 3), float(turn))}) for turn in range(2)]
    rounds = [{"texts": {}, "counts": {"refund": [1, 0]}, "slate": one.digest} for one in slates]
    second = Slate({}, {"refund": np.full((2, 3), 1.5)}) if moved else slates[1]
    query = VoteRounds(Ballot(len, 1, 1.0), ("refund",), slates[0], lambda _done: second, 2)  # type: ignore[arg-type]
    if moved:
        with pytest.raises(OtherSubject, match="candidates of round 2"):
            ask_rounds(Told(rounds), query)
    else:
        assert [one.slate for one in ask_rounds(Told(rounds), query)] == [one.digest for one in slates]
