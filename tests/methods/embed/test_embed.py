"""Evolution of embeddings: what is asked, what follows from the answers, and what is written down in the end."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palimpsest.errors import BackendError, DataError, LedgerError
from palimpsest.methods.embed.declaration import Eda
from palimpsest.methods.embed.fit import (
    Embed,
    EvolvedEmbeddings,
    choose_at_random,
    choose_by_description,
    choose_by_sums,
    result_of,
    select_distinct,
)
from palimpsest.methods.embed.plan import plan as planned
from palimpsest.methods.embed.steps import EmbedSteps, Generation, VectorWriter, gaussian
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.privacy import votes
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.votes import Ballot, DomainBallot, Round
from tests.methods.embed.embedding import (
    AIM,
    LABELS,
    LIMITED,
    PUBLIC,
    READABLE,
    ROWS,
    SECRET,
    THINGS,
    Nearest,
    Speller,
    Spelt,
    descriptions,
    embed_settings,
    encode,
    losses,
    new_ledger,
    opened,
    public,
    schema_of,
)
from tests.methods.encoders import Apart, encoding

BUDGET = Budget(20.0, 1e-3)
EXACT = Budget(math.inf, 1e-3)
LOW = Budget(0.5, 1e-3)
LIMIT = 2.5  # nats: no text with two phones or stoves is below


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def embed(
    ledger: Ledger,
    decode: Any = None,
    budget: Budget = BUDGET,
    folder: Path | None = None,
    labels: Any = LABELS,
    private: Sequence[PrivateRow] = ROWS,
    lm: Any = losses,
    **changes: Any,
) -> EvolvedEmbeddings:
    """One attempt as the stage makes it."""
    schema, said = schema_of(labels=labels), descriptions() if labels else None
    plan = planned(embed_settings(**changes), schema, budget)
    fit = fit_of(plan, decode or Speller(), said, lm, folder, **changes)
    private = private if labels else [replace(row, label=None) for row in private]
    with opened(ledger, schema, plan, "reference" if math.isinf(budget.epsilon) else "release", private) as view:
        return fit.ask(view)


def fit_of(
    plan: Plan,
    decode: Any,
    said: np.ndarray | None,
    lm: Any = losses,
    folder: Path | None = None,
    seed: int = 3,
    **changes: Any,
) -> Embed:
    settings, schema = embed_settings(**changes), schema_of(labels={} if said is None else LABELS)
    limit = None if settings.readable is None else LIMIT
    encoders = encoding(encode, len(THINGS))
    return Embed(
        settings, schema, plan, public(), [None] * len(PUBLIC), said, decode, encoders, lm, limit, seed, folder
    )


def sums_of(*texts: str) -> ClassSums:
    return ClassSums(tuple(LABELS), 50.0 * encode(texts).astype(np.float64))


@pytest.mark.parametrize("changes", [{}, {"class_means": {"share": 0.5, "domain": 0.5}}])
def test_private_texts_are_read_by_themselves(ledger: Ledger, monkeypatch, changes: dict[str, Any]) -> None:
    apart = Apart()
    monkeypatch.setitem(globals(), "encoding", apart.encoding)
    embed(ledger, **changes)
    assert apart.holds(row.text for row in ROWS)


# The first population.


def test_different_texts_are_counted_once_and_what_says_nothing_never() -> None:
    vectors = np.array([[3.0, 4.0], [9.0, 9.0], [0.0, 2.0], [5.0, 0.0], [0.0, 0.0], [np.nan, 1.0]])
    found = select_distinct(Candidates(["b", " ", "a", "b", "zero", "broken"], vectors))
    assert found.texts == ["b", "a"]
    np.testing.assert_allclose(found.embeddings, [[0.6, 0.8], [0.0, 1.0]], atol=1e-7)


def test_labels_begin_near_their_public_descriptions() -> None:
    said = dict(zip(LABELS, descriptions(), strict=True))
    found = choose_by_description(public(), said, ("praise", "refund"), 4)
    assert {PUBLIC[index] for index in found["refund"][:2]} == {"lamp lamp kettle", "lamp kettle kettle"}
    assert {PUBLIC[index] for index in found["praise"][:2]} == {"stove stove fridge", "stove fridge fridge"}
    assert [len(own) for own in found.values()] == [4, 4]


def test_labels_without_a_description_begin_anywhere() -> None:
    one, again, other = (choose_at_random({"a": len(PUBLIC), "b": len(PUBLIC)}, 12, seed) for seed in (1, 1, 2))
    assert one == again != other
    assert one["a"] != one["b"]
    assert [len(set(own)) for own in one.values()] == [12, 12]


def test_class_sums_choose_where_to_begin() -> None:
    sums = sums_of("lamp kettle", "stove fridge")
    found = choose_by_sums(public(), sums, tuple(LABELS), 9, 0.5)
    chosen = choose(public(), sums, dict.fromkeys(LABELS, 9), 0.5)
    assert [(PUBLIC[index], label) for label, own in found.items() for index in own] == [
        (record.text, record.label) for record in chosen
    ]


def test_a_label_that_chooses_too_few_is_filled_with_what_is_nearest() -> None:
    """Equal sums of two labels: they share a domain of 28 texts, and each needs 20."""
    found = choose_by_sums(public(), sums_of("lamp kettle", "lamp kettle"), tuple(LABELS), 20, 0.5)
    assert [len(set(own)) for own in found.values()] == [20, 20]
    near = np.argsort(-(public().embeddings @ encode(["lamp kettle"])[0]).round(6), kind="stable")
    assert {index for own in found.values() for index in own} <= set(near[:28].tolist())
    assert set(found["refund"]) & set(found["praise"])


def begun(labels: Sequence[str | None], **changes: Any) -> dict[str, Candidates]:
    """What each label begins with where the texts were written for these labels."""
    settings = embed_settings(**changes)
    plan = planned(settings, schema_of(), BUDGET)
    fit = replace(fit_of(plan, Speller(), descriptions(), **changes), labels=labels)
    return fit.choose_first(None, tuple(LABELS))


def test_a_label_begins_with_what_was_written_for_it_and_with_what_is_for_any() -> None:
    own = ["refund"] * 12 + ["praise"] * 12 + [None] * (len(PUBLIC) - 24)
    found = begun(own, start=10, parents=5)
    places = {label: [PUBLIC.index(text) for text in one.texts] for label, one in found.items()}
    assert {label: len(set(one)) for label, one in places.items()} == {"refund": 10, "praise": 10}
    assert all(own[index] in (None, label) for label, one in places.items() for index in one)


def test_a_label_with_too_few_texts_of_its_own_is_refused() -> None:
    with pytest.raises(DataError, match="There are 9 different texts to begin with; the first round votes for 10"):
        begun(["refund"] * 9 + ["praise"] * (len(PUBLIC) - 9), start=10, parents=5)


# Between two votes.


def steps_of(
    decode: Any = None,
    folder: Path | None = None,
    limit: float | None = None,
    start: Mapping[str, Sequence[str]] | None = None,
    seed: int = 3,
    **changes: Any,
) -> EmbedSteps:
    start = start or {"refund": PUBLIC[:20], "praise": PUBLIC[30:50]}
    writer = VectorWriter(decode or Speller(), encode, losses, limit)
    first = {label: Candidates(list(own), encode(own)) for label, own in start.items()}
    return EmbedSteps(embed_settings(**changes), first, writer, seed, folder)


def noisy(**best: Sequence[int]) -> dict[str, list[int]]:
    """Noisy counts in which these places of 20 got the most, in this order."""
    counts = {label: [-5] * 20 for label in ("refund", "praise")}
    for label, places in best.items():
        for rank, place in enumerate(places):
            counts[label][place] = 30 - rank
    return counts


def test_the_first_slate_is_public() -> None:
    decode = Speller()
    slate = steps_of(decode).first()
    assert (dict(slate.texts), decode.given) == ({}, [])
    np.testing.assert_array_equal(slate.vectors["praise"], encode(PUBLIC[30:50]))


@pytest.mark.parametrize("selection", [{"kind": "gaussian", "neighbours": 1}, LIMITED])
def test_a_slate_is_the_parents_and_their_offspring(selection) -> None:
    best = {"refund": (7, 2, 11, 3), "praise": (0, 19, 4, 5)}
    answer = noisy(**best) if selection is not LIMITED else {label: list(own) for label, own in best.items()}
    steps = steps_of(selection=selection)
    slate = steps.propose([Round({}, answer)])
    for label, places in best.items():
        parents = steps.first().vectors[label][list(places)]
        np.testing.assert_array_equal(slate.vectors[label][:4], parents)
        assert slate.vectors[label].shape == (4 + 16, 6)
        np.testing.assert_allclose(np.linalg.norm(slate.vectors[label], axis=1), 1.0, rtol=1e-6)
        assert len(np.unique(slate.vectors[label], axis=0)) == 20


@pytest.mark.parametrize("selection", [{"kind": "gaussian", "neighbours": 1}, LIMITED])
def test_parents_that_die_are_written_down_and_not_voted_for(selection, tmp_path: Path) -> None:
    """The same offspring as where parents live, and the places of the next answer are among these alone."""

    def answer(**best: Sequence[int]) -> Any:
        return {label: list(own) for label, own in best.items()} if selection is LIMITED else noisy(**best)

    first = answer(refund=(7, 2, 11, 3), praise=(0, 19, 4, 5))
    alive, dying = (
        steps_of(selection=selection, keep_parents=keep, folder=tmp_path / str(keep)) for keep in (True, False)
    )
    for steps in (alive, dying):
        assert steps.settings.rounds > 1
        (steps.folder or tmp_path).mkdir()
    slates = [steps.propose([Round({}, first)]).vectors["refund"] for steps in (alive, dying)]
    assert len(slates[1]) == 16
    np.testing.assert_array_equal(slates[0][4:], slates[1])
    again = steps_of(selection=selection, keep_parents=False, folder=tmp_path / "False")
    turn = again.turn([first, answer(refund=(15, 0, 3, 9), praise=(1, 2, 3, 4))])
    assert turn.selected["refund"].places.tolist() == [15, 0, 3, 9]
    np.testing.assert_array_equal(turn.generations["refund"].population[:4], slates[1][[15, 0, 3, 9]])
    assert len(turn.generations["refund"].candidates) == 16


def test_candidates_whose_parents_are_dead_stand_again_where_nothing_can_be_read() -> None:
    steps = steps_of(keep_parents=False, selection=LIMITED)
    first: dict[str, list[int]] = {"refund": [7, 2, 11, 3], "praise": []}
    grown = steps.propose([Round({}, first)]).vectors
    assert [len(grown[label]) for label in first] == [16, 20]
    again = steps.propose([Round({}, first), Round({}, {label: [] for label in first})]).vectors
    for label, candidates in grown.items():
        np.testing.assert_array_equal(again[label], candidates)


@pytest.mark.parametrize("components", [1, 2])
def test_offspring_come_from_the_distribution_of_the_parents(components) -> None:
    """Far more of them than in a run: their mean direction and their spread are those of the formula."""
    eda = Eda(smoothing=0.5, best=2, components=components)
    steps = steps_of(eda=eda, offspring=4000, seed=1)
    slate = steps.propose([Round({}, noisy(refund=(7, 8, 11, 12), praise=(1, 2, 3, 4)))])
    mixture = steps.mixture(
        "refund", steps.turn([noisy(refund=(7, 8, 11, 12), praise=(1, 2, 3, 4))]).generations["refund"]
    )
    assert len(mixture.weights) == components
    drawn = mixture.draw(40_000, np.random.default_rng(9))
    np.testing.assert_allclose(slate.vectors["refund"][4:].mean(axis=0), drawn.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(slate.vectors["refund"][4:].std(axis=0), drawn.std(axis=0), atol=0.02)
    if components == 1:
        parents = encode([PUBLIC[place] for place in (7, 8, 11, 12)]).astype(np.float64)
        np.testing.assert_allclose(mixture.means[0], gaussian(parents, eda, np.ones(6))[0])


def test_votes_of_parents_weigh_their_gaussians() -> None:
    start = {"refund": ["lamp lamp lamp", "phone phone phone", "lamp lamp kettle", "phone phone fridge", *PUBLIC[1:17]]}
    steps = steps_of(start=start, eda=Eda(smoothing=0.1, best=2, components=2))
    counts = [12, 5, 3, -1, *[-9] * 16]
    mixture = steps.mixture("refund", steps.turn([{"refund": counts}]).generations["refund"])
    np.testing.assert_allclose(mixture.weights, [15 / 20, 5 / 20])
    assert mixture.means.argmax(axis=1).tolist() == [0, 5]


def test_parents_have_offspring_alone_if_they_can_be_read() -> None:
    decode = Speller()
    steps = steps_of(decode, limit=LIMIT)
    places = tuple(PUBLIC.index(f"lamp {rest}") for rest in ("lamp kettle", "lamp phone", "lamp lamp", "fridge fridge"))
    turn = steps.turn([noisy(refund=places, praise=(0, 1, 2, 3))])
    chosen, one = turn.selected["refund"], turn.generations["refund"]
    assert chosen.places.tolist() == list(places)
    assert chosen.texts == tuple(PUBLIC[place] for place in places)
    expected = (losses(chosen.texts) <= LIMIT).tolist()
    assert chosen.readable.tolist() == expected
    assert 0 < sum(expected) < 4
    kept = [text for text, passed in zip(chosen.texts, expected, strict=True) if passed]
    assert (one.texts, one.parents) == (tuple(kept), len(kept))
    np.testing.assert_array_equal(one.population[: len(kept)], encode(kept))
    assert one.votes.tolist() == [30 - rank for rank, passed in enumerate(expected) if passed]
    assert len(one.population) == len(kept) + 16
    assert decode.given == []  # public texts are known


def test_without_a_limit_all_but_blank_texts_can_be_read() -> None:
    writer = VectorWriter(Speller(), encode, losses, None)
    assert writer.find_readable(["phone phone", "", " \n", "lamp"]).tolist() == [True, False, False, True]
    assert VectorWriter(Speller(), encode, losses, LIMIT).find_readable(["phone", "", "lamp"]).tolist() == [
        False,
        False,
        True,
    ]
    nan = VectorWriter(Speller(), encode, lambda texts: np.full(len(texts), np.nan), LIMIT)
    assert nan.find_readable(["lamp"]).tolist() == [False]
    assert writer.find_readable([]).shape == (0,)


@pytest.mark.parametrize(
    ("selection", "answer"),
    [
        (LIMITED, {"refund": [], "praise": [3, 1]}),
        ({"kind": "gaussian", "neighbours": 1}, None),
    ],
)
def test_a_label_without_parents_votes_again_and_others_go_on(selection, answer) -> None:
    """None picked, or none that can be read: all refunds that were selected name two phones."""
    start = {"refund": [*PUBLIC[:16], *(f"phone phone {thing}" for thing in THINGS[:4])], "praise": PUBLIC[30:50]}
    answer = answer or noisy(refund=(16, 17, 18, 19), praise=(3, 1))
    steps = steps_of(limit=LIMIT, start=start, selection=selection)
    before, after = steps.turn([]), steps.turn([answer])
    assert after.generations["refund"] is before.generations["refund"]
    assert after.generations["praise"].population is not before.generations["praise"].population
    assert not after.selected["refund"].readable.any()
    assert after.generations["refund"].parents == 4  # the first public texts stand in
    again = steps.turn([answer, answer if selection is LIMITED else noisy(refund=(16, 17, 18, 19))])
    assert again.generations["refund"] is before.generations["refund"]


def test_no_label_may_be_picked_at_all() -> None:
    decode = Speller()
    steps = steps_of(decode, selection=LIMITED)
    empty: dict[str, list[int]] = {"refund": [], "praise": []}
    turn = steps.turn([empty, empty])
    assert turn.generations == steps.turn([]).generations
    assert {label: (own.places.shape, own.texts) for label, own in turn.selected.items()} == {
        "refund": ((0,), ()),
        "praise": ((0,), ()),
    }
    assert decode.given == []


def test_only_what_has_no_text_yet_is_written_down() -> None:
    decode = Speller()
    steps = steps_of(decode)
    first = noisy(refund=(7, 2, 11, 3), praise=(0, 1, 2, 3))
    second = noisy(refund=(9, 1, 4, 0), praise=(2, 12, 3, 1))
    turn = steps.turn([first, second])
    (given,) = decode.given
    before = steps.turn([first]).generations
    np.testing.assert_array_equal(given, [*before["refund"].population[[9, 4]], before["praise"].population[12]])
    spelt = Speller().decode(given, embed_settings().decode, encode, 0).texts
    assert turn.selected["refund"].texts == (spelt[0], PUBLIC[2], spelt[1], PUBLIC[7])
    assert turn.selected["praise"].texts == (PUBLIC[32], spelt[2], PUBLIC[33], PUBLIC[31])
    one = turn.generations["refund"]
    np.testing.assert_array_equal(one.embeddings, encode(one.texts))
    np.testing.assert_array_equal(one.population[:4], before["refund"].population[[9, 1, 4, 0]])


def test_fewer_picks_than_parents_are_parents() -> None:
    steps = steps_of(selection=LIMITED)
    one = steps.turn([{"refund": [4], "praise": [2, 9]}]).generations
    assert [(own.parents, len(own.population)) for own in one.values()] == [(1, 17), (2, 18)]
    lone = steps.mixture("refund", one["refund"])
    np.testing.assert_allclose(lone.means, encode(PUBLIC[4:5]))
    np.testing.assert_allclose(lone.spreads[0], encode(PUBLIC[:20]).std(axis=0))


ANSWERS = [
    noisy(refund=(7, 2, 11, 3), praise=(0, 1, 2, 3)),
    noisy(refund=(9, 1, 4, 0), praise=(2, 12, 3, 1)),
]


def same(one: Generation, other: Generation) -> bool:
    arrays = [(getattr(one, name), getattr(other, name)) for name in ("population", "embeddings", "votes")]
    return (one.texts, one.parents) == (other.texts, other.parents) and all(
        left.dtype == right.dtype and np.array_equal(left, right) for left, right in arrays
    )


def test_populations_are_a_function_of_answers_and_seed() -> None:
    one, again, other = (steps_of(seed=seed).turn(ANSWERS).generations for seed in (3, 3, 4))
    assert all(same(one[label], again[label]) for label in one)
    assert not any(same(one[label], other[label]) for label in one)
    changed = [ANSWERS[0], noisy(refund=(9, 1, 4, 0), praise=(2, 12, 3, 0))]
    third = steps_of().turn(changed).generations
    assert same(one["refund"], third["refund"])
    assert not same(one["praise"], third["praise"])


def test_each_turn_and_label_has_draws_of_its_own() -> None:
    """Equal parents of two labels and two turns."""
    start = {"refund": PUBLIC[:20], "praise": PUBLIC[:20]}
    steps = steps_of(start=start)
    answer = noisy(refund=(0, 1, 2, 3), praise=(0, 1, 2, 3))
    first, second = steps.turn([answer]).generations, steps.turn([answer, answer]).generations
    np.testing.assert_array_equal(first["refund"].population[:4], second["praise"].population[:4])
    drawn = [one[label].population[4] for one in (first, second) for label in start]
    assert len(np.unique(drawn, axis=0)) == 4


def test_texts_of_each_turn_are_written_with_a_seed_of_their_own() -> None:
    decode = Speller()
    steps = steps_of(decode)
    answer = noisy(refund=(9, 8, 7, 6), praise=(9, 8, 7, 6))
    steps.turn([answer, answer, answer])
    assert len(set(decode.seeds)) == len(decode.seeds) == 2


# What a stopped run finds.


def test_a_stopped_run_finds_its_populations(tmp_path) -> None:
    folder = tmp_path / "kept"
    one = steps_of(folder=folder, limit=LIMIT).turn(ANSWERS)
    decode = Speller()
    found = steps_of(decode, folder=folder, limit=LIMIT).turn(ANSWERS)
    assert decode.given == []
    for label, own in one.generations.items():
        assert same(own, found.generations[label])
        assert found.selected[label].texts == one.selected[label].texts
        np.testing.assert_array_equal(found.selected[label].places, one.selected[label].places)
        np.testing.assert_array_equal(found.selected[label].readable, one.selected[label].readable)
    assert len(list(folder.iterdir())) == 3
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 4},
        {"limit": 9.0},
        {"offspring": 17},
        {"start": {"refund": PUBLIC[:20], "praise": PUBLIC[31:51]}},
    ],
)
def test_another_run_has_other_populations(tmp_path, changes) -> None:
    steps_of(folder=tmp_path, limit=LIMIT).turn(ANSWERS)
    steps_of(**{"folder": tmp_path, "limit": LIMIT, **changes}).turn(ANSWERS)
    assert len(list(tmp_path.iterdir())) == 6


def test_other_answers_have_other_populations(tmp_path) -> None:
    """The same run, told other answers than before of its last round."""
    steps, changed = steps_of(folder=tmp_path), [ANSWERS[0], noisy(refund=(3, 2, 1, 0), praise=(2, 12, 3, 1))]
    one, other, again = (steps.turn(answers).generations for answers in (ANSWERS, changed, ANSWERS))
    assert not same(one["refund"], other["refund"])
    assert same(one["refund"], again["refund"])


def test_strange_texts_are_kept_as_they_are(tmp_path) -> None:
    start = {"refund": ["a\x00b\x00", "\ud800 x", "naïve \u2028", *PUBLIC[:17]], "praise": PUBLIC[:20]}
    for _ in range(2):
        found = steps_of(folder=tmp_path, start=start).turn([noisy(refund=(0, 1, 2))])
        assert found.selected["refund"].texts[:3] == tuple(start["refund"][:3])


# A fit.


@pytest.fixture
def slates(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, np.ndarray]]:
    """What each round votes for."""
    found: list[Mapping[str, np.ndarray]] = []
    for kind in (Ballot, DomainBallot):
        held = kind.held

        def noted(self: Any, rows: Any, slate: votes.Slate, noise: Any, held: Any = held) -> Any:
            found.append(slate.vectors)
            return held(self, rows, slate, noise)

        monkeypatch.setattr(kind, "held", noted)
    return found


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({"class_means": AIM, "label_counts": "noisy"}, LOW),
        ({"class_means": AIM, "label_counts": "noisy", "selection": LIMITED}, LOW),
        ({"selection": LIMITED}, BUDGET),
        ({}, BUDGET),
    ],
)
def test_a_fit_asks_what_was_planned(ledger, slates, changes, budget) -> None:
    found = embed(ledger, budget=budget, **changes)
    charges = ledger.charges("tickets")
    before = [("label_histogram", "committed", 0), ("class_means", "committed", 0)] if "class_means" in changes else []
    assert [(charge.query, charge.state, charge.steps_begun) for charge in charges] == [
        *before,
        ("vote rounds", "committed", 3),
    ]
    plan = planned(embed_settings(**changes), schema_of(), budget)
    assert [(charge.event, charge.own_delta) for charge in charges] == [
        (query.event, query.own_delta) for query in plan.queries
    ]
    assert (len(slates), len(found.rounds), len(found.answers), len(found.parents)) == (3, 3, 3, 3)
    for slate, one, answer in zip(slates, found.rounds, found.answers, strict=True):
        for label in LABELS:
            np.testing.assert_array_equal(one.population[label], slate[label])
            chosen = one.parents[label].tolist()
            if changes.get("selection") is LIMITED:
                assert chosen == answer[label]
            else:
                assert chosen == np.argsort(-np.array(answer[label]), kind="stable")[:4].tolist()


def private_mean(label: str) -> np.ndarray:
    """The mean direction of a label's rows."""
    return encode([row.text for row in ROWS if row.label == label]).mean(axis=0)


