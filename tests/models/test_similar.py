"""Public neighbours, and teaching a model to go on with a similar text."""

from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.models.encoder import neighbours
from palimpsest.models.lm import learn_prompts, load_lm, mean_loss, pretrain_lm
from palimpsest.models.settings import EmbeddedLm, Similar
from palimpsest.models.tokens import encode_texts, specials

KINDS = ("red apples and red plums", "blue boats on blue water", "green hills with green grass", "black cats at night")


def unit(*rows: tuple[float, ...]) -> np.ndarray:
    vectors = np.array(rows)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_nearest_of_the_same_label_come_first() -> None:
    vectors = unit((1, 0), (1, 0.5), (1, 1), (0, 1))
    found = neighbours(vectors, ["a"] * 4, 2)
    assert found.tolist() == [[1, 2], [2, 0], [1, 0], [2, 1]]


def test_another_label_is_no_neighbour() -> None:
    found = neighbours(unit((1, 0), (1, 0.5), (1, 1)), ["a", "b", "a"], 2)
    assert found.tolist() == [[2, -1], [-1, -1], [0, -1]]


def test_a_near_copy_is_no_neighbour() -> None:
    found = neighbours(unit((1, 0), (1, 0.01), (1, 1)), ["a"] * 3, 1)
    assert found[:, 0].tolist() == [2, 2, 1]


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit(*np.random.default_rng(0).normal(size=(30, 4)))
    labels = ["a", "b"] * 15
    whole = neighbours(vectors, labels, 3)
    monkeypatch.setattr("palimpsest.models.encoder._BLOCK", 7)
    assert (neighbours(vectors, labels, 3) == whole).all()


def test_rows_are_cut_to_the_context_and_empty_texts_teach_nothing(tmp_path: Path, monkeypatch) -> None:
    shape = EmbeddedLm(
        layers=1, width=32, heads=2, vocabulary=300, context=12, epochs=1, batch=16, learning_rate=0.01,
        weight_decay=0.0,
    )  # fmt: skip
    pretrain_lm(KINDS, KINDS[:1], shape, 0, tmp_path / "lm")
    rows: list[list[int]] = []
    monkeypatch.setattr("palimpsest.models.lm.train", lambda _model, given, *_rest, **_how: rows.extend(given))
    settings = Similar(epochs=1, batch=16, learning_rate=0.01, max_tokens=40, neighbours=1)
    texts = [KINDS[0] * 9, "", KINDS[1]]
    learn_prompts(tmp_path / "lm", texts, [""] * 3, settings, 0, np.array([[2], [0], [1]]))
    assert len(rows) == 3  # two texts alone, one of them behind its neighbour; the empty one is in none
    assert max(map(len, rows)) == 12


def test_a_taught_model_finds_a_text_likelier_behind_a_similar_one(tmp_path: Path) -> None:
    texts = [kind for kind in KINDS for _ in range(40)]
    shape = EmbeddedLm(
        layers=2, width=32, heads=2, vocabulary=300, context=64, epochs=3, batch=16, learning_rate=0.01,
        weight_decay=0.0,
    )  # fmt: skip
    pretrain_lm(texts, texts[:4], shape, 0, tmp_path / "lm")
    before, tokenizer = load_lm(tmp_path / "lm")
    settings = Similar(epochs=10, batch=16, learning_rate=0.01, max_tokens=24, neighbours=1)
    pairs = np.array([[(index + 1) % 40 + index // 40 * 40] for index in range(len(texts))])
    learn_prompts(tmp_path / "lm", texts, [""] * len(texts), settings, 0, pairs)
    taught, _ = load_lm(tmp_path / "lm")
    ids = specials(tokenizer)
    one, other = encode_texts(tokenizer, KINDS[:2], 24)
    alike, unlike = ([ids.bos, ids.sep, *text, ids.sep, *one, ids.eos] for text in (one, other))
    with torch.no_grad():
        gained = mean_loss(taught, [unlike], 1) - mean_loss(taught, [alike], 1)
        had = mean_loss(before, [unlike], 1) - mean_loss(before, [alike], 1)
    assert gained > max(0.1, had)
