"""What a model makes of a record is the record's own: neither its neighbours in a batch nor its label shape a state."""

from dataclasses import replace

import numpy as np
import pytest

from palimpsest.methods.dp_lm.likelihood import mean_states, record_losses
from palimpsest.methods.dp_lm.model import new_model
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.records.record import Record
from tests.methods.two_classes import UNEVEN, two_class_records

LABELS = ("praise", "a complaint")
ROWS = [*UNEVEN, *two_class_records()[::7]]


@pytest.fixture(scope="module")
def parts(base):
    model, tokenizer = new_model(base, 2, 16, 3)
    return model, serialiser(tokenizer, LABELS, 24, "text")


def test_states_repeat_and_do_not_depend_on_the_batch(parts):
    model, rows = parts
    whole = mean_states(model, rows, ROWS, 100)
    assert (whole.shape, whole.dtype) == ((len(ROWS), 32), np.float32)
    assert np.array_equal(whole, mean_states(model, rows, ROWS, 100))
    for batch in (1, 3):
        assert np.allclose(whole, mean_states(model, rows, ROWS, batch), atol=1e-5)


def test_each_state_stands_in_the_place_of_its_record(parts):
    model, rows = parts
    order = np.random.default_rng(0).permutation(len(ROWS))
    turned = mean_states(model, rows, [ROWS[index] for index in order], 4)
    assert np.allclose(turned, mean_states(model, rows, ROWS, 4)[order], atol=1e-5)
    assert len(np.unique(turned.round(3), axis=0)) == len({row.text for row in ROWS})


def test_a_state_says_nothing_of_the_label(parts):
    """Also where the label is none, or none of the public ones."""
    model, rows = parts
    wanted = mean_states(model, rows, ROWS, 4)
    for label in (*LABELS, None, "unheard of"):
        changed = [replace(row, label=label) for row in ROWS]
        assert np.array_equal(mean_states(model, rows, changed, 4), wanted)


def test_a_state_is_the_mean_over_text_tokens_behind_one_stand_in(parts):
    """Neither prompt nor end counts; the stand-in is the first ordinary token."""
    model, rows = parts
    text = rows.tokenizer.encode(ROWS[0].text)
    tokens = [rows.ids.bos, int(rows.ordinary[0]), rows.ids.sep, *text, rows.ids.eos]
    hidden = model.hidden(model.embedding.new_tensor([tokens]).long())[0, 3 : 3 + len(text)]
    found = mean_states(model, rows, ROWS[:1], 1)[0]
    assert np.allclose(found, hidden.mean(dim=0).detach().numpy(), atol=1e-5)


def test_a_record_without_a_text_token_has_zeros(parts):
    model, rows = parts
    found = mean_states(model, rows, [Record("", "praise"), ROWS[0]], 2)
    assert not found[0].any()
    assert found[1].any()
    assert mean_states(model, rows, [], 2).shape == (0, 32)


def test_losses_stand_in_the_place_of_their_record_whatever_the_batch(parts):
    model, rows = parts
    whole = record_losses(model, rows, ROWS, 100)
    assert np.allclose(whole, record_losses(model, rows, ROWS, 3), atol=1e-5)
    assert np.allclose(whole[::-1], record_losses(model, rows, ROWS[::-1], 3), atol=1e-5)
