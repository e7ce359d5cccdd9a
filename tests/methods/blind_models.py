"""Models that write both classes whatever their prompt says, and what they make of a text, read whole without cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from palimpsest.methods.dp_lm.decoding import StepDraw
from palimpsest.methods.dp_lm.likelihood import joint_losses
from palimpsest.methods.dp_lm.model import ConditionalLm, new_model
from palimpsest.methods.dp_lm.serialise import Serialiser, serialiser
from palimpsest.models.tokens import Specials
from tests.methods.two_classes import WORDS, two_class_records

LABELS = tuple(WORDS)


@cache
def blind_model(base: Path, reads: str) -> tuple[ConditionalLm, Serialiser]:
    """A model that no prompt tells the label, with a head that tells the classes apart."""
    model, tokenizer = new_model(base, 2, 16, 3, reads)
    rows = replace(serialiser(tokenizer, LABELS, 24, "text"), entropy=np.random.default_rng(1).bytes)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for _ in range(120):
        batch = rows.batch(two_class_records())
        blind = replace(batch, prompted=batch.blinded, counted=batch.text.roll(1, 1) | batch.text)
        joint_losses(model, blind, 1.0, 2)[0].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, rows


@dataclass(frozen=True)
class Chosen(StepDraw):
    """A draw that takes the columns it is told, and notes what it might have taken."""

    columns: torch.Tensor  # what to take, int64 (B,)
    noted: list[torch.Tensor]  # gets the log-probabilities that were drawn from, (B, columns)

    def pick(self, log_probs: torch.Tensor) -> torch.Tensor:
        self.noted.append(log_probs)
        return self.columns


def chosen(columns: Sequence[int], banned: Sequence[int], noted: list[torch.Tensor]) -> Chosen:
    """Take these columns."""
    none = torch.tensor(banned, dtype=torch.long)
    return Chosen(torch.zeros(len(columns)), none, 0, 1.0, torch.tensor(columns), noted)


def control_of(ids: Specials) -> list[int]:
    """What may not come inside a text."""
    return sorted(ids.control - {ids.eos})


@torch.no_grad()
def next_log_probs(
    model: ConditionalLm, prompt: Sequence[int], text: Sequence[int], banned: Sequence[int], temperature: float = 1.0
) -> torch.Tensor:
    """Log-probabilities (vocabulary,) of the token behind a text."""
    logits = model.lm(torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1] / temperature
    logits[list(banned)] = -torch.inf
    return functional.log_softmax(logits, dim=-1)


@torch.no_grad()
def read_whole(
    model: ConditionalLm, prompt: Sequence[int], texts: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token embeddings and last hidden states, both (texts, length, width), of texts of one length."""
    tokens = torch.tensor([[*prompt, *text] for text in texts])
    hidden = model.lm.base_model(input_ids=tokens, use_cache=False).last_hidden_state[:, len(prompt) :]
    return model.lm.get_input_embeddings()(tokens[:, len(prompt) :]), hidden


def head_input(model: ConditionalLm, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """What the head is given of embeddings and hidden states of texts (..., length, width); zeros of empty ones."""
    if model.head.shape.reads == "last":
        return hidden[..., -1, :] if hidden.shape[-2] else hidden.sum(dim=-2)
    means = [states.mean(dim=-2).nan_to_num() for states in (embedded * model.scale, hidden)]
    return means[1] if model.head.shape.reads == "hidden" else torch.cat(means, dim=-1)


def share_that_says(texts: Sequence[str], labels: Sequence[int]) -> float:
    """Share of the texts that hold a word of their label and none of the other."""
    says = [[any(word in text for word in WORDS[name]) for name in LABELS] for text in texts]
    return sum(found[label] and not found[1 - label] for found, label in zip(says, labels, strict=True)) / len(texts)


def prompts_of(rows) -> list[list[int]]:
    """Four prompts of unequal length."""
    return [rows.prompt(LABELS[0]), rows.prompt(LABELS[1]), [rows.ids.bos, rows.ids.sep], [rows.ids.bos, 9, 10, 11, 12]]
