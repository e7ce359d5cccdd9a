"""Membership inference against the model of one variant."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from palimpsest.audit.membership import loss_attack, min_k_attack, record_losses, reference_attack, zlib_attack
from palimpsest.audit.units import Scores
from palimpsest.devices import device
from palimpsest.methods.dp_lm import likelihood
from palimpsest.methods.dp_lm.model import ConditionalLm, DpLmArtifact, new_model
from palimpsest.methods.dp_lm.serialise import Serialiser
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.workspace import BASE_LM, MODELS
from stages.audited import conclude_on_error, metric_of_subject, save
from stages.common import start
from stages.membership import Target

MIN_K = 0.2  # share of a record's tokens that Min-K%++ averages, as published
_BATCH = 100
_POSITIONS = 1024  # tokens whose logits are held at once
_LEAST = 1e-12  # variance of log p where a model is certain of the next token


@conclude_on_error(metric_of_subject("membership"))
def run(name: str, model: str) -> None:
    """models/<model>, models/base, members and non-members -> membership.json of the variant."""
    target, fitted = Target.of(name), DpLmArtifact.load(MODELS / model)
    sides, texts, params = target.guess.sides, target.guess.texts, target.params
    base, _ = new_model(BASE_LM, max(1, len(params.dataset.labels)), 1, params.seed)
    before, after = (losses(fitted, which, sides) for which in (base, fitted.model))
    surprises = [token_scores(fitted.model, fitted.serialiser(), side) for side in sides]
    attacks = {
        "loss": loss_attack(after),
        "reference": reference_attack(after, before),
        "zlib": zlib_attack(after, *texts),
        "min_k": min_k_attack(surprises[0], surprises[1], MIN_K),
    }
    save(name, "membership", target.judge_claim(attacks).to_json(name))


def losses(fitted: DpLmArtifact, model: ConditionalLm, sides: Sequence[Sequence[Record]]) -> Scores:
    """Measure the loss of each record, serialised as in training."""
    rows = fitted.serialiser()
    model.to(device())
    return record_losses(lambda records: likelihood.record_losses(model, rows, records, _BATCH), *sides)


@torch.no_grad()
def token_scores(model: ConditionalLm, rows: Serialiser, records: Sequence[Record]) -> list[np.ndarray]:
    """Measure each counted token's likelihood beside the model's expectation: for Min-K%++ (Zhang et al. 2024).

    Returns:
        For each record (log p(token) - mean) / deviation, mean and deviation of log p over the model's own next
        token, float64 of shape (tokens,).
    """
    scores: list[np.ndarray] = []
    firsts = range(0, len(records), _BATCH)
    for first in track(firsts, name="tokens", total=len(firsts), private=True):
        inputs = rows.batch(records[first : first + _BATCH]).to(model.embedding.device)
        counted = inputs.counted[:, 1:]  # (B, T - 1)
        states, targets = model.hidden(inputs.prompted)[:, :-1][counted], inputs.prompted[:, 1:][counted]
        pieces = zip(states.split(_POSITIONS), targets.split(_POSITIONS), strict=True)
        tokens = torch.cat([standardise_scores(model.logits(part), wanted) for part, wanted in pieces])
        scores += np.split(tokens.cpu().double().numpy(), counted.sum(dim=1).cumsum(dim=0)[:-1].tolist())
    return scores


def standardise_scores(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return (log p(target) - mean) / deviation of log p under p, (n,); logits are (n, vocabulary), targets (n,)."""
    log_p = functional.log_softmax(logits.float(), dim=-1)
    p = log_p.exp()
    mean = (p * log_p).sum(dim=-1)
    variance = (p * (log_p - mean[:, None]).square()).sum(dim=-1)
    return (log_p.gather(1, targets[:, None]).squeeze(1) - mean) / variance.clamp_min(_LEAST).sqrt()


if __name__ == "__main__":
    start(run)