def nearness(vectors: np.ndarray, label: str) -> float:
    """Mean cosine of vectors and the label's private mean."""
    mean = private_mean(label)
    return float((vectors @ mean).mean() / np.linalg.norm(mean))


@pytest.mark.parametrize(
    ("budget", "changes"),
    [
        (EXACT, {}),
        (BUDGET, {}),
        (BUDGET, {"selection": {"kind": "gaussian", "neighbours": 3}, "eda": Eda(smoothing=0.1, best=3, components=2)}),
        (EXACT, {"selection": LIMITED}),
        (BUDGET, {"selection": {**LIMITED, "domain": 4}, "parents": 2}),
    ],
)
def test_votes_move_the_population_towards_the_private_rows(ledger, budget, changes) -> None:
    """From anywhere: no label has a description here."""
    plan = planned(embed_settings(**changes, start=56), schema_of(), budget)
    fit = replace(fit_of(plan, Speller(), None, seed=1, **changes, start=56), schema=schema_of())
    with opened(ledger, schema_of(), plan, "reference" if budget is EXACT else "release") as view:
        found = fit.ask(view)
    for label in LABELS:
        first, *_, last = (nearness(one.population[label], label) for one in found.rounds)
        written = nearness(encode([row.text for row in found.records if row.label == label]), label)
        other = nearness(encode([row.text for row in found.records if row.label != label]), label)
        assert last > first + 0.1
        assert written > first + 0.15
        assert written > other + 0.1


