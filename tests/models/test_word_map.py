"""The public map of words: frequent words, near ones together, every word in one set at most."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.models.word_map import frequent_words, word_map

POINTS = {
    "cat": (1.0, 0.1), "dog": (1.0, 0.2), "cow": (1.0, 0.4), "red": (0.1, 1.0), "blue": (0.0, 1.0), "green": (0.3, 1.0)
}  # fmt: skip
TEXTS = ["cat cat cat cat cat cat", "Red red red RED dog dog dog", "blue, blue! green? green cow 7 7 7 7 7 7 7 7"]


def encode(words: Sequence[str]) -> np.ndarray:
    return np.array([POINTS[word] for word in words])


def by_hash(words: Sequence[str]) -> np.ndarray:
    """Any vectors, the same for the same word."""
    return np.array([np.random.default_rng(list(word.encode())).normal(size=5) for word in words]).reshape(-1, 5)


def test_near_words_come_together_the_frequent_first():
    found = word_map(TEXTS, encode, 3, 6)
    assert found.words == (("cat", "dog", "cow"), ("red", "blue", "green"))


def test_similarity_is_the_rescaled_cosine():
    found = word_map(TEXTS, encode, 3, 6)
    cat, dog, cow = (np.array(POINTS[word]) / np.linalg.norm(POINTS[word]) for word in ("cat", "dog", "cow"))
    expected = (cat @ dog - cat @ cow) / (1.0 - cat @ cow)
    assert found.similarity[0, 0] == pytest.approx([1.0, expected, 0.0])
    assert found.similarity[0, 1, 0] == pytest.approx(expected)


def test_words_that_fill_no_set_are_left_out():
    found = word_map(TEXTS, encode, 4, 6)
    assert [set(own) for own in found.words] == [{"cat", "red", "dog", "blue"}]


def test_the_vocabulary_is_the_most_frequent():
    assert {word for own in word_map(TEXTS, encode, 2, 4).words for word in own} == {"cat", "red", "dog", "blue"}
    assert frequent_words(TEXTS, 100) == ["cat", "red", "dog", "blue", "green", "cow"]


def test_numbers_are_no_words():
    assert frequent_words(["A4 7 x_1 3rd don't don’t"], 10) == ["don't"]


def test_too_few_words_are_an_error():
    with pytest.raises(DataError, match="fewer than 7"):
        word_map(TEXTS, encode, 7, 100)
    with pytest.raises(ValueError, match="vocabulary"):
        word_map(TEXTS, encode, 7, 6)


def test_equal_vectors_are_equally_similar():
    found = word_map(["a b c d"], lambda words: np.ones((len(words), 3)), 2, 4)
    assert found.words == (("a", "b"), ("c", "d"))
    assert (found.similarity == 1.0).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(6, 40), st.integers(6, 40))
def test_every_set_is_of_one_size_and_no_word_is_in_two(neighbours, vocabulary, different):
    texts = [f"w{'x' * number} " * (number + 1) for number in range(different)]
    found = word_map(texts, by_hash, neighbours, vocabulary)
    words = [word for own in found.words for word in own]
    most = min(vocabulary, different)
    assert len(words) == len(set(words)) == most - most % neighbours
    assert {len(own) for own in found.words} == {neighbours}
    assert found.similarity.min() >= 0.0
    assert np.allclose(np.diagonal(found.similarity, axis1=1, axis2=2), 1.0)
    assert [own[0] for own in found.words] == sorted((own[0] for own in found.words), key=words_in_use(texts))


def words_in_use(texts: Sequence[str]):
    order = frequent_words(texts, 10**6)
    return order.index


def test_a_word_is_in_its_own_set_whatever_rounding_says():
    """Many equal vectors: the set of a word is made by it, even where others are as near."""
    found = word_map([" ".join("abcdefgh")], lambda words: np.full((len(words), 7), 0.1), 3, 8)
    assert [own[0] for own in found.words] == ["a", "d"]


def test_the_map_is_the_same_each_time():
    first, again = (word_map(TEXTS, encode, 2, 6) for _ in range(2))
    assert first.words == again.words
    assert np.array_equal(first.similarity, again.similarity)
