"""Causal language models: training a small one on public text, and loading any."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.activations import NewGELUActivation
from transformers.utils import logging as transformers_logging

from palimpsest.devices import device
from palimpsest.errors import ModelError
from palimpsest.files import atomic_path
from palimpsest.models.attention import measure_logits, require_plain_head, states
from palimpsest.models.descent import Kept, descend, key_of, length_batches, recent_mean, rise_and_cosine
from palimpsest.models.settings import EmbeddedLm, PromptWarmUp, Schooling, Similar
from palimpsest.models.sources import guard_loading
from palimpsest.models.tokens import Specials, encode_texts, pad_right, specials, train_tokenizer
from palimpsest.models.vectors import batch_by_length

transformers_logging.disable_progress_bar()  # bars per weight tensor would drown the project's own
IGNORED = -100  # a target that the cross entropy skips
_HIGHEST_RATE, _COMMON_RATE, _COMMON_SIZE = 0.002, 5e-5, 270_000_000


def load_lm(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model with weights of this type and its tokenizer, from a Hugging Face folder.

    Guarantee: no code of the folder runs, no pickle is opened and nothing outside the folder is read (see `loading`).

    Dropout is switched off: it would only add noise to gradients that are clipped and noised anyway. GPT-2's activation
    is replaced by torch's kernel of the same function, which saves several passes over memory.

    Raises:
        ModelError: the folder holds no causal language model.
    """
    needed = "Name a folder with config.json, model.safetensors and a tokenizer."
    with guard_loading(folder, "causal language model", needed):
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, child in module.named_children():
            if type(child) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh"))
    return model.eval(), tokenizer


def pretrain_lm(
    texts: Sequence[str],
    heldout: Sequence[str],
    settings: EmbeddedLm,
    seed: int,
    folder: Path,
    kept: Path | None = None,
) -> dict[str, float]:
    """Train a small GPT-2 on public text as `BOS text EOS` and save it as a Hugging Face folder.

    Ordinary training: nothing private may be among the texts.

    Args:
        kept: the folder of a long training's states; None keeps none.

    Returns:
        heldout_loss (nats per token), train_loss (of the last tenth of the steps), parameters, vocabulary, steps.
    """
    tokenizer = train_tokenizer(texts, settings.vocabulary, settings.context)
    model = _new_model(settings, len(tokenizer), specials(tokenizer), seed)
    model.to(device())  # type: ignore[arg-type]
    rows = _sequences(tokenizer, texts, settings.context)
    losses = train(model, rows, settings, seed, private=False, kept=kept)
    save_lm(model, tokenizer, folder)
    return {
        "heldout_loss": mean_loss(model, _sequences(tokenizer, heldout, settings.context), settings.batch),
        "train_loss": recent_mean(losses),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "vocabulary": len(tokenizer),
        "steps": len(losses),
    }


def learn_prompts(
    folder: Path,
    texts: Sequence[str],
    labels: Sequence[str],
    settings: PromptWarmUp | Similar,
    seed: int,
    pairs: np.ndarray | None = None,
    kept: Path | None = None,
) -> None:
    """Train the model in `folder` further on public `BOS label SEP text EOS`, in place.

    A base model has never seen a prompt, and noisy gradients are an expensive way to teach it. Public texts with public
    or guessed labels teach it the prompt before SEP for free; the private rows then only correct the meaning of the
    labels.

    With pairs it also learns `BOS label SEP neighbour SEP text EOS`: to continue with a text like the last, as
    instruction-tuned models can. Such a model takes the private and the public prompt of private prediction,
    `{label}{separator}{text}{separator}` and `{label}{separator}`.

    Args:
        labels: one for each text: its own public label, or the one whose public description is nearest; "" where the
            task has none.
        pairs: `encoder.neighbours` of the texts.
        kept: the folder of a long training's states; None keeps none.
    """
    model, tokenizer = load_lm(folder)
    model.to(device())  # type: ignore[arg-type]
    ids, context = specials(tokenizer), model.config.get_text_config().max_position_embeddings
    prompts = {label: [ids.bos, *tokenizer.encode(label, add_special_tokens=False), ids.sep] for label in set(labels)}
    encoded = encode_texts(tokenizer, texts, settings.max_tokens)
    rows = []
    for index, (label, text) in enumerate(zip(labels, encoded, strict=True)):
        before = [] if pairs is None else [encoded[other] for other in pairs[index] if other >= 0]
        if text:
            rows.append([*prompts[label], *text, ids.eos])
            rows += [[*prompts[label], *other, ids.sep, *text, ids.eos] for other in before if other]
    train(model.eval(), [row[:context] for row in rows], settings, seed, private=False, kept=kept)
    save_lm(model, tokenizer, folder)


