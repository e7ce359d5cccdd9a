"""The fine-tuned evaluator: a transformer classifier trained on synthetic rows, tested on real ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from palimpsest import validate
from palimpsest.audit.utility import Evaluation, evaluate, label_indices
from palimpsest.models.plain import loading
from palimpsest.progress import track

_WARM_UP = 0.1  # share of the steps over which the learning rate rises


@dataclass(frozen=True)
class FinetuneSettings:
    """How the classifier is trained.

    Attributes:
        seeds: each seed draws the classification head, the dropout masks and the order of the synthetic rows.
        epochs: passes over the synthetic rows; fixed, so nothing is selected on real rows.
        batch: rows per step.
        learning_rate: peak, of AdamW; it rises over the first tenth of the steps and falls linearly to 0.
        max_tokens: tokens kept of a text.
        confidence: of the accuracy's interval.
        device: of torch, such as "cpu" or "cuda".
    """

    seeds: Sequence[int]
    epochs: int
    batch: int
    learning_rate: float
    max_tokens: int
    confidence: float
    device: str

    def __post_init__(self) -> None:
        validate.positive(
            epochs=self.epochs, batch=self.batch, learning_rate=self.learning_rate, max_tokens=self.max_tokens
        )
        validate.in_range(1, 1000, number_of_seeds=len(self.seeds))


def finetuned(
    folder: Path,
    texts: Sequence[str],
    targets: Sequence[str],
    test_texts: Sequence[str],
    test_targets: Sequence[str],
    labels: Sequence[str],
    settings: FinetuneSettings,
) -> Evaluation:
    """Fine-tune the encoder in `folder` once per seed; never touches the network.

    Args:
        folder: a Hugging Face folder with a model, a tokenizer and a padding or end token.
        texts: synthetic texts.
        targets: their labels.
        test_texts: real texts.
        test_targets: their labels.
        labels: all public labels.

    Raises:
        DataError: there are no synthetic or no test rows, or a label is not in `labels`.
        ModelError: the folder holds no such model.
    """
    known, truth = label_indices(targets, labels), label_indices(test_targets, labels)
    runs = [_one_seed(folder, texts, known, test_texts, len(labels), seed, settings) for seed in settings.seeds]
    return evaluate(np.stack(runs), truth, labels, settings.confidence)


def _one_seed(
    folder: Path,
    texts: Sequence[str],
    targets: np.ndarray,
    test_texts: Sequence[str],
    labels: int,
    seed: int,
    settings: FinetuneSettings,
) -> np.ndarray:
    """Probabilities of the test rows, shape (test rows, labels); the global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model, tokenizer = _load(folder, labels, settings.device)
        _train(model, tokenizer, texts, targets, seed, settings)
        return _predict(model, tokenizer, test_texts, settings)


def _load(folder: Path, labels: int, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    with loading(folder, "encoder to fine-tune", "Name a folder with config.json, model.safetensors and a tokenizer."):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=labels,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    return model.to(device), tokenizer


def _train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    targets: np.ndarray,
    seed: int,
    settings: FinetuneSettings,
) -> None:
    batches = _batches(len(texts), seed, settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rise_and_fall(len(batches)))
    model.train()
    for rows in track(batches, name="fine-tune", total=len(batches), private=True):
        logits = _logits(model, tokenizer, [texts[row] for row in rows], settings)
        functional.cross_entropy(logits, torch.as_tensor(targets[rows], device=settings.device)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def _batches(rows: int, seed: int, settings: FinetuneSettings) -> list[np.ndarray]:
    rng, step = np.random.default_rng(seed), settings.batch
    orders = [rng.permutation(rows) for _ in range(settings.epochs)]
    return [order[start : start + step] for order in orders for start in range(0, rows, step)]


def _rise_and_fall(steps: int) -> Callable[[int], float]:
    rise = max(1, round(_WARM_UP * steps))
    return lambda step: min((step + 1) / rise, max(steps - step, 0) / max(steps - rise, 1), 1.0)


@torch.no_grad()
def _predict(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], settings: FinetuneSettings
) -> np.ndarray:
    model.eval()
    starts = range(0, len(texts), settings.batch)
    batches = (list(texts[start : start + settings.batch]) for start in starts)
    logits = [_logits(model, tokenizer, batch, settings) for batch in batches]
    return torch.cat(logits).softmax(dim=1).cpu().double().numpy()


def _logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], settings: FinetuneSettings
) -> torch.Tensor:
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=settings.max_tokens)
    return model(**inputs.to(settings.device)).logits.float()  # (batch, labels)
