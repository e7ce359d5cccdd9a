"""Membership inference with shadow models against the model of one variant: dearer, and only run when named.

Shadow models start from the public base model and are trained, without noise, on halves of the private training rows
that nobody guesses about. They live only in memory.
"""

from collections.abc import Sequence

import numpy as np

from palimpsest.audit.units import Scores
from palimpsest.devices import device
from palimpsest.methods.dp_lm import likelihood
from palimpsest.methods.dp_lm.model import ConditionalLm, DpLmArtifact, new_model
from palimpsest.methods.dp_lm.serialise import UNLABELLED, Serialiser
from palimpsest.models.lm import train
from palimpsest.models.settings import PromptWarmUp
from palimpsest.models.tokens import encode_texts
from palimpsest.params.schema import Params
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.records.write import read_split
from palimpsest.workspace import BASE_LM, MODELS, PRIVATE
from palimpsest_lab.audits.shadow import Population, lira_attack, rmia_attack
from stages.audited import conclude_on_error, metric_of_subject, save
from stages.common import start
from stages.membership import Target
from stages.mia import losses

SHADOWS = 4
OFFSET, GAMMA = 0.5, 1.0  # parameters of RMIA
_BATCH = 100


@conclude_on_error(metric_of_subject("shadow_membership"))
def run(name: str, model: str) -> None:
    """models/<model>, models/base, the private splits -> shadow_membership.json of the variant."""
    target = Target.of(name)
    audit = target.judge_claim(attacks(target.params, DpLmArtifact.load(MODELS / model), target.guess.sides))
    save(name, "shadow_membership", audit.to_json(name) | {"shadows": SHADOWS})


def attacks(params: Params, fitted: DpLmArtifact, sides: Sequence[Sequence[Record]]) -> dict[str, Scores]:
    """Run LiRA and RMIA; the population of RMIA is the private test rows, on which nothing is trained."""
    rows = fitted.serialiser()
    population = [Record(row.text, row.label) for row in read_split(PRIVATE / "test.parquet")]
    target = losses(fitted, fitted.model, sides)
    on_population = likelihood.record_losses(fitted.model, rows, population, _BATCH)
    # Only rows that nobody guesses about: no coin of a guessed record decides what is among them.
    records = [Record(row.text, row.label) for row in read_split(PRIVATE / "train.parquet") if not row.guess]
    shadows, others = list[Scores](), list[np.ndarray]()
    for number in track(range(SHADOWS), name="shadow models", total=SHADOWS, private=False, unit="model"):
        shadow = shadow_model(params, rows, records, number)
        shadows.append(losses(fitted, shadow, sides))
        others.append(likelihood.record_losses(shadow, rows, population, _BATCH))
    return {
        "lira": lira_attack(target, shadows, pooled=True),
        "rmia": rmia_attack(target, shadows, Population(on_population, np.stack(others)), offset=OFFSET, gamma=GAMMA),
    }


def shadow_model(params: Params, rows: Serialiser, records: Sequence[Record], number: int) -> ConditionalLm:
    """Train the public base model on a random half of the records, as it is trained, or would be, on public prompts."""
    model, _ = new_model(BASE_LM, max(1, len(params.dataset.labels)), 1, params.seed)
    model.to(device())
    chosen = np.random.default_rng([params.seed, number]).permutation(len(records))[: max(1, len(records) // 2)]
    sequences = encode_prompted(rows, [records[index] for index in chosen])
    train(model.lm.train(), sequences, params.models.prompts or PromptWarmUp(), number, private=True)
    model.lm.eval()
    return model


def encode_prompted(rows: Serialiser, records: Sequence[Record]) -> list[list[int]]:
    """Return `BOS label SEP text EOS` of each record whose label is public."""
    free = tuple(rows.prompts) == (UNLABELLED,)
    labels = [UNLABELLED if free else row.label or "" for row in records]
    encoded = encode_texts(rows.tokenizer, [row.text for row in records], rows.max_tokens)
    known = [(label, text) for label, text in zip(labels, encoded, strict=True) if text and label in rows.prompts]
    return [[*rows.prompt(label), *text, rows.ids.eos] for label, text in known]


if __name__ == "__main__":
    start(run)
