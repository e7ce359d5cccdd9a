"""A person is one coin, one guess and one count, whatever the number and the likeness of their rows.

Correct tests are held against the same ones that take each row for a unit. With no signal at all, but rows of a person
that resemble each other, the former keep their level and the latter do not, so that no test here passes by being blind.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.anonymity import audit_anonymity
from palimpsest.audit.membership import Control, audit_membership, bag_of_words_control, correct_guesses
from palimpsest.audit.memorisation import LikenessRules, near_duplicates_of, personal_data
from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import Bootstrap, Estimate, Interval, one_run_p_value
from palimpsest.audit.text_membership import phantom_test, text_attacks
from palimpsest.audit.units import RULES, Guessed, Released, Scores, Units
from palimpsest.errors import DataError
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record

PASSED = Control(Estimate(0.5, 0.4, 0.6), Interval(0.4, 0.6))
USUAL = LikenessRules(similarity=0.7, shingle=3, closeness=0.8)
ALPHA = 0.05


def persons(rows: int) -> st.SearchStrategy[list[str | None]]:
    return st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=rows)


def dealt(rows: Sequence[tuple[str, str]], inside: set[str]) -> Guessed:
    """(person, text) pairs, the persons `inside` as members."""
    sides = [
        [SplitRow(text, "x", guess=True, person=who) for who, text in rows if (who in inside) == member]
        for member in (True, False)
    ]
    return Guessed.of(*sides)


def deals(names: Sequence[str], members: int) -> Iterator[set[str]]:
    """Every way to make so many of the persons members."""
    return (set(chosen) for chosen in combinations(names, members))


def alone(guess: Guessed) -> Units:
    """The same rows, each taken for a unit."""
    return Units.of_records(len(guess.members), len(guess.others))


# Whose a record is.


@given(persons(8))
def test_units_are_numbered_by_their_first_record_members_first(who: list[str | None]):
    others = [None if name is None else name.upper() for name in reversed(who)]
    units, everyone = Units.of(who, others), [*who, *others]
    for one, two in combinations(range(len(everyone)), 2):
        same = everyone[one] is not None and everyone[one] == everyone[two]
        assert (units.owner[one] == units.owner[two]) == same
    firsts = [units.owner.tolist().index(unit) for unit in range(len(units))]
    assert firsts == sorted(firsts)
    assert units.members == len(set(units.owner[: len(who)]))
    assert units.kind == ("record" if set(everyone) == {None} else "person")


def test_a_record_without_a_person_is_a_unit():
    units = Units.of([None] * 3, [None] * 2)
    assert (units.owner.tolist(), units.members, units.kind) == ([0, 1, 2, 3, 4], 3, "record")
    assert (Units.of_records(3, 2).owner.tolist(), Units.of_records(3, 2).members) == ([0, 1, 2, 3, 4], 3)


def test_a_person_on_both_sides_is_refused():
    with pytest.raises(DataError, match="among the members and among the others"):
        Units.of(["a", "b"], ["c", "a"])
    rows = [SplitRow("one", guess=True, person="a"), SplitRow("two", guess=True, person="b")]
    with pytest.raises(DataError, match="among the others"):
        Guessed.of(rows, [SplitRow("three", guess=True, person="b")])
    assert Guessed.of(rows, [SplitRow("three", guess=False, person="b")]).units.members == 2


@given(persons(8), st.data())
def test_a_unit_is_scored_from_its_own_records_alone(who: list[str | None], data: st.DataObject):
    values = np.array(data.draw(st.lists(st.floats(-9, 9), min_size=len(who), max_size=len(who))))
    units = Units.of(who, [])
    own = [values[units.owner == unit] for unit in range(len(units))]
    assert units.score(values, "mean") == pytest.approx(np.array([one.mean() for one in own]), abs=1e-12)
    assert units.score(values, "max").tolist() == [one.max() for one in own]
    assert units.any_hit(values > 0).tolist() == [bool((one > 0).any()) for one in own]
    texts = [f"t{place}" for place in range(len(who))]
    assert [document.split("\n") for document in units.documents(texts)] == [
        [text for text, owner in zip(texts, units.owner, strict=True) if owner == unit] for unit in range(len(units))
    ]


@pytest.mark.parametrize("rule", ["mean", "max"])
def test_a_record_that_is_a_unit_keeps_its_score_to_the_last_bit(rule):
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    assert Units.of([None] * 30, [None] * 20).score(values, rule).tolist() == values.tolist()


def test_every_attack_has_a_rule():
    guess = dealt([("a", "one two"), ("a", "two three"), ("b", "four five")], {"a"})
    written = Released([Record("one two", "x"), Record("six", "y")], *guess.sides, ["seven"])
    texts_alone = text_attacks(written, order=2, labelled=True, seed=0)
    stages = {"loss", "reference", "zlib", "min_k", "lira", "rmia", "nearest_embeddings", "rare", "prompt"}
    assert set(texts_alone) | stages == set(RULES)


# One guess a person.


def audited(values: np.ndarray, guess: Guessed, units: Units, claim: float = 0.0):
    scores = Scores(values[: len(guess.members)], values[len(guess.members) :])
    settings = {"delta": 0.0, "guess_share": 0.5, "alpha": ALPHA, "seed": 0}
    return audit_membership({"loss": scores}, PASSED, claim=claim, units=units, **settings)


@pytest.fixture(scope="module")
def alarms() -> dict[str, float]:
    """How often no leak at all is called one, where a person's eight rows have nearly one score."""
    runs, found = 300, {"person": 0, "record": 0}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        effect, inside = rng.normal(size=60), rng.random(60) < 0.5
        rows = [(f"p{person}", "") for person in range(60) for _ in range(8)]
        guess = dealt(rows, {f"p{person}" for person in np.flatnonzero(inside)})
        order = [*np.flatnonzero(inside), *np.flatnonzero(~inside)]
        values = np.repeat(effect[order], 8) + 0.1 * rng.normal(size=480)
        found["person"] += audited(values, guess, guess.units).verdict == "refuted"
        found["record"] += audited(values, guess, alone(guess)).verdict == "refuted"
    return {unit: count / runs for unit, count in found.items()}


