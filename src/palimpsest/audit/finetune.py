"""The fine-tuned evaluator: a transformer classifier trained on synthetic rows, tested on real ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from palimpsest import validate
from palimpsest.audit.utility import Evaluation, evaluate, label_indices
from palimpsest.devices import device
from palimpsest.errors import ModelError
from palimpsest.models.sources import guard_loading
from palimpsest.progress import track

_Logits = Callable[[Sequence[str]], torch.Tensor]  # texts -> (texts, labels)

_WARM_UP = 0.1  # share of the steps over which the learning rate rises


@dataclass(frozen=True)
class FinetuneSettings:
    """Settings of the classifier's training."""

    # each seed draws the classification head, the dropout masks and the order of the synthetic rows.
    seeds: Sequence[int]
    epochs: int  # passes over the synthetic rows; fixed, so nothing is selected on real rows
    batch: int
    learning_rate: float  # peak, of AdamW; it rises over the first tenth of the steps and falls linearly to 0
    max_tokens: int  # tokens kept of a text
    freeze_last: int = 0  # last transformer blocks that stay as they are
    half: bool = False  # whether products are in bfloat16

    def __post_init__(self) -> None:
        validate.require_positive(
            epochs=self.epochs, batch=self.batch, learning_rate=self.learning_rate, max_tokens=self.max_tokens
        )
        validate.require_in_range(1, 1000, number_of_seeds=len(self.seeds))
        validate.require_in_range(0, 1000, freeze_last=self.freeze_last)


def score_finetuned(
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
        labels: all public labels.

    Raises:
        DataError: there are no synthetic or no test rows, or a label is not in `labels`.
        ModelError: the folder holds no such model, or one with fewer blocks than are to be frozen.
    """
    known, truth = label_indices(targets, labels), label_indices(test_targets, labels)
    runs = []
    for seed in settings.seeds:
        with torch.random.fork_rng():  # the global generator is left as it was
            torch.manual_seed(seed)
            model, logits = _load(folder, len(labels), settings)
            freeze(model, settings.freeze_last)
            _train(model, logits, texts, known, seed, settings)
            runs.append(_predict(model, logits, test_texts, settings.batch))
    return evaluate(np.stack(runs), truth, labels)


def _load(folder: Path, labels: int, settings: FinetuneSettings) -> tuple[PreTrainedModel, _Logits]:
    """Return the model, and a function from texts to its logits."""
    with guard_loading(
        folder, "encoder to fine-tune", "Name a folder with config.json, model.safetensors and a tokenizer."
    ):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=labels,
            dtype=torch.float32,  # as stored, a small step would be rounded off most weights of half precision
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    model.to(device())  # type: ignore[arg-type]

    def logits(texts: Sequence[str]) -> torch.Tensor:
        cut = {"padding": True, "truncation": True, "max_length": settings.max_tokens}
        inputs = tokenizer(list(texts), return_tensors="pt", **cut).to(model.device)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=settings.half):
            return model(**inputs).logits.float()

    return model, logits


def freeze(model: PreTrainedModel, last: int) -> None:
    """Freeze the last transformer blocks; embeddings, other blocks and the head are trained.

    Raises:
        ModelError: the model has fewer blocks.
    """
    blocks = max((list(part) for part in model.modules() if isinstance(part, nn.ModuleList)), key=len, default=[])
    if last > len(blocks):
        raise ModelError(
            f"{last} last blocks of the classifier cannot be frozen: it has {len(blocks)}.",
            "Lower utility.finetune.freeze_last.",
        )
    for block in blocks[len(blocks) - last :]:
        block.requires_grad_(False)


def _train(
    model: PreTrainedModel,
    logits: _Logits,
    texts: Sequence[str],
    targets: np.ndarray,
    seed: int,
    settings: FinetuneSettings,
) -> None:
    batches = _batches(len(texts), seed, settings)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rise_and_fall(len(batches)))
    model.train()
    for rows in track(batches, name="fine-tune", total=len(batches), private=True):
        truth = torch.as_tensor(targets[rows], device=model.device)
        functional.cross_entropy(logits([texts[row] for row in rows]), truth).backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
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
def _predict(model: PreTrainedModel, logits: _Logits, texts: Sequence[str], batch: int) -> np.ndarray:
    """Probabilities of the labels, float64 (texts, labels)."""
    model.eval()
    batches = [logits(texts[start : start + batch]) for start in range(0, len(texts), batch)]
    return torch.cat(batches).softmax(dim=1).cpu().double().numpy()