def test_what_is_proposed_follows_from_the_answers_alone(tmp_path, slates, monkeypatch) -> None:
    """The answers frozen, one row more or less, or all others, leave every slate and text as they are."""
    frozen = iter([*ANSWERS, noisy(refund=(16, 3, 2, 1), praise=(4, 5))] * 3)
    monkeypatch.setattr(Ballot, "_add_noise", lambda self, counts, noise: None)
    held = Ballot.held
    monkeypatch.setattr(Ballot, "held", lambda *given: held(*given) and next(frozen))
    found = []
    for number, rows in enumerate((ROWS, ROWS[1:], [PrivateRow("phone", "praise")])):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(embed(new_ledger(folder), private=rows))
    assert len(slates) == 9
    for turn in range(3):
        for label in LABELS:
            assert np.array_equal(slates[turn][label], slates[3 + turn][label])
            assert np.array_equal(slates[turn][label], slates[6 + turn][label])
    assert found[0].records == found[1].records == found[2].records
    assert found[0].parents == found[1].parents == found[2].parents


@pytest.mark.parametrize("selection", [{"kind": "gaussian", "neighbours": 1}, LIMITED])
@pytest.mark.parametrize("rows", [2, 7, 19])
def test_counts_are_reached(ledger, rows, selection) -> None:
    found = embed(ledger, rows=rows, prior={"refund": 2.0, "praise": 1.0}, selection=selection, rounds=1)
    counts = Counter(row.label for row in found.records)
    assert sum(counts.values()) == rows
    assert counts["refund"] == round(rows * 2 / 3)
    assert len(set(found.records)) == rows


