"""What is learned with sums in whole numbers and in float64: the same batches and the same noise for both.

Each line is one seed of one noise multiplier: the largest difference of the test loss over the training, the loss at
the end with each kind of sum, and the CPU seconds of each.

Feeds docs/performance.md. `--lm` is `models/base` of a workspace: bench/README.md. `--texts` is a file of the folder
that `python -m bench.real_data` makes.
"""

import argparse
import random
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from bench.real_data import lines
from palimpsest.models.lm import load_lm
from palimpsest.training.bookkeeping import BookkeepingEngine, room
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.losses import lm_head_loss

TOKENS, BATCH, MICRO_BATCH = 32, 96, 32
CLIPPING_NORM, LEARNING_RATE = 0.1, 1e-3
TESTED, EVERY = 400, 5  # texts of the test loss, and steps between two looks at it


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and which of them count, both (texts, TOKENS)."""
    rows = [tokenizer(text).input_ids[:TOKENS] for text in texts]
    sizes = torch.tensor([[len(row)] for row in rows])
    ids = torch.tensor([row + [0] * (TOKENS - len(row)) for row in rows])
    return ids, torch.arange(TOKENS) < sizes


def losses(model: Any, ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    hidden = model.transformer(input_ids=ids[:, :-1]).last_hidden_state
    return lm_head_loss(model.lm_head, hidden, ids[:, 1:], counted[:, 1:])


def alone(model: Any, part: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor]:
    return (losses(model, *part),)


def train(
    kind: type[BookkeepingEngine], folder: Path, texts: list[str], noise: float, seed: int, steps: int
) -> tuple[list[float], float]:
    """Train from the folder's weights; the test losses on the way and the CPU seconds."""
    model, tokenizer = load_lm(folder)
    parameters, engine = dict(model.named_parameters()), kind(model)
    optimiser = torch.optim.AdamW(parameters.values(), LEARNING_RATE)
    drawn, picked = torch.Generator().manual_seed(seed), random.Random(seed)
    test, curve, began = encode(tokenizer, texts[-TESTED:]), [], time.process_time()
    for step in range(1, steps + 1):
        batch = picked.choices(texts[:-TESTED], k=BATCH)
        _, sums = room(parameters)
        for start in range(0, BATCH, MICRO_BATCH):
            part = encode(tokenizer, batch[start : start + MICRO_BATCH])
            seeds = torch.arange(MICRO_BATCH, dtype=torch.int32) + step * BATCH + start
            engine.clipped_sums(partial(alone, model, part), MICRO_BATCH, CLIPPING_NORM, [sums], seeds=seeds)
        for name, parameter in parameters.items():
            added = noise * CLIPPING_NORM * torch.randn(parameter.shape, generator=drawn, dtype=torch.float64)
            parameter.grad = ((sums[name] + added) / BATCH).float()
        optimiser.step()
        if step % EVERY == 0:
            with torch.no_grad():
                curve.append(float(losses(model, *test).mean()))
    return curve, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", type=Path, required=True, help="a GPT-2's folder")
    parser.add_argument("--texts", type=Path, required=True, help="texts, JSONL")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = [row["text"] for row in islice(lines(options.texts), 6000)]
    for noise in (0.8, 0.0):
        for seed in range(3):
            (exact, slow), (whole, fast) = (
                train(kind, options.lm, texts, noise, seed, options.steps)
                for kind in (BookkeepingEngine, IntegerEngine)
            )
            apart = max(abs(one - other) for one, other in zip(exact, whole, strict=True))
            print(f"noise {noise}, seed {seed}: apart {apart:.5f}, end {exact[-1]:.4f} {whole[-1]:.4f}, "
                  f"{slow:.0f} s with float64, {fast:.0f} s with whole numbers", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
