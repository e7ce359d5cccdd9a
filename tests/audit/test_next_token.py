"""Readings equal plain passes, text of the same kind teaches more, and what it comes to is told per token."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.audit import finetune as audit
from palimpsest.audit.finetune import Reading, evaluate_readings, next_token, read, token_rows
from palimpsest.audit.next_token_settings import NextToken
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.utility import Scored, gap_closed, retention
from palimpsest.errors import DataError
from palimpsest.models import attention
from palimpsest.models.lm import load_lm, pretrain_lm
from palimpsest.models.settings import EmbeddedLm

PUBLIC = [f"A {thing} in the {place}." for thing in ("lamp", "cat", "car", "sea") for place in ("hall", "park", "fog")]
OWN = [f"The {thing} hums; nobody knows why." for thing in ("lamp", "cat", "car", "sea", "hall", "park", "fog")]
SMALL = EmbeddedLm(layers=1, width=16, heads=2, vocabulary=280, context=48, epochs=10, batch=8, learning_rate=0.01)
DRAWS = Bootstrap(resamples=300, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lm") / "small"
    pretrain_lm(PUBLIC, PUBLIC[:2], SMALL, 1, path)
    return path


@torch.no_grad()
def test_a_reading_is_that_of_plain_passes_however_texts_are_batched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = load_lm(folder)
    rows = token_rows(tokenizer, [PUBLIC[0], "", OWN[3], "Zx!", OWN[1] * 9], 30)
    assert (len(rows[1]), len(rows[4])) == (2, 30)
    found = read(model, rows)
    for row, right, loss, tokens in zip(rows, found.right, found.losses, found.tokens, strict=True):
        wanted = model(torch.tensor([row])).logits[0, :-1].log_softmax(dim=-1)
        assert loss == pytest.approx(-sum(float(wanted[at, token]) for at, token in enumerate(row[1:])), rel=1e-4)
        assert right == sum(int(wanted[at].argmax()) == token for at, token in enumerate(row[1:]))
        assert tokens == len(row) - 1
    monkeypatch.setattr(audit, "_BATCH", 1)
    monkeypatch.setattr(attention, "MOST_LOGITS", 1000)  # three positions at once
    alone = read(model, rows)
    np.testing.assert_allclose(alone.losses, found.losses, rtol=1e-4)
    assert alone.right.tolist() == found.right.tolist()


def test_text_of_the_same_kind_teaches_more_than_public_text(folder: Path) -> None:
    schooling = NextToken(epochs=20, batch=4, learning_rate=0.01).schooling(named=False)
    real, public = (next_token(folder, rows, OWN[4:], schooling, 64, range(3), DRAWS) for rows in (OWN[:4] * 3, PUBLIC))
    assert real.scored.accuracy.low > public.scored.accuracy.high
    assert real.scored.perplexity is not None
    assert public.scored.perplexity is not None
    assert real.scored.perplexity.high < public.scored.perplexity.low
    assert real.correct.shape == (3, 3)
    gap = gap_closed(real.item_accuracy, public.item_accuracy, real.item_accuracy, DRAWS)
    assert gap is not None
    assert gap.value == pytest.approx(1.0)


def test_shares_and_perplexity_are_per_token_and_means_over_seeds() -> None:
    tokens = np.array([2.0, 8.0])
    seeds = [
        Reading(np.array([1.0, 2.0]), np.array([2.0, 8.0]), tokens),
        Reading(np.array([2.0, 5.0]), np.zeros(2), tokens),
    ]
    found = evaluate_readings(seeds, DRAWS)
    assert found.scored.accuracy.value == pytest.approx(0.5)
    assert found.scored.per_seed == pytest.approx((0.3, 0.7))
    assert found.scored.correct == (3, 7)
    assert found.scored.perplexity is not None
    assert found.scored.perplexity.value == pytest.approx(math.exp(0.5))
    assert found.scored.perplexity.low == found.scored.perplexity.high  # each text has the same mean loss
    assert found.scored.accuracy.low == pytest.approx(3.5 / 8)  # of the second text alone, of the first alone
    assert found.scored.accuracy.high == pytest.approx(1.5 / 2)
    other = np.array([1.0, 2.0])
    assert retention(other, found.item_accuracy, DRAWS).value == pytest.approx(0.3 / 0.5)


def test_what_it_comes_to_is_read_back() -> None:
    scored = evaluate_readings([Reading(np.array([1.0]), np.array([2.0]), np.array([4.0]))], DRAWS).scored
    for one in (scored, replace(scored, retention=scored.accuracy, compared=True)):
        assert Scored.from_json(one.to_json()) == one


def test_rows_without_a_token_teach_nothing(folder: Path) -> None:
    with pytest.raises(DataError, match="no texts"):
        next_token(folder, ["", ""], OWN, NextToken().schooling(named=False), 64, range(3), DRAWS)


def test_a_named_model_learns_more_slowly_unless_told() -> None:
    assert NextToken().schooling(named=True).learning_rate < NextToken().schooling(named=False).learning_rate
    assert NextToken(learning_rate=0.1).schooling(named=True).learning_rate == 0.1