@pytest.mark.parametrize(("decode", "rows"), [(Speller(), 20), (Nearest(public()), 10)])
def test_rows_are_parents_and_then_offspring(ledger, decode, rows) -> None:
    found = embed(ledger, decode, rows=rows, eda=Eda(smoothing=0.0, best=1, components=1))
    for label in LABELS:
        own = [row.text for row in found.records if row.label == label]
        parents = list(dict.fromkeys(found.parents[-1][label]))
        assert own[: len(parents)] == parents
        assert len(own) == len(set(own)) == rows / 2
    assert found.written >= rows - 2 * 4


def test_where_texts_do_not_differ_enough_there_are_fewer(ledger) -> None:
    """A decoder that knows 56 texts writes no more; the run ends all the same."""
    found = embed(ledger, Nearest(public()), rows=400)
    counts = Counter(row.label for row in found.records)
    assert max(counts.values()) <= len(PUBLIC)
    assert len(set(found.records)) == len(found.records)


def odd(texts: Sequence[str]) -> np.ndarray:
    """A language model that finds an odd number of kettles or stoves unlikely."""
    return np.array([9.0 * ((text.count("kettle") + text.count("stove")) % 2) for text in texts])


def test_unreadable_texts_are_drawn_again_and_told(ledger) -> None:
    found = embed(ledger, rows=12, readable=READABLE, lm=odd, rounds=2)
    assert 9 <= len(found.records) <= 12  # a row is drawn ten times, and about one in a thousand is never readable
    assert not odd([row.text for row in found.records]).any()
    assert odd([row.text for row in found.rejected]).all()
    assert {row.label for row in found.rejected} == set(LABELS)
    assert any(not one.readable[label].all() for one in found.rounds for label in LABELS)
    unread = [one.readable[label] for one in found.rounds for label in LABELS]
    told = [odd(parents[label]) == 0 for parents in found.parents for label in LABELS]
    assert all(np.array_equal(one, other) for one, other in zip(unread, told, strict=True))


