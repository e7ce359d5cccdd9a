"""Evaluators that train a transformer on rows and read real texts with it: a classifier, or a language model.

The language model needs no labels: a small one is trained further on rows. Yue et al. 2023 and Xie et al. 2024 (Aug-PE)
measure unlabelled synthetic text in this way. The model, its tokens and the number of passes are fixed in advance and
made only from public text: nothing is chosen on real rows. Accuracies and perplexities are per token of this model, so
they compare rows that it measured, and no others.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from palimpsest import validate
from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio
from palimpsest.audit.utility import Evaluation, Scored, evaluate, label_indices
from palimpsest.devices import device, exact_device
from palimpsest.errors import DataError, ModelError
from palimpsest.models.attention import cross_entropies, measure_logits, states
from palimpsest.models.lm import IGNORED, load_lm, train
from palimpsest.models.settings import Schooling
from palimpsest.models.sources import guard_loading
from palimpsest.models.tokens import encode_texts, pad_right, specials
from palimpsest.models.vectors import batch_by_length
from palimpsest.progress import track

_Logits = Callable[[Sequence[str]], torch.Tensor]  # texts -> (texts, labels)

_WARM_UP = 0.1  # share of the steps over which the learning rate rises
_BATCH = 32  # texts that are read at once


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
    return evaluate_readings(readings, bootstrap)


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


def evaluate_readings(readings: Sequence[Reading], bootstrap: Bootstrap) -> Evaluation:
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
