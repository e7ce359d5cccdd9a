"""Each record's losses are its own, and count the tokens they say they count."""

import math
from dataclasses import replace

import pytest
import torch

from palimpsest.methods.dp_lm.likelihood import (
    discriminator_loss,
    joint_losses,
    lm_loss,
    prefix_weights,
    separate_losses,
)
from palimpsest.methods.dp_lm.model import ConditionalLm, new_model
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.records.record import Record
from palimpsest.training.bookkeeping import BookkeepingEngine
from tests.methods.two_classes import UNEVEN as ROWS

LABELS = ("praise", "a complaint")


@pytest.fixture(scope="module")
def parts(base):
    model, tokenizer = new_model(base, 2, 16, 3)
    return model, tokenizer


@pytest.mark.parametrize("which", range(len(ROWS)))
def test_changing_one_record_changes_no_other_loss(parts, which: int) -> None:
    model, tokenizer = parts
    rows = serialiser(tokenizer, LABELS, 24, "text")
    batch = rows.batch(ROWS)
    other = replace(
        batch,
        prompted=batch.prompted.index_fill(0, torch.tensor([which]), 7),
        blinded=batch.blinded.index_fill(0, torch.tensor([which]), 7),
        labels=batch.labels.index_fill(0, torch.tensor([which]), 1 - int(batch.labels[which])),
    )
    rest = [index for index in range(len(ROWS)) if index != which]
    for before, after in zip(separate_losses(model, batch, 1.0, 2), separate_losses(model, other, 1.0, 2), strict=True):
        torch.testing.assert_close(before[rest], after[rest])
    assert lm_loss(model, batch)[which] != lm_loss(model, other)[which]


def test_losses_alone_equal_losses_in_a_padded_batch(parts) -> None:
    model, tokenizer = parts
    rows = serialiser(tokenizer, LABELS, 24, "all")
    together = lm_loss(model, rows.batch(ROWS))
    alone = torch.cat([lm_loss(model, rows.batch([row])) for row in ROWS])
    torch.testing.assert_close(together, alone)


def test_joint_is_the_weighted_sum_and_weight_zero_is_the_lm_alone(parts) -> None:
    model, tokenizer = parts
    batch = serialiser(tokenizer, LABELS, 24, "text").batch(ROWS)
    (joint,) = joint_losses(model, batch, 0.5, 2)
    torch.testing.assert_close(joint, lm_loss(model, batch) + 0.5 * discriminator_loss(model, batch, 2))
    assert torch.equal(joint_losses(model, batch, 0.0, 2)[0], lm_loss(model, batch))


def test_lm_loss_counts_text_and_eos_or_everything(parts) -> None:
    model, tokenizer = parts
    text, every = (serialiser(tokenizer, LABELS, 24, on) for on in ("text", "all"))
    row = ROWS[0]
    batch = text.batch([row])
    prompt = text.prompt("praise")
    assert batch.prompted[0, batch.counted[0]].tolist() == [*tokenizer.encode(row.text), tokenizer.eos_token_id]
    length, width = len(prompt) + len(tokenizer.encode(row.text)) + 1, batch.prompted.shape[1]
    assert every.batch([row]).counted[0].tolist() == [0 < place < length for place in range(width)]
    logits = model.logits(model.hidden(batch.prompted)).log_softmax(-1)[0]
    wanted = batch.prompted[0, len(prompt) : length]
    by_hand = -logits[len(prompt) - 1 : length - 1].gather(1, wanted[:, None]).mean()
    torch.testing.assert_close(lm_loss(model, batch)[0], by_hand)


def test_the_discriminator_never_sees_the_label(parts) -> None:
    _, tokenizer = parts
    rows = serialiser(tokenizer, LABELS, 24, "text")
    batch = rows.batch([Record("The lamp is great.", label) for label in LABELS] * 50)
    stand_ins = batch.blinded[:, 1]
    assert torch.equal(batch.blinded[:, 2:], batch.blinded[:1, 2:].expand(100, -1))
    assert len(set(stand_ins.tolist())) > 30
    assert not set(stand_ins.tolist()) & {*rows.ids.control, rows.ids.sep}
    assert tokenizer.decode(batch.blinded[0][batch.text[0]]) == "The lamp is great."


def test_cut_texts_have_no_end(parts) -> None:
    _, tokenizer = parts
    rows = serialiser(tokenizer, LABELS, 3, "text")
    batch = rows.batch([ROWS[3]])
    assert int(batch.counted.sum()) == int(batch.text.sum()) == 3
    assert rows.ids.eos not in batch.prompted[0, 1:].tolist()