def test_where_nothing_can_be_read_there_are_fewer_rows(ledger) -> None:
    """No text at all: the run ends, and nothing is written."""

    class Mute(Speller):
        def decode(self, *given: Any) -> Spelt:
            found = super().decode(*given)
            return Spelt(["" for _ in found.texts], found.embeddings)

    found = embed(ledger, Mute(), rows=30, parents=1)
    assert 2 <= len(found.records) <= 2 * 1  # parents with a public text
    assert found.written == 10 * 28
    assert len(found.rejected) == found.written


def test_a_pool_is_written_and_the_likeliest_are_kept(ledger) -> None:
    decode = Speller()
    found = embed(ledger, decode, LOW, class_means=AIM, rows=12)
    steps_of_result = [row.text for row in found.records]
    assert Counter(row.label for row in found.records) == {"refund": 6, "praise": 6}
    assert len(set(steps_of_result)) == 12
    assert found.written >= 12 * 2 - 2 * 4


def test_what_is_kept_of_a_pool_is_what_choose_chooses() -> None:
    sums, counts = sums_of("lamp kettle", "stove fridge"), {"refund": 3, "praise": 2}
    steps = steps_of(class_means=AIM)
    plain = result_of(steps_of(), ANSWERS, {label: 2 * count for label, count in counts.items()}, None)
    texts = list(dict.fromkeys(row.text for row in plain.records))
    found = result_of(steps, ANSWERS, counts, sums)
    assert list(found.records) == choose(Candidates(texts, encode(texts)), sums, counts, AIM.domain)
    assert Counter(row.label for row in plain.records) == {"refund": 6, "praise": 4}


