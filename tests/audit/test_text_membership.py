"""Rows that copy members are caught by the attacks on texts, rows that know nothing are not; no score sees a coin."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from math import log

import numpy as np
import pytest

from palimpsest.audit.membership import audit_membership, bag_of_words_control
from palimpsest.audit.ngrams import WordIds
from palimpsest.audit.statistics import auc_null_interval, auc_value
from palimpsest.audit.text_membership import (
    TextMembershipAudit,
    embedding_attack,
    label_attack,
    log_likelihoods,
    nearest_attack,
    ngram_attack,
    phantom_test,
    text_attacks,
)
from palimpsest.audit.units import Released
from palimpsest.errors import DataError
from palimpsest.records.record import Record
from palimpsest.records.segment import words

ORDERS = (1, 2, 3)
LABELS = ("red", "blue")


def rows(seed, count):
    """Texts of a few common words and one of very many; a word hints at the label."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        common = [f"w{number}" for number in rng.zipf(1.4, 9) % 200]
        label = LABELS[rng.integers(2)]
        found.append(Record(" ".join([label[0] * 3, *common, f"name{rng.integers(10**6)}"]), label))
    return found


def world(synthetic, seed=0, side=150):
    members, nonmembers = rows(1000 + seed, side), rows(2000 + seed, side)
    public = [row.text for row in rows(3000 + seed, 200)]
    return Released(synthetic(members), members, nonmembers, public)


def copies(members):
    return [*members[:100], *rows(5, 100)]


def blind(members):
    return rows(6, 200)


def attacks(released):
    phantom = phantom_test(released, [], ORDERS)
    found = text_attacks(released, order=3, labelled=True, seed=0)
    return found | {"rare": released.scores(phantom.found)}


def verdict(released, claim=1.0):
    texts = [[row.text for row in side] for side in (released.members, released.nonmembers)]
    control = bag_of_words_control(*texts, seed=0)
    return audit_membership(
        attacks(released), control, claim=claim, delta=1e-5, guess_share=0.2, alpha=0.05, seed=0,
        guessed="members",
    )  # fmt: skip


def test_copied_members_are_found_and_the_claim_is_refuted():
    result = verdict(world(copies))
    for name in ("ngram", "nearest_words", "nearest_characters", "rare"):
        assert result.attacks[name].auc.value > 0.8, name
        assert result.epsilon_lower.per_attack[name] == result.epsilon_lower.guesses == 60, name
    assert (result.verdict, result.control.passed) == ("refuted", True)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_know_nothing_of_the_members_are_not_refuted(seed):
    released = world(lambda members: rows(60 + seed, 200), seed)
    for name, attack in attacks(released).items():
        null = auc_null_interval(attack.members, attack.nonmembers, 0.9999)
        assert null.low <= auc_value(attack.members, attack.nonmembers) <= null.high, name
    assert verdict(released).verdict == "not refuted"


def test_unfair_coins_make_the_verdict_inconclusive():
    honest = world(copies)
    marked = [replace(row, text=f"{row.text} subscriber") for row in honest.members]
    result = verdict(replace(honest, members=marked, synthetic=copies(marked)))
    assert (result.control.passed, result.verdict) == (False, "inconclusive")


def test_no_score_depends_on_a_coin():
    first = world(copies, side=40)
    coins = np.random.default_rng(3).permutation(80) < 30
    turned = replace(
        first,
        members=[row for row, coin in zip(first.records, coins, strict=True) if coin],
        nonmembers=[row for row, coin in zip(first.records, coins, strict=True) if not coin],
    )
    order = [first.records.index(row) for row in turned.records]
    vectors = np.random.default_rng(4).normal(size=(80 + 200 + 200, 6))

    def scores(released, records):
        embedded = embedding_attack(released, records, vectors[80:280], vectors[280:], 0)
        every = attacks(released) | {"nearest_embeddings": embedded}
        return {name: np.concatenate([one.members, one.nonmembers]) for name, one in every.items()}

    one, other = scores(first, vectors[:80]), scores(turned, vectors[:80][order])
    for name, values in one.items():
        assert np.ptp(values) > 0, name
        assert np.allclose(values[order], other[name], atol=1e-5), name


