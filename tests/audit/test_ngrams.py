"""N-gram counts equal those of plain sets; the excess sees copying and sees nothing in null data."""

import json
from itertools import chain

import numpy as np
import pytest

from palimpsest.audit import ngrams
from palimpsest.audit.ngrams import NgramAudit, WordIds, ngram_audit, shared_ngrams
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.units import Released
from palimpsest.errors import DataError
from palimpsest.records.record import Record
from palimpsest.records.segment import words

ORDERS = (3, 4, 5, 6, 7, 10, 13)


def sentences(rng, count, vocabulary=40, longest=20):
    frequent = 1.0 / np.arange(1, vocabulary + 1)
    draw = [rng.choice(vocabulary, size=rng.integers(0, longest), p=frequent / frequent.sum()) for _ in range(count)]
    return [" ".join(f"w{word}" for word in text) for text in draw]


def grams(text, order):
    tokens = words(text)
    return [tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1)]


def audit(synthetic, members, holdout, public=(), seed=0, resamples=1024, orders=ORDERS, trained=()):
    sides = ([Record(text) for text in side] for side in (synthetic, members, holdout))
    return ngram_audit(Released(*sides, public), trained, orders, Bootstrap(resamples, seed))


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_plain_sets(seed):
    rng = np.random.default_rng(seed)
    references = [sentences(rng, size) for size in (40, 37, 60)]
    references.append(references[0] + sentences(rng, 30))
    synthetic = sentences(rng, 50) + references[0][:2] + references[3][-2:]
    result = audit(synthetic, *references[:3], resamples=64, orders=range(1, 14), trained=references[3])
    for order, overlap in result.orders.items():
        mine = list(chain.from_iterable(grams(text, order) for text in synthetic))
        for name, reference in zip(("train", "holdout", "public", "trained"), references, strict=True):
            known = set(chain.from_iterable(grams(text, order) for text in reference))
            assert getattr(overlap, name).count == sum(gram in known for gram in mine)
            assert getattr(overlap, name).total == len(mine)


@pytest.mark.parametrize("words_of_part", [1, 40, 400])
def test_counts_of_parts_add_up_to_those_of_the_whole(words_of_part, monkeypatch):
    rng = np.random.default_rng(8)
    members, holdout, public = (sentences(rng, size) for size in (40, 37, 60))
    corpora = {"members": members, "holdout": holdout, "public": public, "trained": members + public}
    synthetic = sentences(rng, 50) + members[:2] + [*holdout[-1:], ""]
    whole = audit(synthetic, **corpora, resamples=128, orders=range(1, 25))
    monkeypatch.setattr(ngrams, "_WORDS_OF_PART", words_of_part)
    assert audit(synthetic, **corpora, resamples=128, orders=range(1, 25)) == whole


def test_longest_span_and_verbatim_rows():
    members = ["The cat sat on the mat, all day.", "unrelated words here"]
    holdout = ["a dog sat on the mat", "nothing else"]
    result = audit(["the CAT sat on the mat all day", "dog sat on a log", ""], members, holdout, [], resamples=64)
    assert (result.longest_span.train, result.longest_span.holdout, result.longest_span.public) == (8, 4, 0)
    assert (result.verbatim_rows.train, result.verbatim_rows.holdout, result.verbatim_rows.public) == (1, 0, 0)


def test_the_join_follows_texts_longer_than_the_largest_order():
    vocabulary = {}
    text = " ".join(f"w{number % 7}" for number in range(200))
    first, second = (WordIds.read([text], vocabulary) for _ in range(2))
    assert max(shared.order for shared in shared_ngrams(first, second)) == 200


def test_redrawn_excess_equals_counting_with_sets():
    rng = np.random.default_rng(3)
    synthetic, members, holdout = (sentences(rng, 25) for _ in range(3))
    p = audit(synthetic, members, holdout, resamples=64, orders=[3]).orders[3].p
    pool, is_member = members + holdout, np.arange(50) < 25

    def excess(coins):
        sides = [
            {g for text, coin in zip(pool, coins, strict=True) if coin == side for g in grams(text, 3)}
            for side in (1, 0)
        ]
        return sum((g in sides[0]) - (g in sides[1]) for text in synthetic for g in grams(text, 3))

    # The same 64 permutations, drawn as the audit draws them.
    redrawn = np.random.default_rng(0).permuted(np.repeat(is_member[None], 64, axis=0), axis=1)
    null = [excess(coins) for coins in redrawn]
    assert p == (1 + sum(value >= excess(is_member) for value in null)) / 65


def test_copied_members_are_seen():
    rng = np.random.default_rng(0)
    members, holdout, fresh = (sentences(rng, 150, vocabulary=300) for _ in range(3))
    result = audit(members[:75] + fresh[:75], members, holdout)
    for order in (3, 5, 7, 10):
        overlap = result.orders[order]
        assert 0.2 < overlap.excess.low <= overlap.excess.value <= overlap.excess.high
        assert overlap.p == 1 / 1025
    assert result.verbatim_rows.train >= 70 > result.verbatim_rows.holdout


def test_null_data_raise_no_alarm_and_p_values_are_uniform():
    rng = np.random.default_rng(1)
    p_values = []
    for seed in range(20):
        texts = [sentences(rng, 150) for _ in range(3)]
        p_values.append(audit(*texts, seed=seed, orders=[3]).orders[3].p)
    assert min(p_values) > 1e-3
    assert 0.25 < np.mean(p_values) < 0.75
    assert sum(p < 0.5 for p in p_values) in range(4, 17)


def test_duplicated_rows_on_one_side_do_not_make_a_p_value_small():
    # One sentence in most holdout and member rows: both sides carry its n-grams whatever the coins say.
    common = ["the same old sentence in every row of the file"] * 40
    result = audit(common, common[:20], common[20:], resamples=64)
    assert result.orders[3].excess.value == 0.0
    assert result.orders[3].p == 1.0


def test_json_has_the_published_shape():
    document = audit(["a b c d"], ["a b c"], ["x y z"], ["b c d"], resamples=64, orders=[3, 10]).to_json("dp3")
    assert (document["variant"], document["zone"]) == ("dp3", "internal")
    assert document["orders"]["3"]["train"] == {"count": 1, "total": 2, "rate": 0.5}
    assert set(document["orders"]["10"]["excess"]) == {"value", "low", "high", "p"}
    assert document["longest_span"] == {"train": 3, "holdout": 0, "public": 3}
    assert document["verbatim_rows"] == {"train": 0, "holdout": 0, "public": 0}
    assert NgramAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document


@pytest.mark.parametrize("empty", range(3))
def test_empty_inputs_are_errors(empty):
    texts = [["a b c"], ["a b c"], ["a b c"]]
    texts[empty] = []
    with pytest.raises(DataError):
        audit(*texts, resamples=64)