def test_a_result_without_text_is_empty() -> None:
    blank = {"refund": [""] * 20, "praise": [" "] * 20}

    class Mute(Speller):
        def decode(self, vectors: Any, *_: Any) -> Spelt:
            return Spelt([""] * len(vectors), np.zeros_like(vectors))

    steps = steps_of(Mute(), start=blank, class_means=AIM)
    assert result_of(steps, ANSWERS, {"refund": 1, "praise": 1}, sums_of("lamp", "fridge")).records == ()


def test_a_label_without_rows_is_left_out(ledger, slates) -> None:
    found = embed(ledger, prior={"refund": 1.0, "praise": 0.0})
    assert [set(slate) for slate in slates] == [{"refund"}] * 3
    assert Counter(row.label for row in found.records) == {"refund": 6}


def test_a_task_without_labels_is_one_population(ledger, slates) -> None:
    found = embed(ledger, labels={})
    assert [list(slate) for slate in slates] == [[""]] * 3
    assert [row.label for row in found.records] == [None] * 6


def test_what_is_made_are_the_records(ledger) -> None:
    found = embed(ledger, rows=10)
    made = fit_of(planned(embed_settings(), schema_of(), LOW), Speller(), descriptions()).made(found)
    assert (made.rows, made.drawn, made.removed) == (list(found.records), found.written, {"unreadable": 0})
    assert made.told["rounds"] == 3
    assert {sample["text"] for sample in made.told["kept_samples"]} <= {row.text for row in found.records}


