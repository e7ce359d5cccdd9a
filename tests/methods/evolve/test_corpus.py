"""Public texts near a description, each given once; variations that are a text's neighbours."""

import numpy as np
import pytest

from palimpsest.methods.evolve.authors import Corpus
from palimpsest.methods.evolve.fit import CorpusAuthor
from palimpsest.methods.public_only import select_public
from palimpsest.records.record import Record

DESCRIPTIONS = {"east": np.array([1.0, 0.0]), "north": np.array([0.0, 1.0])}


def at(*degrees: float) -> np.ndarray:
    return np.column_stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def author(
    degrees, neighbours: int = 3, seed: int = 5, texts=None, descriptions=DESCRIPTIONS, encode=None
) -> CorpusAuthor:
    texts = [f"at {degree}" for degree in degrees] if texts is None else texts
    return CorpusAuthor(Corpus(kind="corpus", neighbours=neighbours), texts, at(*degrees), descriptions, seed, encode)


def cloud(size: int = 300, seed: int = 0) -> tuple[list[str], np.ndarray]:
    found = np.random.default_rng(seed).normal(size=(size, 8))
    return [f"text {number}" for number in range(size)], found / np.linalg.norm(found, axis=1, keepdims=True)


def test_each_text_goes_to_its_nearest_label_the_nearest_first() -> None:
    found = author((20, 5, 60, 90, 40)).random({"north": 1, "east": 2})
    assert found == [Record("at 90", "north"), Record("at 5", "east"), Record("at 20", "east")]


def test_while_texts_last_they_are_those_of_the_public_baseline() -> None:
    texts, embeddings = cloud()
    descriptions = {name: cloud(3, 1)[1][number] for number, name in enumerate("abc")}
    counts = {"b": 40, "a": 60, "c": 20}
    written = CorpusAuthor(Corpus(kind="corpus", neighbours=2), texts, embeddings, descriptions, 1).random(counts)
    assert written == select_public(embeddings, descriptions, texts, None, counts)


def test_a_label_that_has_too_few_goes_on_with_what_nobody_took() -> None:
    found = author((10, 20, 30, 40, 70)).random({"north": 3, "east": 2})
    assert found == [Record("at 70", "north"), Record("at 40", "north"), Record("at 30", "north"),
                     Record("at 10", "east"), Record("at 20", "east")]  # fmt: skip
    assert len(author((10, 20, 30, 40, 70)).random({"north": 4, "east": 9})) == 5


def test_a_text_belongs_to_its_nearest_label_whichever_are_asked_for() -> None:
    assert author((80, 70, 10)).random({"east": 1}) == [Record("at 10", "east")]


def test_ties_go_to_the_earlier_text_and_equal_texts_count_once() -> None:
    found = author((10, -10, 10, 10), texts=["b", "a", "b", "c"])
    assert [record.text for record in found.random({"east": 9})] == ["b", "a", "c"]
    assert [record.text for record in author((0, 10, -10), neighbours=1).vary([Record("at 0")], 3, 0)[0]] == ["at 10"]


def test_without_labels_texts_are_drawn() -> None:
    texts, embeddings = cloud()
    makers = [CorpusAuthor(Corpus(kind="corpus", neighbours=2), texts, embeddings, {}, seed) for seed in (1, 1, 2)]
    first, again, other = (maker.random({"": 50}) for maker in makers)
    assert first == again != other
    assert {record.label for record in first} == {None}
    assert len({record.text for record in first} & set(texts)) == 50
    assert len(makers[0].random({"": 900})) == 300


def test_a_label_without_description_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 labels have no description"):
        author((10, 20)).random({"west": 1})
    with pytest.raises(ValueError, match="1 texts and 2 embeddings"):
        author((10, 20), texts=["a"])


def test_variations_are_the_nearest_texts_but_for_the_text_itself() -> None:
    texts, embeddings = cloud(700)
    made = CorpusAuthor(Corpus(kind="corpus", neighbours=6), texts, embeddings, {}, 3)
    records = [Record(text, f"label {number % 2}") for number, text in enumerate(texts)]
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -2)
    for record, found, row in zip(records, made.vary(records, 4, 0), similarity, strict=True):
        assert len({each.text for each in found}) == 4
        assert {each.text for each in found} <= {texts[place] for place in np.argsort(-row)[:6]}
        assert {each.label for each in found} == {record.label}


def test_variations_are_a_function_of_seed_turn_and_text() -> None:
    texts, embeddings = cloud()
    first, again, other = (
        CorpusAuthor(Corpus(kind="corpus", neighbours=9), texts, embeddings, {}, seed) for seed in (1, 1, 2)
    )
    records = [Record(text) for text in texts]
    found = first.vary(records, 3, 0)
    assert found == again.vary(records, 3, 0)
    assert found == [first.vary([record], 3, 0)[0] for record in records]
    assert found[::-1] == first.vary(records[::-1], 3, 0)
    for changed in (other.vary(records, 3, 0), first.vary(records, 3, 1)):
        assert sum(one != two for one, two in zip(found, changed, strict=True)) > 250


def test_equal_records_get_other_neighbours_as_long_as_they_last() -> None:
    made = author((0, 1, 2, 3, 4, 5, 90), neighbours=5)
    found = made.vary([Record("at 2", "a"), Record("at 90", "a"), Record("at 2", "a"), Record("at 2", "a")], 2, 7)
    assert [len(each) for each in found] == [2, 2, 2, 1]
    assert {record.text for place in (0, 2, 3) for record in found[place]} == {f"at {each}" for each in (0, 1, 3, 4, 5)}


def test_a_strange_text_is_varied_only_where_it_can_be_encoded() -> None:
    strange, known = Record("at 41.5", "x"), Record("at 40", "x")
    degrees = (10, 40, 41, 42, 80)
    assert author(degrees).vary([strange, known], 2, 0)[0] == []
    seen: list[list[str]] = []

    def encode(texts) -> np.ndarray:
        seen.append(list(texts))
        return at(*(float(text.removeprefix("at ")) for text in texts))

    found = author(degrees, encode=encode).vary([known, strange], 3, 0)
    assert {record.text for record in found[1]} == {"at 40", "at 41", "at 42"}
    assert {record.text for record in found[0]} == {"at 41", "at 42", "at 10"}
    assert seen == [["at 41.5"]]


def test_nothing_asked_for_is_nothing_written() -> None:
    made = author((10, 80))
    assert made.random({}) == made.random({"east": 0}) == made.vary([], 3, 0) == []
    assert made.vary([Record("at 10")], 0, 0) == [[]]
    assert author((10,)).vary([Record("at 10")], 2, 0) == [[]]
