"""Utility against scikit-learn's own metrics; nothing is chosen on real rows; no gap is printed where there is none."""

import json

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.utility import (
    LinearSettings,
    UtilityAudit,
    UtilityScores,
    calibration_error,
    evaluate,
    gap_closed,
    minilm_lr,
    retention,
    tfidf_lr,
)
from palimpsest.errors import DataError

LABELS = ("bug", "praise", "question")
SETTINGS = LinearSettings(seeds=(0, 1, 2))
BOOTSTRAP = Bootstrap(resamples=500, seed=0)


def embeddings(count, seed, spread=0.5):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, count)
    return np.eye(3)[truth] + rng.normal(0, spread, (count, 3)), [LABELS[index] for index in truth]


def sentences(count, seed):
    rng, words = np.random.default_rng(seed), {"bug": "crash", "praise": "lovely", "question": "how"}
    labels = [LABELS[index] for index in rng.integers(0, 3, count)]
    return [f"w{rng.integers(50)} {words[label]} w{rng.integers(50)}" for label in labels], labels


def test_embeddings_are_classified():
    evaluation = minilm_lr(*embeddings(400, 0), *embeddings(300, 1), LABELS, SETTINGS)
    assert evaluation.correct.shape == (3, 300)
    assert 0.7 < evaluation.scored.accuracy.low < evaluation.scored.accuracy.value < evaluation.scored.accuracy.high
    assert evaluation.scored.accuracy.value == pytest.approx(evaluation.item_accuracy.mean())
    assert sum(scores.support for scores in evaluation.scored.per_class.values()) == 300


def test_texts_are_classified():
    assert tfidf_lr(*sentences(300, 0), *sentences(200, 1), LABELS, SETTINGS).scored.accuracy.value > 0.95


def test_labels_that_carry_nothing_give_chance():
    features, labels = embeddings(400, 0)
    shuffled = list(np.random.default_rng(0).permutation(labels))
    assert minilm_lr(features, shuffled, *embeddings(600, 1), LABELS, SETTINGS).scored.accuracy.value < 0.55


def test_the_penalty_is_chosen_without_the_test_rows():
    train, (test, truth) = embeddings(200, 0, spread=1.5), embeddings(200, 1, spread=1.5)
    turned = [LABELS[(LABELS.index(label) + 1) % 3] for label in truth]
    right, wrong = (minilm_lr(*train, test, targets, LABELS, SETTINGS) for targets in (truth, turned))
    # Same predictions whatever the test labels are: no row can be right under both.
    assert not (right.correct & wrong.correct).any()
    assert right.scored.per_class["bug"].support != 0


def test_one_class_of_synthetic_rows_is_predicted_everywhere():
    features, _ = embeddings(20, 0)
    test, truth = embeddings(90, 1)
    evaluation = minilm_lr(features, ["praise"] * 20, test, truth, LABELS, SETTINGS)
    assert evaluation.scored.accuracy.value == pytest.approx(truth.count("praise") / 90)
    assert evaluation.scored.per_class["praise"].recall == 1.0
    assert evaluation.scored.per_class["bug"].precision == 0.0


def test_scores_per_class_equal_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.dirichlet(np.ones(3), (1, 200)), rng.integers(0, 3, 200)
    evaluation = evaluate(probabilities, truth, LABELS)
    expected = np.column_stack(precision_recall_fscore_support(truth, probabilities[0].argmax(axis=1)))
    found = [list(evaluation.scored.per_class[label].to_json().values()) for label in LABELS]
    assert np.allclose(found, expected)


def test_calibration_error_by_hand():
    # Two rows at .8 of which one is right, two at .6 both right: (2 * |.5 - .8| + 2 * |1 - .6|) / 4.
    probabilities = np.array([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
    assert calibration_error(probabilities, np.array([0, 1, 0, 0])) == pytest.approx(0.35)


def test_a_calibrated_forecast_has_a_small_error_and_a_boastful_one_a_large():
    rng = np.random.default_rng(0)
    top = rng.uniform(0.5, 1.0, 20_000)
    truth = (rng.random(20_000) > top).astype(int)
    assert calibration_error(np.column_stack([top, 1 - top]), truth) < 0.02
    assert calibration_error(np.column_stack([top**0.1, 1 - top**0.1]), truth) > 0.1


@pytest.mark.parametrize(("rows", "label"), [(10, "unheard-of"), (0, "bug")])
def test_unusable_rows_are_errors_that_quote_nothing(rows, label):
    test, truth = embeddings(10, 1)
    with pytest.raises(DataError) as caught:
        minilm_lr(np.zeros((rows, 3)), [label] * rows, test, truth, LABELS, SETTINGS)
    assert label not in str(caught.value)
    assert not any(sign.isdigit() for sign in str(caught.value)), "how many rows there are is private"


def test_synthetic_texts_without_a_word_are_an_error():
    with pytest.raises(DataError, match="no word"):
        tfidf_lr(["", "?!"], ["bug", "praise"], ["a crash"], ["bug"], LABELS, SETTINGS)


def test_retention_is_paired():
    rng = np.random.default_rng(0)
    real = (rng.random(400) < 0.8).astype(float)
    half = real * (np.arange(400) % 2)
    estimate = retention(half, real, BOOTSTRAP)
    assert estimate.value == pytest.approx(half.sum() / real.sum())
    assert estimate.low < estimate.value < estimate.high
    assert retention(real, real, BOOTSTRAP).low == 1.0
    assert retention(half, np.zeros(400), BOOTSTRAP) is None, "so few test rows that none was right measure nothing"


def test_gap_closed_is_not_given_where_there_is_no_gap():
    rng = np.random.default_rng(0)
    public, method, real = (rng.random((3, 500)) < np.array([[0.5], [0.65], [0.8]])).astype(float)
    closed = gap_closed(method, public, real, BOOTSTRAP)
    assert closed is not None
    assert 0.2 < closed.low < 0.5 < closed.high < 0.8
    assert gap_closed(method, real, real, BOOTSTRAP) is None
    assert gap_closed(method, real, public, BOOTSTRAP) is None


def test_fewer_than_three_seeds_are_refused():
    with pytest.raises(ValueError, match="number_of_seeds"):
        LinearSettings(seeds=(0, 1))


def test_json_has_the_published_shape():
    evaluation = minilm_lr(*embeddings(60, 0), *embeddings(50, 1), LABELS, SETTINGS)
    document = UtilityAudit(60, 50, {"minilm_lr": evaluation}).scores().to_json("dp3")
    assert UtilityScores.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert (document["variant"], document["zone"], document["rows"], document["test_rows"]) == (
        "dp3",
        "internal",
        60,
        50,
    )
    scores = document["evaluators"]["minilm_lr"]
    assert {"accuracy", "low", "high", "per_seed", "per_class", "ece"} <= set(scores)
    assert len(scores["per_seed"]) == 3
    assert set(scores["per_class"]["bug"]) == {"precision", "recall", "f1", "support"}
