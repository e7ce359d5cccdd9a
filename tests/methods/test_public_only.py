"""The public baseline: labelled rows first, then the nearest unlabelled ones, each used once."""

import numpy as np
import pytest

from palimpsest.methods.public_only import select_public
from palimpsest.records.record import Record

DESCRIPTIONS = {"east": np.array([1.0, 0.0]), "north": np.array([0.0, 1.0])}


def at(*degrees):
    return np.column_stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def test_unlabelled_texts_go_to_the_nearest_description_best_first():
    texts = ["e20", "e5", "n60", "n90", "e40"]
    chosen = select_public(at(20, 5, 60, 90, 40), DESCRIPTIONS, texts, None, {"north": 1, "east": 2})
    assert chosen == [Record("n90", "north"), Record("e5", "east"), Record("e20", "east")]


def test_public_labels_win_over_embeddings():
    texts, labels = ["a", "b", "c", "d"], ["north", None, "west", None]
    chosen = select_public(at(0, 80, 90, 10), DESCRIPTIONS, texts, labels, {"north": 2, "east": 1})
    assert chosen == [Record("a", "north"), Record("b", "north"), Record("d", "east")]


def test_no_text_is_used_twice_and_a_label_may_fall_short():
    degrees = np.random.default_rng(0).uniform(0, 90, 50)
    texts = [str(number) for number in range(50)]
    chosen = select_public(at(*degrees), DESCRIPTIONS, texts, None, {"east": 40, "north": 40})
    assert len(chosen) == len({record.text for record in chosen}) == 50


def test_arguments_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="2 embeddings"):
        select_public(at(0, 1), DESCRIPTIONS, ["one"], None, {"east": 1})
    with pytest.raises(ValueError, match="no description"):
        select_public(at(0), DESCRIPTIONS, ["one"], None, {"west": 1})
