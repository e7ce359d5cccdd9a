"""Near-duplicates are found exactly, and the guess set does not depend on the order of the rows."""

from itertools import combinations

import numpy as np
import pytest

from palimpsest.records.duplicates import Watched, find_guessable
from palimpsest.records.segment import wording


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
    watched = Watched(sets, similarity)
    met = {(left, right) for right, members in enumerate(sets) for left in watched.find_near(members) if left < right}
    assert met == expected


@pytest.mark.parametrize("similarity", [0.3, 0.5, 2 / 3, 0.8, 1.0])
def test_others_meet_exactly_the_watched_sets_that_are_alike(similarity):
    sets = shingle_sets(np.random.default_rng(3), 160)
    watched = Watched(sets[:30], similarity)
    for members in sets[30:]:
        alike = {place for place, one in enumerate(sets[:30]) if len(one & members) / len(one | members) >= similarity}
        assert sorted(watched.find_near(members)) == sorted(alike)


def test_twins_leave_the_guess_set_and_others_stay():
    texts = [
        "The pump stopped after the update, and the display stays dark",
        "the pump stopped after the update and the display stays DARK!",
        "The pump stopped after the update, and the display stays off",
        "Please send me the invoice of last month again",
        "",
        "...",
    ]
    mask = find_guessable(texts, similarity=0.7, shingle=2)
    assert mask.tolist() == [False, False, False, True, False, False]


def test_one_word_changed_is_near_and_half_the_words_changed_is_not():
    text = [f"w{number}" for number in range(20)]
    near, far = [*text[:10], "other", *text[11:]], [*text[:10], *(f"v{number}" for number in range(10))]
    assert not find_guessable([" ".join(text), " ".join(near)], similarity=0.7, shingle=2).any()
    assert find_guessable([" ".join(text), " ".join(far)], similarity=0.7, shingle=2).all()


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 6, 4)) for _ in range(200)]
    order = rng.permutation(200)
    mask = find_guessable(texts, similarity=0.6, shingle=2)
    assert 0 < mask.sum() < 200
    assert (find_guessable([texts[index] for index in order], similarity=0.6, shingle=2) == mask[order]).all()


@pytest.mark.parametrize("persons", [None, 40])
def test_of_who_is_asked_about_the_answer_is_what_it_is_where_all_are(persons):
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 7, 4)) for _ in range(200)]
    units = None if persons is None else [str(number) for number in rng.integers(0, persons, 200)]
    asked = rng.random(200) < 0.2 if units is None else np.array([int(unit) % 4 == 0 for unit in units])
    whole = find_guessable(texts, units, similarity=0.6, shingle=2)
    some = find_guessable(texts, units, asked, similarity=0.6, shingle=2)
    assert some.tolist() == (whole & asked).tolist()
    assert 0 < some.sum() < asked.sum()


def test_no_texts_give_an_empty_mask():
    assert find_guessable([], similarity=0.7, shingle=2).shape == (0,)


def test_wording_ignores_case_punctuation_spacing_and_compatibility_forms():
    assert wording("  Ｈello,\tWORLD!! ") == wording("hello world") == "hello world"
