"""The demo world: repeatable, without duplicates, true to its answer key, and out of reach of public text."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from palimpsest.models.sources import embedded_folder
from palimpsest.records.record import Record
from palimpsest.records.world.facts import load_facts, words
from tools.world.details import CANARY_KIND, DETAIL_KINDS
from tools.world.generate import World, WorldSettings, make_world, write_world
from tools.world.grammar import LABELS, MODELS

SETTINGS = WorldSettings(seed=7)
SMALL = WorldSettings(
    seed=1, private_rows=300, test_rows=60, public_rows=200, public_test_rows=60, products=4, public_products=8,
    facts=8, support_low=5, support_high=80, public_pairs=20, canaries=4, canary_repeats=(1, 2),
)  # fmt: skip
AUTHORS = dataclasses.replace(SMALL, authors=80)
FILES = ("private.jsonl", "test.jsonl", "public.jsonl", "public_test.jsonl", "facts.json")


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SETTINGS)


def texts(records: Sequence[Record]) -> list[str]:
    return [record.text for record in records]


def labels(records: Sequence[Record]) -> list[str]:
    return [str(record.label) for record in records]


def accuracy(train: np.ndarray, known: list[str], test: np.ndarray, truth: list[str]) -> float:
    return float(LogisticRegression(max_iter=2000, C=10).fit(train, known).score(test, truth))


def tfidf_accuracy(train: list[str], known: list[str], test: list[str], truth: list[str]) -> float:
    vectorizer = TfidfVectorizer().fit(train)
    return accuracy(vectorizer.transform(train), known, vectorizer.transform(test), truth)


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        write_world(make_world(SMALL), tmp_path / folder)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("seed", range(5))
def test_the_tightest_settings_still_find_a_row_for_every_statement(seed):
    tight = WorldSettings(
        seed=seed, private_rows=200, test_rows=50, public_rows=100, public_test_rows=50, products=2, public_products=2,
        facts=4, support_low=60, support_high=80, public_pairs=20, canaries=0,
    )  # fmt: skip
    world = make_world(tight)
    assert world.facts.count_carried(texts(world.private)) == {fact.id: fact.support for fact in world.facts.population}


@pytest.mark.parametrize("rows", [100, 999, 1500, 9999])
def test_a_small_world_holds_every_statement_too(rows):
    public = {"public_rows": 100, "public_test_rows": 100}
    world = make_world(WorldSettings.sized(seed=1, private_rows=rows, test_rows=100, **public, authors=None))
    assert len(world.private) == rows
    assert world.facts.count_carried(texts(world.private)) == {fact.id: fact.support for fact in world.facts.population}


def test_a_world_of_the_usual_size_has_all_facts_and_canaries():
    public = {"public_rows": 8000, "public_test_rows": 1500}
    usual = WorldSettings.sized(seed=7, private_rows=10_000, test_rows=1500, **public, authors=None)
    assert usual == SETTINGS
    assert WorldSettings.sized(seed=7, private_rows=20_000, test_rows=1500, **public, authors=None).facts == usual.facts


def test_another_seed_is_another_world():
    one, two = make_world(SMALL), make_world(dataclasses.replace(SMALL, seed=2))
    assert not set(texts(one.private)) & set(texts(two.private))
    assert {fact.subject for fact in one.facts.population} != {fact.subject for fact in two.facts.population}


def test_a_larger_public_file_leaves_the_private_one_alone():
    more = make_world(dataclasses.replace(SMALL, public_rows=400))
    assert more.private == make_world(SMALL).private


def test_the_files_hold_what_the_world_holds(tmp_path):
    small = make_world(SMALL)
    write_world(small, tmp_path)
    rows = {name: [json.loads(line) for line in (tmp_path / name).open(encoding="utf-8")] for name in FILES[:4]}
    assert rows["private.jsonl"] == [{"text": r.text, "label": r.label} for r in small.private]
    assert rows["public.jsonl"] == [{"text": r.text} for r in small.public]
    assert [len(rows[name]) for name in FILES[:4]] == [300, 60, 200, 60]
    assert load_facts(tmp_path / "facts.json") == small.facts


def test_no_two_records_are_equal(world):
    everything = [
        " ".join(words(r.text)) for p in (world.private, world.test, world.public, world.public_test) for r in p
    ]
    assert len(everything) == 21_000 == len(set(everything))


def test_texts_are_of_moderate_length(world):
    lengths = [len(text.split()) for text in texts(world.private)]
    assert np.quantile(lengths, 0.05) >= 12
    assert np.quantile(lengths, 0.95) <= 40
    assert max(lengths) <= 60


def test_labels_are_uneven_but_none_is_rare(world):
    for records in (world.private, world.test, world.public_test):
        shares = np.array(sorted(Counter(labels(records)).values())) / len(records)
        assert set(labels(records)) == set(LABELS)
        assert shares[0] >= 0.10
        assert shares[-1] >= shares[0] + 0.05
    assert {record.label for record in world.public} == {None}


def test_facts_have_exactly_the_support_they_declare(world):
    declared = {fact.id: fact.support for fact in world.facts.population}
    assert world.facts.count_carried(texts(world.private)) == declared
    assert sorted(declared.values(), reverse=True) == SETTINGS.supports
    assert (len(declared), min(declared.values()), max(declared.values())) == (96, 10, 400)


@pytest.mark.parametrize("split", ["test", "public_test"])
def test_the_test_files_state_the_same_facts_in_the_same_proportions(world, split):
    stated = world.facts.count_carried(texts(getattr(world, split)))
    for fact in world.facts.population:
        assert stated.get(fact.id, 0) == pytest.approx(fact.support * 0.15, abs=1)


def test_public_text_names_the_private_products_but_never_a_symptom_of_theirs(world):
    public = texts(world.public)
    subjects = {fact.subject for fact in world.facts.population}
    assert all(any(subject in text for text in public) for subject in subjects)
    assert world.facts.count_carried(public) == {}
    assert world.facts.count_mispaired(public) == 0
    assert sum(bool(world.facts.statements(text)) for text in public) > 0.9 * len(public)


def test_every_word_of_the_private_products_and_symptoms_is_public(world):
    public = {word for text in texts(world.public) for word in words(text)}
    private = {word for f in world.facts.population for word in words(f"{f.subject} {f.predicate}")}
    assert private <= public
    assert all(fact.subject.split()[1] in MODELS for fact in world.facts.population)


def test_neither_the_product_nor_the_symptom_alone_decides_the_team(world):
    for name in ("subject", "predicate"):
        teams: dict[str, set[str]] = {}
        for fact in world.facts.population:
            teams.setdefault(getattr(fact, name), set()).add(fact.team)
        assert sum(len(different) for different in teams.values()) > 1.3 * len(teams)


def test_private_tickets_never_pair_a_product_with_a_wrong_symptom(world):
    assert world.facts.count_mispaired(texts(world.private)) == 0


def test_every_individual_fact_is_in_one_private_record_and_nowhere_else(world):
    found = world.facts.find_leaked(texts(world.private)).individual
    assert found == {fact.id: 1 for fact in world.facts.individual}
    assert len(found) > 0.5 * len(world.private)
    for other in (world.test, world.public, world.public_test):
        leaks = world.facts.find_leaked(texts(other))
        assert (leaks.individual, leaks.canaries) == ({}, {})


def test_secrets_cannot_be_guessed():
    assert all(math.prod(map(len, kind.slots)) >= 2**30 for kind in (*DETAIL_KINDS, CANARY_KIND))
    assert {kind.pattern.count("{}") for kind in DETAIL_KINDS} >= {10, 11, 12}
    assert all(kind.pattern.count("{}") == len(kind.slots) for kind in (*DETAIL_KINDS, CANARY_KIND))


def test_canaries_are_planted_as_often_as_declared(world):
    found = world.facts.find_leaked(texts(world.private)).canaries
    assert found == {canary.id: canary.repeats for canary in world.facts.canaries}
    assert sorted(set(found.values())) == [1, 2, 4, 8, 16, 32]
    assert len(found) == 20


def test_a_bag_of_words_is_good_but_not_perfect(world):
    private, test = world.private, world.test
    assert 0.80 < tfidf_accuracy(texts(private), labels(private), texts(test), labels(test)) < 0.97


@pytest.mark.slow
def test_public_text_alone_cannot_do_the_task(world):
    private, test, public = world.private[:500], world.test[:150], texts(world.public)[:300]
    encoder = pytest.importorskip("sentence_transformers").SentenceTransformer(str(embedded_folder()), device="cpu")
    rows = [*public, *texts(private), *texts(test), *LABELS.values()]
    vectors = np.split(encoder.encode(rows, normalize_embeddings=True, show_progress_bar=False), [300, 800, 950])
    public_vectors, private_vectors, test_vectors, descriptions = vectors
    best = np.argsort(-(public_vectors @ descriptions.T), axis=0)[:40].T  # (labels, 40)
    guessed = [name for name in LABELS for _ in range(40)]

    real = accuracy(private_vectors, labels(private), test_vectors, labels(test))
    public_only = accuracy(public_vectors[best.ravel()], guessed, test_vectors, labels(test))
    assert public_only <= 0.80 * real

    chosen = [public[index] for index in best.ravel()]
    real = tfidf_accuracy(texts(private), labels(private), texts(test), labels(test))
    assert tfidf_accuracy(chosen, guessed, texts(test), labels(test)) <= 0.80 * real


@pytest.mark.parametrize(
    "change",
    [
        {"private_rows": 180},
        {"support_high": 130},
        {"facts": 1},
        {"label_noise": 1.5},
        {"test_rows": 0},
        {"public_pairs": 5},
    ],
)
def test_impossible_settings_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        dataclasses.replace(SMALL, **change)


# --- a world of authors ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signed() -> World:
    return make_world(dataclasses.replace(SETTINGS, authors=2500))


def by_customer(world: World, part: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for customer, record in zip(world.customers[part], getattr(world, part), strict=True):
        found.setdefault(customer, []).append(record)
    return found


def test_the_same_seed_writes_the_same_bytes_with_authors(tmp_path):
    for folder in ("one", "two"):
        write_world(make_world(AUTHORS), tmp_path / folder)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_world_without_authors_names_nobody():
    assert make_world(SMALL).customers == {}


def test_the_files_name_the_author_of_every_private_and_test_ticket(tmp_path):
    world = make_world(AUTHORS)
    write_world(world, tmp_path)
    for name in FILES[:4]:
        rows = [json.loads(line) for line in (tmp_path / name).open(encoding="utf-8")]
        assert [row.get("customer") for row in rows] == list(world.customers.get(name[:-6], [None] * len(rows)))
    assert set(world.customers) == {"private", "test"}
    assert len(set(world.customers["private"])) == 80


def test_public_tickets_are_the_same_with_authors():
    assert make_world(AUTHORS).public == make_world(SMALL).public


def test_most_customers_wrote_little_and_a_few_wrote_much(signed):
    counts = np.array(sorted((len(rows) for rows in by_customer(signed, "private").values()), reverse=True))
    assert (len(counts), counts.sum(), counts[-1]) == (2500, 10_000, 1)
    assert np.median(counts) <= 2
    assert counts[:25].sum() > 0.2 * counts.sum()  # one customer in a hundred
    assert np.allclose(counts[:100] - 1, 7500 / (8.40 * np.arange(1, 101)), atol=1)  # Zipf's law


def test_a_customer_writes_about_several_products_and_to_several_teams(signed):
    several = [rows for rows in by_customer(signed, "private").values() if len(rows) >= 8]
    assert len(several) >= 80
    assert np.mean([len(set(labels(rows))) > 2 for rows in several]) > 0.9
    subjects = [{subject for row in rows for subject, _ in signed.facts.statements(row.text)} for rows in several]
    assert np.mean([len(own) > 2 for own in subjects]) > 0.9


def test_an_individual_fact_is_one_customers_alone_and_comes_again(signed):
    """Nobody else quotes it, and those with many tickets quote it more than once."""
    again: set[str] = set()
    seen: set[str] = set()
    for rows in by_customer(signed, "private").values():
        stated = Counter(fact for row in rows for fact in signed.facts.find_individual(row.text))
        assert seen.isdisjoint(stated)
        seen |= set(stated)
        again |= {fact for fact, times in stated.items() if times > 1}
    assert seen == {fact.id for fact in signed.facts.individual}
    assert len(again) > 300
    for other in (signed.test, signed.public, signed.public_test):
        assert signed.facts.find_leaked(texts(other)).individual == {}


def test_the_answer_key_counts_customers_and_not_their_repetitions(signed):
    stated: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for rows in by_customer(signed, "private").values():
        stated.update({fact for row in rows for fact in signed.facts.find_population(row.text)})
        held.update({canary for row in rows for canary in signed.facts.find_canaries(row.text)})
    assert stated == {fact.id: fact.support for fact in signed.facts.population}
    assert held == {canary.id: canary.repeats for canary in signed.facts.canaries}
    assert sum(stated.values()) < 0.95 * sum(SETTINGS.supports)  # so that rows are another number


def test_test_tickets_are_other_peoples(signed):
    assert set(signed.customers["private"]).isdisjoint(signed.customers["test"])
    assert len(set(signed.customers["test"])) == 375
    assert len(signed.customers["test"]) == len(signed.test)


def test_no_two_records_are_equal_with_authors(signed):
    everything = [" ".join(words(r.text)) for p in (signed.private, signed.test, signed.public) for r in p]
    assert len(everything) == len(set(everything))


@pytest.mark.parametrize("authors", [0, 301])
def test_impossible_numbers_of_authors_are_refused(authors):
    with pytest.raises(ValueError, match="must be"):
        dataclasses.replace(SMALL, authors=authors)
