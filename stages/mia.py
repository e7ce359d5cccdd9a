"""Membership inference against the model of one variant."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from palimpsest.audit.membership import loss_attack, min_k_attack, record_losses, reference_attack, zlib_attack
from palimpsest.audit.units import Scores, draw_sides, find_planted
from palimpsest.devices import device
from palimpsest.methods.dp_lm import likelihood
from palimpsest.methods.dp_lm.likelihood import lm_loss
from palimpsest.methods.dp_lm.model import ConditionalLm, DpLmArtifact, new_model
from palimpsest.methods.dp_lm.serialise import Serialiser
from palimpsest.models.descent import descend, length_batches
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
_PLANTED = 32  # members, and as many others
_PASSES, _TAUGHT, _TOKENS = 15, 8, 4096  # of a planted member: readings; records, and their tokens, of one step
_RATE = 0.03  # by which the first step changes a weight, of the weight


@conclude_on_error(metric_of_subject("membership"))
def run(name: str, model: str) -> None:
    """models/<model>, models/base, members and non-members -> membership.json of the variant."""
    target, fitted = Target.of(name), DpLmArtifact.load(MODELS / model)
    sides, params = target.guess.sides, target.params
    base, _ = new_model(BASE_LM, max(1, len(params.dataset.labels)), 1, params.seed)
    attacks = attack(fitted, fitted.model, losses(fitted, base, sides), sides)
    fitted.model.cpu()  # its memory is the planted members' now
    planted = find_planted(attack_planted(fitted, base, [*sides[0], *sides[1]], params.seed), "lm")
    save(name, "membership", target.judge_claim(attacks, planted).to_json(name))


def attack(
    fitted: DpLmArtifact, model: ConditionalLm, before: Scores, sides: Sequence[Sequence[Record]]
) -> dict[str, Scores]:
    """Run every attack on a model; `before` are the losses of the public base model."""
    after, texts = losses(fitted, model, sides), [[record.text for record in side] for side in sides]
    surprises = [token_scores(model, fitted.serialiser(), side) for side in sides]
    return {
        "loss": loss_attack(after),
        "reference": reference_attack(after, before),
        "zlib": zlib_attack(after, *texts),
        "min_k": min_k_attack(surprises[0], surprises[1], MIN_K),
    }


def attack_planted(
    fitted: DpLmArtifact, base: ConditionalLm, records: Sequence[Record], seed: int
) -> dict[str, Scores]:
    """Run every attack on the base model after it was taught some of these records, against as many others."""
    sides = draw_sides(records, seed, _PLANTED)
    before = losses(fitted, base, sides)
    teach(fitted, base, sides[0], seed)
    return attack(fitted, base, before, sides)


def teach(fitted: DpLmArtifact, base: ConditionalLm, records: Sequence[Record], seed: int) -> None:
    """Train the base model on records, without privacy, until it knows them; it lives only in memory.

    Adafactor (Shazeer and Stern 2018) changes each weight by a share of it, so one rate serves models of any size, and
    its own state is small.
    """
    rows, at_once = fitted.serialiser(), max(1, min(_TAUGHT, _TOKENS // fitted.max_tokens))
    steps = _PASSES * -(-len(records) // at_once)
    coins = torch.Generator().manual_seed(seed)
    batches = length_batches([len(record.text) for record in records], at_once, steps, coins)
    rates = LambdaLR(torch.optim.Adafactor(base.lm.parameters(), lr=_RATE), lambda step: 1.0 - step / steps)

    def loss(chosen: Sequence[int]) -> torch.Tensor:
        return lm_loss(base, rows.batch([records[index] for index in chosen]).to(base.embedding.device)).mean()

    descend(base, batches, loss, rates, name="planted members", steps=steps, private=True)


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