def test_a_label_outside_the_public_list_gives_zero_gradient(parts) -> None:
    model, tokenizer = parts
    batch = serialiser(tokenizer, LABELS, 24, "all").batch([ROWS[0], Record("Some text.", "unheard of")])
    (joint,) = joint_losses(model, batch, 1.0, 2)
    assert joint[1] == 0
    assert joint[0] > 0


@pytest.mark.parametrize(
    ("length", "step", "weights"), [(5, 2, [0, 2, 0, 4, 0]), (3, 1, [1, 2, 3]), (2, 4, [0, 2]), (4, 4, [0, 0, 0, 4])]
)
def test_prefix_weights_grow_linearly(length: int, step: int, weights: list[int]) -> None:
    text = torch.tensor([[False] * 3 + [True] * length + [False] * 2])
    assert prefix_weights(text, step)[0].tolist() == [0] * 3 + weights + [0] * 2


@pytest.mark.parametrize("reads", ["hidden", "last"])
def test_discriminator_loss_by_hand(base, reads: str) -> None:
    model, tokenizer = new_model(base, 2, 16, 3, reads)
    batch = serialiser(tokenizer, LABELS, 24, "text").batch([ROWS[1]])
    hidden = model.hidden(batch.blinded)[0, batch.text[0]]
    total = weight = 0.0
    for length in range(2, len(hidden) + 1, 2):
        read = hidden[length - 1] if reads == "last" else hidden[:length].mean(0)
        total += -length * model.head(read).log_softmax(-1)[1]
        weight += length
    torch.testing.assert_close(discriminator_loss(model, batch, 2)[0], total / weight)
    assert math.isfinite(float(total.detach()))


@pytest.mark.parametrize("reads", ["hidden", "last", "both"])
@pytest.mark.parametrize("losses", [joint_losses, separate_losses])
def test_each_record_is_clipped_by_its_own_gradient(base, reads: str, losses) -> None:
    """The engine's sums over a batch are those of a loop over records, each read alone by plain autograd."""
    model, tokenizer = new_model(base, 2, 16, 3, reads)
    rows = replace(serialiser(tokenizer, LABELS, 24, "text"), entropy=bytes)
    engine, batch = BookkeepingEngine(model), rows.batch(ROWS)
    found = engine.clipped_sums(lambda: losses(model, batch, 1.0, 2), len(ROWS), 0.5)
    for which, summed in enumerate(found):
        wanted, longest = dict.fromkeys(dict(model.named_parameters()), 0.0), 0.0
        for row in ROWS:
            gradients = _gradients(model, losses(model, rows.batch([row]), 1.0, 2)[which])
            norm = float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())
            wanted = {name: wanted[name] + gradient * min(1, 0.5 / (norm or 1)) for name, gradient in gradients.items()}
            longest = max(longest, norm)
        assert longest > 1.0  # so that clipping shows
        for name, gradient in summed.gradients.items():
            torch.testing.assert_close(gradient.float(), wanted[name], atol=1e-5, rtol=1e-3)


def _gradients(model: ConditionalLm, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def test_a_prompt_in_words_stands_before_the_text_and_names_no_label_to_the_discriminator(parts) -> None:
    _, tokenizer = parts
    told = dict(zip(LABELS, ("nice", "harsh"), strict=True))
    template = "Kind: {description}\nText:\n"
    rows = serialiser(tokenizer, told, 24, "text", template)
    batch = rows.batch(ROWS)
    bos, width = tokenizer.bos_token_id, rows.longest_prompt + 24 + 1
    for place, row in enumerate(ROWS):
        words = [*tokenizer.encode(row.text), tokenizer.eos_token_id]
        head = [bos, *tokenizer.encode(f"Kind: {told[row.label]}\nText:\n")]
        assert batch.prompted[place, : len(head) + len(words)].tolist() == [*head, *words]
        assert batch.prompted[place, batch.counted[place]].tolist() == words
        before, after = [bos, *tokenizer.encode("Kind: ")], tokenizer.encode("\nText:\n")
        seen = batch.blinded[place].tolist()
        assert (seen[: len(before)], seen[len(before) + 1 :][: len(after)]) == (before, after)
        assert batch.blinded[place, batch.text[place]].tolist() == words[:-1]
    assert max(rows.widths(ROWS)) == batch.prompted.shape[1] <= width
