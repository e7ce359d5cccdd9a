"""Steered sampling: rows are independent, steering steers, and sampling draws what it should."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from palimpsest.generators.dp_lm import pplm
from palimpsest.generators.dp_lm.losses import joint_losses
from palimpsest.generators.dp_lm.model import new_model
from palimpsest.generators.dp_lm.serialise import serialiser
from palimpsest.params.dp_lm import DpLmGenerate
from tests.generators.two_classes import two_class_records

LABELS = ("praise", "a complaint")


@pytest.fixture(scope="module")
def trained(base):
    """A model that writes both classes whatever the prompt says, with a head that tells them apart."""
    model, tokenizer = new_model(base, 2, 16, 3)
    rows = serialiser(tokenizer, LABELS, 24, "text")
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for _ in range(120):
        batch = rows.batch(two_class_records())
        blind = replace(batch, prompted=batch.blinded, counted=batch.text)
        joint_losses(model, blind, 1.0, 2)[0].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, tokenizer, rows


@pytest.fixture
def settings(make_settings) -> DpLmGenerate:
    return make_settings(iterations=3, step_size=0.1, horizon=1).generate


def _state(model, rows, labels: list[int], tokens: list[list[int]], settings: DpLmGenerate) -> pplm.State:
    state = pplm.begin(model, [rows.prompt(LABELS[label]) for label in labels], labels, rows.ids.pad)
    for column in zip(*tokens, strict=True):
        state, _ = pplm.next_token(model, state, settings)
        state = replace(state, last=torch.tensor(column))
    return state


@torch.no_grad()
@pytest.mark.parametrize("horizon", [0, 1, 2])
def test_a_row_in_a_batch_equals_the_row_alone(trained, settings, horizon: int) -> None:
    model, _, rows = trained
    settings = settings.model_copy(update={"horizon": horizon})
    labels, tokens = [0, 1, 1, 0], [[20, 30], [40, 50], [21, 31], [22, 60]]
    together = pplm.next_token(model, _state(model, rows, labels, tokens, settings), settings)[1]
    for row, (label, text) in enumerate(zip(labels, tokens, strict=True)):
        alone = pplm.next_token(model, _state(model, rows, [label], [text], settings), settings)[1]
        torch.testing.assert_close(together[row].exp(), alone[0].exp(), atol=1e-4, rtol=0)


@torch.no_grad()
def test_no_step_means_no_change(trained, settings) -> None:
    model, _, rows = trained
    labels, tokens = [0, 1], [[20, 30], [40, 50]]
    still = settings.model_copy(update={"step_size": 1e-12})
    plain = settings.model_copy(update={"iterations": 0})
    found = [pplm.next_token(model, _state(model, rows, labels, tokens, how), how)[1] for how in (still, plain)]
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=0)


@torch.no_grad()
def test_one_perturbation_moves_the_head_towards_the_label(trained, settings) -> None:
    model, _, rows = trained
    state = _state(model, rows, [0, 1], [[20, 30], [20, 30]], settings.model_copy(update={"iterations": 0}))
    _, plain = pplm.next_token(model, state, settings.model_copy(update={"iterations": 0}))
    past = pplm.perturb(model, state, plain, settings)
    before, after = (pplm.look_ahead(model, state, how, settings)[0] for how in (state.steered, past))
    assert (after > before)[[0, 1], [0, 1]].all()


def test_steered_texts_carry_their_label_more_often(trained, settings) -> None:
    model, _, rows = trained
    labels = [0, 1] * 40
    prompts = [[rows.ids.bos, int(rows.ordinary[0]), rows.ids.sep]] * len(labels)  # says nothing: only steering can
    draws = pplm.uniforms(1, 0, len(labels), settings.max_tokens)
    shares = []
    for iterations in (0, 3):
        how = settings.model_copy(update={"iterations": iterations, "step_size": 0.4})
        texts = pplm.write(model, prompts, labels, rows.ids, how, draws)
        shares.append(np.mean(_label_probability(model, rows, texts, labels)))
    assert shares[1] > shares[0] + 0.1, shares


def test_texts_end_at_eos_or_the_maximum_and_hold_no_control_token(trained, settings) -> None:
    model, _, rows = trained
    prompts, labels = [rows.prompt(LABELS[0])] * 300, [0] * 300  # of 319 tokens one ends a text
    short = settings.model_copy(update={"max_tokens": 12, "iterations": 0, "temperature": 3.0, "top_p": 1.0})
    texts = pplm.write(model, prompts, labels, rows.ids, short, pplm.uniforms(1, 0, 300, 12))
    assert {len(text) for text in texts} <= set(range(1, 13))
    assert len({len(text) for text in texts}) > 1
    assert not {token for text in texts for token in text} & rows.ids.control


def test_nucleus_draws_in_proportion_from_the_smallest_set() -> None:
    probs = torch.tensor([0.1, 0.5, 0.25, 0.15])
    grid = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    drawn = pplm.nucleus(probs.double().log().expand(10_000, 4), 0.7, grid)
    counts = torch.bincount(drawn, minlength=4) / 10_000
    torch.testing.assert_close(counts.double(), torch.tensor([0.0, 2 / 3, 1 / 3, 0.0]).double(), atol=2e-4, rtol=0)


def test_each_text_has_its_own_stream() -> None:
    np.testing.assert_array_equal(pplm.uniforms(3, 0, 6, 4)[4:], pplm.uniforms(3, 4, 2, 4))
    assert len(np.unique(pplm.uniforms(3, 0, 6, 4))) == 24


@torch.no_grad()
def _label_probability(model, rows, texts: list[list[int]], labels: list[int]) -> list[float]:
    found = []
    for text, label in zip(texts, labels, strict=True):
        tokens = torch.tensor([[rows.ids.bos, int(rows.ordinary[0]), rows.ids.sep, *text]])
        mask = torch.arange(tokens.shape[1])[None] >= 3
        found.append(float(model.classify_prefixes(model.hidden(tokens), mask)[0, -1].softmax(-1)[label]))
    return found