def test_correlated_rows_raise_no_false_alarm(alarms: dict[str, float]):
    assert alarms["person"] <= ALPHA + 3.0 * np.sqrt(ALPHA * (1 - ALPHA) / 300)


def test_rows_that_are_guessed_one_by_one_do(alarms: dict[str, float]):
    assert alarms["record"] > 0.2


def test_the_bound_of_one_run_holds_exactly_for_the_coins_of_persons():
    """Over all coins of seven persons: no p value is more likely than it says. With rows for coins some are."""
    names, rng = [f"p{person}" for person in range(7)], np.random.default_rng(1)
    rows = [(name, "") for name in names for _ in range(3)]
    score = {name: value + rng.normal(scale=0.01, size=3) for name, value in zip(names, range(7), strict=True)}
    p_values: dict[str, list[float]] = {"person": [], "record": []}
    for coins in product([False, True], repeat=7):
        guess = dealt(rows, {name for name, inside in zip(names, coins, strict=True) if inside})
        order = sorted(names, key=lambda name: not coins[names.index(name)])
        values = np.concatenate([score[name] for name in order])
        by_row = Scores(values[: len(guess.members)], values[len(guess.members) :])
        for unit, scores in (("person", Scores.of_units(by_row, guess.units, "loss")), ("record", by_row)):
            m = len(scores.members) + len(scores.nonmembers)
            p_values[unit].append(one_run_p_value(m, m - 1, correct_guesses(scores, m - 1, 0), 0.0, 0.0))
    assert exceeds(p_values["person"]) <= 1.0 + 1e-9
    assert exceeds(p_values["record"]) > 2.0


def exceeds(p_values: Sequence[float]) -> float:
    """How many times too often the p values are small: the largest of P(p <= a) / a."""
    found = np.array(p_values)
    return max(float((found <= level).mean() / level) for level in found if level < 1.0)


def test_leaks_of_a_person_are_still_seen():
    rng = np.random.default_rng(2)
    rows = [(f"p{person}", "") for person in range(200) for _ in range(1 + person % 4)]
    guess = dealt(rows, {f"p{person}" for person in range(100)})
    values = rng.normal(size=len(rows)) + 5.0 * (np.arange(len(rows)) < len(guess.members))
    found = audited(values, guess, guess.units, claim=1.0)
    assert (found.verdict, found.members, found.nonmembers, found.unit) == ("refuted", 100, 100, "person")
    assert found.epsilon_lower.canaries == 200
    assert found.to_json("dp3")["unit"] == "person"