def naive(fitted, text, order, vocabulary):
    """Mean log-probability of the words, from dictionaries."""
    counts, followers = Counter(), defaultdict(set)
    for tokens in map(words, fitted):
        for size in range(1, order + 1):
            for start in range(len(tokens) - size + 1):
                gram = tuple(tokens[start : start + size])
                counts[gram] += 1
                followers[gram[:-1]].add(gram[-1])

    def probability(history, word):
        shorter = probability(history[1:], word) if history else 1.0 / vocabulary
        kinds = len(followers[history])
        total = sum(counts[(*history, other)] for other in followers[history])
        return (counts[(*history, word)] + kinds * shorter) / (total + kinds) if total else shorter

    tokens = words(text)
    found = [probability(tuple(tokens[max(0, at - order + 1) : at]), word) for at, word in enumerate(tokens)]
    return sum(map(log, found)) / max(1, len(found))


@pytest.mark.parametrize("order", [1, 2, 4])
def test_likelihoods_equal_those_from_dictionaries(order):
    rng = np.random.default_rng(order)
    draw = [" ".join(f"w{word}" for word in rng.integers(0, 6, rng.integers(0, 12))) for _ in range(60)]
    fitted, texts = draw[:40], [*draw[40:], "w1 never heard w2", ""]
    vocabulary = {}
    corpus = WordIds.read([*fitted, *texts], vocabulary)
    found = log_likelihoods(corpus, len(fitted), order, len(vocabulary))
    assert found == pytest.approx([naive(fitted, text, order, len(vocabulary)) for text in texts])


def test_a_model_spreads_one_unit_of_probability():
    fitted, names = ["a b a c", "b a b", "c"], ["a", "b", "c", "d", "e"]
    corpus = WordIds.read([*fitted, *(f"a b {name}" for name in names)], {})
    found = log_likelihoods(corpus, len(fitted), 3, len(names))
    start = log_likelihoods(WordIds.read([*fitted, "a b"], {}), len(fitted), 3, len(names))[0] * 2
    assert np.exp(found * 3 - start).sum() == pytest.approx(1.0)


def test_the_ngram_attack_asks_what_is_likelier_than_in_public_text():
    likely, public = [Record("the cat sat on the mat")], ["the dog ran in the park"]
    released = Released(likely, likely, [Record(public[0])], public)
    scores = ngram_attack(released, 2)
    assert scores.members[0] > 0 > scores.nonmembers[0]
    assert ngram_attack(replace(released, public=[likely[0].text]), 2).members[0] == 0.0


def test_nearness_is_measured_against_as_many_public_rows():
    released = world(blind, side=20)
    few = replace(released, synthetic=released.synthetic[:7])
    assert len(few.draw_public(0)) == 7
    assert set(few.draw_public(0)) != set(few.draw_public(1))
    assert replace(few, public=released.public[:3]).draw_public(0).tolist() == [0, 1, 2]
    same = replace(released, public=[row.text for row in released.synthetic])
    assert np.abs(nearest_attack(same, "word", 0).members).max() < 1e-6


def test_words_and_characters_see_a_script_without_spaces():
    member, other = Record("我的打印机今天早上又坏了"), Record("请问发票什么时候可以寄来")
    released = Released([Record("她的打印机今天早上没有坏")], [member], [other], ["天气很好我们去公园吧"])
    for features in ("character", "word"):
        found = nearest_attack(released, features, 0)
        assert found.members[0] > 0.1 > found.nonmembers[0]


def test_nearness_of_embeddings():
    released = Released([Record("a")], [Record("b")], [Record("c")], ["d"])
    records = np.array([[1.0, 0.0], [0.0, 1.0]])
    scores = embedding_attack(released, records, np.array([[0.6, 0.8]]), np.array([[0.0, 1.0]]), 0)
    assert (scores.members.tolist(), scores.nonmembers.round(9).tolist()) == ([0.6], [-0.2])


