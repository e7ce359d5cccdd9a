"""Next-token evaluation: a small language model is trained further on rows, then reads real texts. It needs no labels.

Yue et al. 2023 and Xie et al. 2024 (Aug-PE) measure unlabelled synthetic text in this way. The model, its tokens and
the number of passes are fixed in advance and made only from public text: nothing is chosen on real rows. Accuracies and
perplexities are per token of this model, so they compare rows that it measured, and no others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio
from palimpsest.audit.utility import Evaluation, Scored
from palimpsest.devices import exact_device
from palimpsest.errors import DataError
from palimpsest.models.lm import IGNORED, load_lm, train
from palimpsest.models.logits import cross_entropies, measure_logits, states
from palimpsest.models.settings import Schooling
from palimpsest.models.tokens import encode_texts, pad_right, specials
from palimpsest.models.vectors import batch_by_length

_BATCH = 32  # texts that are read at once


@dataclass(frozen=True, eq=False)
class Reading:
    """A model's predictions of n texts."""

    right: np.ndarray  # tokens of each text that it found likeliest, float64 (n,)
    losses: np.ndarray  # cross entropy in nats, summed over each text's tokens, float64 (n,)
    tokens: np.ndarray  # tokens that are predicted in each text, its end among them, float64 (n,)


def next_token(
    folder: Path,
    texts: Sequence[str],
    test_texts: Sequence[str],
    schooling: Schooling,
    max_tokens: int,
    seeds: Sequence[int],
    bootstrap: Bootstrap,
) -> Evaluation:
    """Train the public model in `folder` further on `texts`, once per seed, and let it read the test texts.

    Args:
        folder: a Hugging Face folder with a causal language model of public text.
        schooling: settings of the training.
        max_tokens: tokens read of a text; also at most the model's context.
        seeds: each seed draws the order of the texts.

    Raises:
        DataError: the texts to train on contain no token, or there are no test texts.
        ModelError: the folder holds no such model.
    """
    readings = []
    for seed in seeds:
        model, tokenizer = load_lm(folder)
        model.to(exact_device())  # type: ignore[arg-type]
        most = min(max_tokens, int(model.config.get_text_config().max_position_embeddings))
        rows = [row for row in token_rows(tokenizer, texts, most) if len(row) > 2]
        test = token_rows(tokenizer, test_texts, most)
        if not rows or not test:
            raise DataError("There are no texts to train or to test on.", "Generate some, or enlarge the test share.")
        train(model.eval(), rows, schooling, seed, private=True)
        readings.append(read(model.eval(), test))
    return evaluate(readings, bootstrap)


def token_rows(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], most: int) -> list[list[int]]:
    """Each text as `BOS text EOS`, its first `most` tokens."""
    ids = specials(tokenizer)
    return [[ids.bos, *text, ids.eos][:most] for text in encode_texts(tokenizer, texts, most)]


def read_beginnings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Reading:
    """Let a model predict each text after BOS, but not its end: a text that was cut has none."""
    most = int(model.config.get_text_config().max_position_embeddings)
    bos = specials(tokenizer).bos
    return read(model, [[bos, *row][:most] for row in encode_texts(tokenizer, texts, most)])


@torch.no_grad()
def read(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> Reading:
    """Let a model predict every token of each row but the first."""
    lengths = [len(row) for row in rows]
    right, losses = np.zeros(len(rows)), np.zeros(len(rows))
    for chosen in batch_by_length(lengths, _BATCH):
        right[chosen], losses[chosen] = _read(model, [rows[index] for index in chosen])
    return Reading(right, losses, np.array(lengths, dtype=np.float64) - 1.0)


def _read(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Right tokens and nats of each row: both (rows,)."""
    tokens, targets = pad_right(rows, 0).to(model.device), pad_right(rows, IGNORED)[:, 1:].to(model.device)
    real = targets != IGNORED
    told = measure_logits(model, states(model, tokens[:, :-1])[real], targets[real], _right_and_nats).double()
    sums = told.new_zeros(len(rows), 2).index_add_(0, real.nonzero()[:, 0], told).cpu().numpy()
    return sums[:, 0], sums[:, 1]


def _right_and_nats(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return whether each target is the likeliest token, and its cross entropy, (k, 2)."""
    return torch.stack([(logits.argmax(dim=1) == targets).float(), cross_entropies(logits, targets)], dim=1)


def evaluate(readings: Sequence[Reading], bootstrap: Bootstrap) -> Evaluation:
    """Summarise readings of the same texts by models of several seeds; intervals are over texts.

    The perplexity is that of the mean loss over seeds.
    """
    right, tokens = np.stack([one.right for one in readings]), readings[0].tokens
    losses = np.mean([one.losses for one in readings], axis=0)
    nats = Estimate(float(losses.sum() / tokens.sum()), *bootstrap_ratio(losses, tokens, bootstrap))
    shares = right.sum(axis=1) / tokens.sum()
    scored = Scored(
        accuracy=Estimate(float(shares.mean()), *bootstrap_ratio(right.mean(axis=0), tokens, bootstrap)),
        per_seed=tuple(shares.tolist()),
        correct=tuple(map(int, right.sum(axis=1))),
        per_class={},
        ece=None,
        perplexity=Estimate(*(math.exp(nat) for nat in (nats.value, nats.low, nats.high))),
    )
    return Evaluation(right, scored)
