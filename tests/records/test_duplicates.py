"""Near-duplicates are found exactly, and the guess set does not depend on the order of the rows."""

from itertools import combinations

import numpy as np
import pytest

from palimpsest.records.duplicates import guessable, near_duplicates, wording


def shingle_sets(rng, count):
    sizes = rng.integers(1, 9, count)
    return [frozenset((f"w{number}",) for number in rng.integers(0, 14, size)) for size in sizes]


@pytest.mark.parametrize("similarity", [0.3, 0.5, 2 / 3, 0.8, 1.0])
def test_near_duplicates_are_all_pairs_above_the_similarity(similarity):
    sets = shingle_sets(np.random.default_rng(0), 120)
    expected = {
        (left, right)
        for left, right in combinations(range(len(sets)), 2)
        if len(sets[left] & sets[right]) / len(sets[left] | sets[right]) >= similarity
    }
    assert expected
    assert set(near_duplicates(sets, similarity)) == expected


def test_twins_leave_the_guess_set_and_others_stay():
    texts = [
        "The pump stopped after the update, and the display stays dark",
        "the pump stopped after the update and the display stays DARK!",
        "The pump stopped after the update, and the display stays off",
        "Please send me the invoice of last month again",
        "",
        "...",
    ]
    mask = guessable(texts, similarity=0.7, shingle=2)
    assert mask.tolist() == [False, False, False, True, False, False]


def test_one_word_changed_is_near_and_half_the_words_changed_is_not():
    text = [f"w{number}" for number in range(20)]
    near, far = [*text[:10], "other", *text[11:]], [*text[:10], *(f"v{number}" for number in range(10))]
    assert not guessable([" ".join(text), " ".join(near)], similarity=0.7, shingle=2).any()
    assert guessable([" ".join(text), " ".join(far)], similarity=0.7, shingle=2).all()


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 6, 4)) for _ in range(200)]
    order = rng.permutation(200)
    mask = guessable(texts, similarity=0.6, shingle=2)
    assert 0 < mask.sum() < 200
    assert (guessable([texts[index] for index in order], similarity=0.6, shingle=2) == mask[order]).all()


def test_no_texts_give_an_empty_mask():
    assert guessable([], similarity=0.7, shingle=2).shape == (0,)


def test_wording_ignores_case_punctuation_spacing_and_compatibility_forms():
    assert wording("  Ｈello,\tWORLD!! ") == wording("hello world") == "hello world"
