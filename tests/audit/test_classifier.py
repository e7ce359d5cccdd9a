"""A classifier that private rows trained: its answers on test rows, and its line beside the variants'."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import f1_score

from palimpsest.audit.utility import ClassifierAudit, score_classifier
from palimpsest.errors import DataError
from palimpsest.params.load import load
from stages.classifier_eval import evaluator_beside

LABELS = ("bug", "praise", "question")


class Judge:
    """Reads the label off a text's first letter, and remembers how many texts it was given at once."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.given.append(len(texts))
        return np.array([[label[0] == text[0] for label in LABELS] for text in texts], dtype=float)


def test_answers_are_those_of_the_judge_row_by_row() -> None:
    texts, judge = [*["b"] * 90, *["p"] * 100, *["q"] * 60], Judge()
    targets = [*["bug"] * 80, *["question"] * 20, *["praise"] * 90, *["question"] * 60]
    found = score_classifier(judge, texts, targets, LABELS)
    right = np.array([text == target[0] for text, target in zip(texts, targets, strict=True)])
    assert judge.given == [100, 100, 50]
    assert (found.correct == right[None]).all()
    said = [next(label for label in LABELS if label[0] == text) for text in texts]
    assert found.scored.macro_f1 == pytest.approx(f1_score(targets, said, average="macro"))


def test_rows_that_cannot_be_scored_are_errors() -> None:
    with pytest.raises(DataError, match="not in the public list"):
        score_classifier(Judge(), ["b"], ["dispute"], LABELS)
    with pytest.raises(DataError, match="no rows"):
        score_classifier(Judge(), [], [], LABELS)


def test_the_file_reads_back() -> None:
    audit = ClassifierAudit(2, 2.9, "minilm_lr", score_classifier(Judge(), ["b", "p"], ["bug", "bug"], LABELS).scored)
    body = json.loads(json.dumps(audit.to_json("judge3")))
    assert ClassifierAudit.from_json(body) == audit
    assert (body["variant"], body["zone"], body["epsilon"]) == ("judge3", "internal", 2.9)
    assert body["scored"]["macro_f1"] == pytest.approx((2 / 3) / 3)


@pytest.mark.parametrize(
    ("evaluators", "beside"),
    [
        (("tfidf_lr", "minilm_lr"), "minilm_lr"),
        (("next_token", "finetuned", "tfidf_lr"), "finetuned"),
        (("next_token",), None),
    ],
)
def test_it_is_compared_with_what_reads_the_same_encoder(evaluators: tuple[str, ...], beside: str | None) -> None:
    params = load()
    utility = params.utility.model_copy(update={"evaluators": evaluators})
    assert evaluator_beside(params.model_copy(update={"utility": utility})) == beside