def test_no_private_text_reaches_the_language_model_or_the_disk(ledger, tmp_path) -> None:
    told: list[str] = []

    def noted(texts: Sequence[str]) -> np.ndarray:
        told.extend(texts)
        return losses(texts)

    folder = tmp_path / "kept"
    embed(ledger, None, LOW, folder, class_means=AIM, label_counts="noisy", readable=READABLE, lm=noted)
    assert told
    assert SECRET not in " ".join(told)
    assert not {row.text for row in ROWS} & set(told)
    files = sorted(folder.iterdir())
    assert len(files) == 1 + 4
    for path in files:
        assert SECRET.encode() not in path.read_bytes()
    rounds = json.loads(next(path for path in files if path.suffix == ".json").read_text())
    assert all(set(one) == {"texts", "counts", "slate"} and one["texts"] == {} for one in rounds["kept"])


@pytest.mark.parametrize("selection", [{"kind": "gaussian", "neighbours": 1}, LIMITED])
def test_nothing_that_follows_exact_votes_is_kept(ledger, tmp_path, selection) -> None:
    embed(ledger, None, EXACT, tmp_path / "kept", selection=selection)
    assert not (tmp_path / "kept").exists()


def test_too_few_public_texts_cost_nothing(ledger) -> None:
    with pytest.raises(DataError, match="There are 56 different texts to begin with; the first round votes for 57"):
        embed(ledger, start=57, class_means=AIM, label_counts="noisy", budget=LOW)
    assert ledger.charges("tickets") == []