def save_lm(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a model and its tokenizer as a Hugging Face folder, whole or not at all."""
    with atomic_path(folder) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)


def mean_loss(model: PreTrainedModel, rows: Sequence[Sequence[int]], batch: int) -> float:
    """Cross entropy in nats per predicted token over token sequences."""
    losses, counts = _row_losses(model, rows, batch)
    return float(losses.sum() / counts.sum()) if counts.any() else math.nan


def text_losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_tokens: int, batch: int
) -> np.ndarray:
    """Mean cross entropy in nats per token of each text as `BOS text EOS`, float64 (texts,); of EOS if it is empty."""
    ids = specials(tokenizer)
    rows = [[ids.bos, *text, ids.eos] for text in encode_texts(tokenizer, texts, max_tokens)]
    losses, counts = _row_losses(model, rows, batch)
    return losses / counts


@torch.no_grad()
def _row_losses(model: PreTrainedModel, rows: Sequence[Sequence[int]], batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Summed cross entropy in nats of each row, and the number of predicted tokens: float64 (rows,), int64 (rows,)."""
    losses, counts = np.zeros(len(rows)), np.array([len(row) - 1 for row in rows], dtype=np.int64)
    require_plain_head(model)
    for chosen in batch_by_length(list(map(len, rows)), batch):
        losses[chosen] = _token_losses(model, [rows[index] for index in chosen])[0].cpu().double().sum(dim=1).numpy()
    return losses, counts


def _new_model(settings: EmbeddedLm, vocabulary: int, ids: Specials, seed: int) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=settings.context,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own function, in one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=ids.bos,
        eos_token_id=ids.eos,
        pad_token_id=ids.pad,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)


def _sequences(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], context: int) -> list[list[int]]:
    ids = specials(tokenizer)
    encoded = encode_texts(tokenizer, texts, context - 1)
    return [[ids.bos, *text, ids.eos][:context] for text in encoded if text]


def train(
    model: PreTrainedModel,
    rows: list[list[int]],
    settings: Schooling,
    seed: int,
    private: bool,
    kept: Path | None = None,
) -> list[float]:
    """Train in the ordinary way on token sequences, on `private` ones only for an audit; return the loss of each step.

    Args:
        model: a model without dropout, whose masks neither seed nor state could reproduce.
        kept: the folder of a long training's states, of public text; None keeps none.

    Raises:
        ModelError: there is nothing to train on, or the model computes its logits by more than its head and a cap.
    """
    if not rows:
        raise ModelError("There is no public text to train the language model on.", "Name a public file with texts.")
    require_plain_head(model)
    steps = max(1, round(settings.epochs * len(rows) / settings.batch))
    rates = LambdaLR(_optimizer(model, settings), lambda step: rise_and_cosine(step, steps))
    batches = length_batches(list(map(len, rows)), settings.batch, steps, torch.Generator().manual_seed(seed))
    return descend(
        model,
        batches,
        lambda batch: _loss(model, [rows[index] for index in batch]),
        rates,
        name="pretrain",
        steps=steps,
        private=private,
        precision=settings.precision,
        kept=None if kept is None else Kept(kept, key_of(model, [*rows, settings, seed])),
    )


def _optimizer(model: nn.Module, settings: Schooling) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": settings.decay()},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    rate = settings.learning_rate or suited_rate(sum(weight.numel() for weight in weights))
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))


def suited_rate(weights: int) -> float:
    """The peak learning rate for further training of a pretrained model with so many weights.

    5e-5 at 270 million, as such models are commonly fine-tuned, falling with the root of the size; 0.002 at most.

    >>> suited_rate(270_000_000), round(suited_rate(7_000_000_000), 6)
    (5e-05, 1e-05)
    """
    return min(_HIGHEST_RATE, _COMMON_RATE * math.sqrt(_COMMON_SIZE / weights))


def _loss(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    losses, counted = _token_losses(model, rows)
    return losses.sum() / counted.sum()


def _token_losses(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross entropy of every predicted token, 0 elsewhere, and the mask of predicted tokens: both (rows, time)."""
    tokens, targets = (pad_right(rows, fill).to(model.device) for fill in (0, IGNORED))
    targets = targets[:, 1:]
    real = targets != IGNORED
    losses = measure_logits(model, states(model, tokens[:, :-1])[real], targets[real])
    return losses.new_zeros(real.shape).masked_scatter(real, losses), real
