"""The n-gram audit splits texts as everything else does, only faster."""

from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.audit.ngrams import WordIds, shared_ngrams
from palimpsest.records.segment import words

_CHARACTERS = st.one_of(st.characters(max_codepoint=127), st.sampled_from("éŞİßﬁ１\u00a0\u2028中²"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(_CHARACTERS)))
def test_words_are_those_of_the_duplicate_search(texts: list[str]) -> None:
    vocabulary: dict[str, int] = {}
    found = WordIds.read(texts, vocabulary)
    names = {number: word for word, number in vocabulary.items()}
    rows = [[names[int(number)] for number in found.ids[found.row == row]] for row in range(len(texts))]
    assert rows == [words(text) for text in texts]
    assert found.left.tolist() == [len(row) - place for row in rows for place in range(len(row))]
    assert found.rows == len(texts)
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_a_second_corpus_goes_on_with_the_numbers_of_the_first() -> None:
    vocabulary: dict[str, int] = {}
    WordIds.read(["a b"], vocabulary)
    assert WordIds.read(["c b a"], vocabulary).ids.tolist() == [2, 1, 0]


def test_corpora_without_a_word_in_common_share_nothing() -> None:
    vocabulary: dict[str, int] = {}
    first, second, empty = (WordIds.read(texts, vocabulary) for texts in (["a b"], ["c"], []))
    assert list(shared_ngrams(first, second)) == list(shared_ngrams(first, empty)) == []