def test_a_record_with_the_wrong_label_is_rather_no_member():
    released = world(blind, side=20)
    turned = [replace(row, label=LABELS[row.label == "red"]) for row in released.members]
    scores = label_attack(replace(released, nonmembers=turned))
    assert scores.members.min() > scores.nonmembers.max()


def test_a_label_that_no_row_has_is_the_least_likely():
    released = world(blind, side=20)
    scores = label_attack(replace(released, nonmembers=[Record("rrr w1", "green"), Record("w1", None)]))
    assert scores.nonmembers.tolist() == [pytest.approx(log(1e-12))] * 2


@pytest.mark.parametrize("synthetic", [[Record("some text", "red")] * 3, [Record("...", "red"), Record("!", "blue")]])
def test_rows_of_one_label_or_without_a_word_say_nothing_by_labels(synthetic):
    scores = label_attack(replace(world(blind, side=20), synthetic=synthetic))
    assert not scores.members.any()
    assert not scores.nonmembers.any()


def test_phantoms_are_counted_by_record():
    members = [Record("alpha beta gamma"), Record("delta common"), Record("shared one")]
    nonmembers = [Record("epsilon zeta"), Record("eta shared"), Record("theta")]
    released = Released(
        [Record("alpha BETA delta common, shared"), Record("zeta theta eta")], members, nonmembers, ["one"]
    )
    one, two = phantom_test(released, ["theta common"], (1, 2)).orders.values()
    # alpha beta gamma delta epsilon zeta eta: not shared (two records), common and theta (other private), one (public)
    assert (one.features, one.train.count, one.train.n, one.holdout.count, one.holdout.n) == (7, 2, 3, 2, 3)
    assert one.found.tolist() == [2, 1, 0, 1, 1, 0]
    assert one.p == pytest.approx(11 / 16)  # at least 2 of 4 fair coins
    assert (two.features, two.found.tolist(), two.p) == (6, [1, 1, 0, 0, 0, 0], 0.25)
    both = phantom_test(released, ["theta common"], (1, 2))
    assert both.p == 0.5
    assert both.found.tolist() == [2.5, 1.5, 0.0, 1.0, 1.0, 0.0]


def test_phantoms_under_fair_coins_are_rarely_significant():
    pool, hits = rows(8, 60), 0
    released = [*pool[:20], *rows(9, 20)]
    for seed in range(200):
        coins = np.random.default_rng(seed).random(60) < 0.5
        sides = [[row for row, coin in zip(pool, coins, strict=True) if coin == side] for side in (True, False)]
        hits += phantom_test(Released(released, *sides, []), [], (1, 2, 5)).p <= 0.05
    assert hits <= 10


def test_orders_longer_than_any_text_have_no_feature():
    released = Released([Record("a b")], [Record("a")], [Record("b")], [])
    (one,) = phantom_test(released, [], (4,)).orders.values()
    assert (one.features, one.train.count, one.p, one.found.tolist()) == (0, 0, 1.0, [0, 0])


def test_an_empty_release_or_subset_is_an_error():
    with pytest.raises(DataError, match="synthetic"):
        Released([], [Record("a")], [Record("b")], [])
    with pytest.raises(DataError, match="audit subset"):
        Released([Record("a")], [Record("a")], [], [])


def test_json_has_the_published_shape():
    released = world(copies, side=40)
    document = TextMembershipAudit(verdict(released), phantom_test(released, [], ORDERS)).to_json("dp3")
    assert TextMembershipAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert set(document["attacks"]) == {"ngram", "nearest_words", "nearest_characters", "label", "rare"}
    assert document["epsilon_lower"]["guessed"] == "members"
    assert set(document["phantom"]) == {"orders", "p"}
    assert set(document["phantom"]["orders"]["1"]) == {"features", "train", "holdout", "p"}
    assert set(document["phantom"]["orders"]["1"]["train"]) == {"count", "n", "rate", "low", "high"}