def test_a_fit_asks_no_more_than_was_planned(ledger) -> None:
    schema = schema_of()
    limited = embed_settings(selection=LIMITED)
    plan, dearer = (planned(limited, schema, Budget(target, 1e-3)) for target in (2.0, 3.0))
    with pytest.raises(LedgerError, match="no reservation"), opened(ledger, schema, plan) as view:
        fit_of(dearer, Speller(), descriptions(), selection=LIMITED).ask(view)


# A run that stops.


class Failing(Speller):
    """A decoder that fails at one of its calls."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self._call = call

    def decode(self, *given: Any) -> Spelt:
        if len(self.given) == self._call:
            raise BackendError("The decoder is gone.", "Run again.")
        return super().decode(*given)


@pytest.mark.parametrize(
    "changes",
    [
        {"class_means": AIM, "label_counts": "noisy"},
        {"selection": {**LIMITED, "domain": 4}, "budget": BUDGET, "parents": 2},
    ],
)
@pytest.mark.parametrize("held", [1, 2])
def test_a_killed_run_goes_on_with_the_same_slates(ledger, tmp_path, slates, monkeypatch, held, changes) -> None:
    """Killed as a round begins, which loses that round, and then before the next begins, which loses none."""
    changes = {"budget": LOW, "folder": tmp_path / "kept", "rounds": 4, **changes}
    kind = DomainBallot if "selection" in changes else Ballot
    noted = kind.held

    def killed(*given: Any) -> Any:
        found = noted(*given)
        if len(slates) == held + 1:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(kind, "held", killed)
        with pytest.raises(KeyboardInterrupt):
            embed(ledger, **changes)
    spent = ledger.balance("tickets").spent
    before = len(slates)
    found = embed(ledger, **changes)
    assert ledger.balance("tickets").spent == spent
    states = {charge.query: charge.state for charge in ledger.charges("tickets") if charge.state != "refunded"}
    assert set(states.values()) == {"committed"}
    assert (before, len(slates), len(found.rounds)) == (held + 1, 4, 3)
    # The round that was lost votes for the same slate again; the rest goes on from there.
    used = [*slates[:held], *slates[held + 1 :]]
    for one, slate in zip(found.rounds, used, strict=True):
        for label in LABELS:
            np.testing.assert_array_equal(one.population[label], slate[label])
    for label in LABELS:
        np.testing.assert_array_equal(slates[held][label], slates[held + 1][label])


def test_a_decoder_that_fails_leaves_finished_rounds(ledger, tmp_path, slates) -> None:
    """Between two votes, and after the last: what follows is the same as in a run that did not fail."""
    changes: dict[str, Any] = {"budget": BUDGET, "folder": tmp_path / "kept", "rows": 30}
    for call in (0, 1):
        with pytest.raises(BackendError, match="gone"):
            embed(ledger, Failing(call), **changes)
    states = [(charge.state, charge.steps_begun) for charge in ledger.charges("tickets")]
    assert states == [("answered", states[0][1])]
    assert states[0][1] >= 2
    found = embed(ledger, **changes)
    assert (len(slates), len(found.rounds), len(found.records)) == (3, 3, 30)
    assert [charge.state for charge in ledger.charges("tickets")] == ["committed"]