def test_the_level_of_a_record_is_what_it_was():
    rng = np.random.default_rng(3)
    values = rng.normal(size=400)
    guess = Guessed.of(*([SplitRow("", "x", guess=True)] * 200 for _ in range(2)))
    with_units, without = (audited(values, guess, units) for units in (guess.units, None))  # type: ignore[arg-type]
    assert with_units.to_json("dp3") == without.to_json("dp3")
    assert without.unit == "record"


@pytest.mark.parametrize("attack", RULES)
def test_a_score_does_not_hang_on_the_side(attack: str):
    """The same persons with their coins turned have the same scores, on the other side."""
    rows = [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", "5")]
    score = dict(zip("12345", [0.3, -2.0, 0.1, 4.0, 4.5], strict=True))
    found = []
    for inside in ({"a"}, {"b", "c"}):
        guess = dealt(rows, inside)
        by_row = Scores(*(np.array([score[text] for text in side]) for side in guess.texts))
        found.append(Scores.of_units(by_row, guess.units, attack))
    assert found[0].members.tolist() == found[1].nonmembers.tolist()
    assert found[0].nonmembers.tolist() == found[1].members.tolist()


# The control.


def test_a_control_that_reads_all_of_a_person_at_once_passes_and_one_that_reads_rows_does_not():
    """Each person has words of their own in every row, and the coins are fair."""
    passed = {"person": 0, "record": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = [
            (f"p{person}", f"own{person} mine{person} w{rng.integers(30)} w{rng.integers(30)}")
            for person in range(60)
            for _ in range(5)
        ]
        guess = dealt(rows, {f"p{person}" for person in np.flatnonzero(rng.random(60) < 0.5)})
        passed["person"] += bag_of_words_control(*guess.documents, seed=seed).passed
        passed["record"] += bag_of_words_control(*guess.texts, seed=seed).passed
    assert (passed["person"], passed["record"]) == (20, 0)


# What rows repeat of a person.

NAMES = [f"p{person}" for person in range(6)]
OWN = {name: [f"{name} told us {word} story {place}" for place, word in enumerate("abcd")] for name in NAMES}
ROWS = [(name, text) for name in NAMES for text in OWN[name]]
COPIES = [text for name in NAMES[:3] for text in OWN[name]]  # half of the persons, whatever their coins


def released(guess: Guessed, units: Units, texts: Sequence[str] = COPIES) -> Released:
    return Released([Record(text, "x") for text in texts], *guess.sides, ["nothing of the kind"], units)


def test_repeated_persons_are_counted_once_and_their_p_value_is_exact():
    """Over all dealings of three persons of six; by rows the p value of a mere coincidence is tiny."""
    by_person, by_row = [], []
    for inside in deals(NAMES, 3):
        guess = dealt(ROWS, inside)
        found = near_duplicates_of(released(guess, guess.units), USUAL).records
        assert (found.exposed.n, found.control.n) == (3, 3)
        assert found.exposed.count == len(inside & set(NAMES[:3]))
        by_person.append(found.p)
        by_row.append(near_duplicates_of(released(guess, alone(guess)), USUAL).records.p)
    assert exceeds(by_person) == pytest.approx(1.0)
    assert exceeds(by_row) > 100.0


def test_a_value_that_a_person_repeats_is_one_persons():
    rows = [(name, f"{place} call 0171 555 010{name[1]}") for name in NAMES for place in "abc"]
    guess = dealt(rows, set(NAMES[:3]))
    written = released(guess, guess.units, ["it is 0171 555 0101", "or 0171 555 0104"])
    found = personal_data(written)["phone"]
    assert (found.records.exposed.count, found.records.exposed.n) == (1, 3)
    assert (found.records.control.count, found.records.control.n) == (1, 3)
    assert (found.train.count, found.holdout.count, found.train.n) == (1, 1, 2)


def ngrams(guess: Guessed, units: Units, synthetic: Sequence[str] = COPIES, seed: int = 0):
    bootstrap = Bootstrap(resamples=256, seed=seed)
    return ngram_audit(released(guess, units, synthetic), [], [3], bootstrap).orders[3]


def test_shared_ngrams_are_tested_by_the_coins_of_persons():
    """Every third person's words are in the synthetic texts, of members and of others alike, by fair coins."""
    small = {"person": 0, "record": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        names = [f"p{person}" for person in range(24)]
        rows = [(name, f"{name} said {name} and {name} again {place}") for name in names for place in range(6)]
        synthetic = [text for name, text in rows if int(name[1:]) % 3 == 0]
        guess = dealt(rows, set(rng.permutation(names)[:12].tolist()))
        small["person"] += ngrams(guess, guess.units, synthetic, seed).p <= ALPHA
        small["record"] += ngrams(guess, alone(guess), synthetic, seed).p <= ALPHA
    assert small["person"] <= 8  # of 60: P(Binomial(60, 0.05) > 8) < 0.005
    assert small["record"] >= 15


def test_what_a_person_says_often_is_shared_once():
    """Their rows are on one side: repeating them changes neither what is shared nor its p value."""
    often, once = (dealt(rows, set(NAMES[:3])) for rows in ([*ROWS, *ROWS, *ROWS], ROWS))
    many, few = (ngrams(guess, guess.units) for guess in (often, once))
    assert (many.train, many.holdout, many.p) == (few.train, few.holdout, few.p)


def phantom(guess: Guessed, units: Units, synthetic: Sequence[str]):
    return phantom_test(released(guess, units, synthetic), ["somebody else"], [1]).orders[1]


def test_what_one_person_says_in_several_rows_is_rare_and_counts_once():
    rows = [(name, f"rare{name} common {place}") for name in NAMES for place in range(3)]
    synthetic = [f"rare{name}" for name in NAMES[:4]]
    p_values = []
    for coins in product([False, True], repeat=6):
        inside = {name for name, heads in zip(NAMES, coins, strict=True) if heads}
        if 0 < len(inside) < 6:
            guess = dealt(rows, inside)
            found = phantom(guess, guess.units, synthetic)
            assert found.features == 6
            assert (found.train.n, found.train.count) == (len(inside), len(inside & set(NAMES[:4])))
            assert (found.found > 0).tolist() == [name in NAMES[:4] for name in by_side(rows, inside)]
            p_values.append(found.p)
    assert exceeds(p_values) <= 1.04  # the two dealings without a side are left out
    guess = dealt(rows, set(NAMES[:3]))
    assert phantom(guess, alone(guess), synthetic).features == 0  # by rows it is said by three


def by_side(rows: Sequence[tuple[str, str]], inside: set[str]) -> list[str]:
    return [name for member in (True, False) for name, _ in rows if (name in inside) == member]


# Anonymity.


def anonymity(guess: Guessed, units: Units, synthetic: Sequence[Record]):
    written = Released(synthetic, *guess.sides, ["public words"], units)
    return audit_anonymity(
        written, PASSED, labelled=True, neighbours=1, claim=1.0, best=None, seed=0
    ).attacks  # fmt: skip


def test_an_attack_hits_a_person_if_it_hits_any_of_their_rows():
    guess = dealt(ROWS, set(NAMES[:2]))
    synthetic = [Record(OWN["p0"][0], "x"), Record(OWN["p4"][2], "x"), Record("unlike all others here", "y")]
    by_person, by_row = (anonymity(guess, units, synthetic) for units in (guess.units, alone(guess)))
    for name, found in by_person.items():
        assert (found.main.n, found.control.n) == (2, 4)
        rows = by_row[name]
        assert found.main.count >= min(1, rows.main.count)
        assert found.baseline >= rows.baseline
    label = by_person["inference_label"]
    assert (label.main.count, label.control.count) == (2, 4)
    assert label.baseline == pytest.approx(1.0 - (1.0 / 3.0) ** 4)  # four rows, each guessed by a random row of three


def test_a_person_whose_rows_share_a_word_is_singled_out_by_it():
    rows = [(name, f"only{name} filler word {place}") for name in NAMES for place in range(3)]
    guess, synthetic = (
        dealt(rows, set(NAMES[:3])),
        [Record("onlyp1", "x"), Record("onlyp5", "x"), Record("filler", "x")],
    )
    by_person, by_row = (anonymity(guess, units, synthetic)["singling_out"] for units in (guess.units, alone(guess)))
    assert (by_person.main.count, by_person.control.count) == (1, 1)
    assert (by_row.main.count, by_row.control.count) == (0, 0)
