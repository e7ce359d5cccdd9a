"""Membership inference against the model of one variant."""

from collections.abc import Sequence

from palimpsest.audit.membership import (
    Scores,
    audit_membership,
    bag_of_words_control,
    loss_attack,
    record_losses,
    reference_attack,
)
from palimpsest.files import read_json, write_json
from palimpsest.generators.dp_lm import likelihood
from palimpsest.generators.dp_lm.artifact import DpLmArtifact
from palimpsest.generators.dp_lm.model import ConditionalLm, new_model
from palimpsest.generators.dp_lm.serialise import serialiser
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import read_split
from stages.common import BASE_LM, METRICS, MODELS, PRIVATE, RECEIPTS, start

CONFIDENCE = 0.95
_BATCH = 100


def run(name: str, model: str) -> None:
    """models/<model>, models/base, members and non-members -> membership.json of the variant."""
    params = load()
    sides = [guessed("train"), guessed("holdout")]
    texts = [[row.text for row in side] for side in sides]
    control = bag_of_words_control(*texts, confidence=CONFIDENCE, seed=params.seed)
    base, _ = new_model(BASE_LM, max(1, len(params.dataset.labels)), 1, params.seed)
    fitted = DpLmArtifact.load(MODELS / model)
    before, after = (losses(fitted, which, sides) for which in (base, fitted.model))
    receipt = read_json(RECEIPTS / f"{name}.json")
    audit = audit_membership(
        {"loss": loss_attack(after), "reference": reference_attack(after, before)},
        control,
        claim=receipt["epsilon"] if receipt["purpose"] == "release" else None,
        delta=params.delta,
        guess_share=params.audit.guesses,
        alpha=params.audit.alpha,
        confidence=CONFIDENCE,
        seed=params.seed,
    )
    write_json(METRICS / name / "membership.json", audit.to_json(name))


def guessed(part: str) -> list[Record]:
    """The rows of the audit subset that may be guessed about: members in train, non-members in holdout."""
    return [Record(row.text, row.label) for row in read_split(PRIVATE / f"{part}.parquet") if row.guess]


def losses(fitted: DpLmArtifact, model: ConditionalLm, sides: Sequence[Sequence[Record]]) -> Scores:
    """The loss of each record, serialised as in training."""
    rows = serialiser(fitted.tokenizer, tuple(fitted.shares), fitted.max_tokens, fitted.loss_on)

    def loss(texts: Sequence[str], labels: Sequence[str | None]):  # type: ignore[no-untyped-def]
        records = [Record(text, label) for text, label in zip(texts, labels, strict=True)]
        return likelihood.record_losses(model, rows, records, _BATCH)

    return record_losses(loss, *sides)


if __name__ == "__main__":
    start(run)
