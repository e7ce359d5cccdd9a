"""Utility: train on synthetic rows, test on real ones.

Every choice (regularisation, vocabulary) is made only on synthetic rows; the test rows are only scored.

A classifier that was itself trained with DP-SGD is scored on the same rows, without synthetic text in between: the
baseline DP-FT-Downstream of "Differentially Private Synthetic Data via Foundation Model APIs 2: Text".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support

from palimpsest import validate
from palimpsest.audit.groups import GroupScores, LabelFit
from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio, wilson
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.segment import words

_Features: TypeAlias = np.ndarray | csr_matrix

_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # candidate values of C, the inverse strength of the L2 penalty
_CALIBRATION_BINS = 15  # Guo et al. 2017
_ITERATIONS = 500
_VALIDATION_SHARE = 0.2  # of the synthetic rows: these choose the penalty and do not train
_BATCH = 100  # texts


@dataclass(frozen=True)
class LabelScores(Plain):
    """Scores of one label; precision is 0 where it is never predicted, recall 0 where no test row has it."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Scored(Plain):
    """The scores of one evaluator's predictions."""

    keys: ClassVar = ("accuracy", "per_seed", "correct", "per_class", "macro_f1", "ece")
    accuracy: Annotated[Estimate, At(value="accuracy")]  # mean over seeds, with the Wilson interval over test rows
    per_seed: tuple[float, ...]
    correct: tuple[int, ...]  # rows that each seed predicted right
    # over all seeds' predictions together, support in test rows; none where the task has no public labels.
    per_class: Mapping[str, LabelScores]
    # expected calibration error of the top label, mean over seeds; None for an evaluator that predicts no label
    ece: float | None
    perplexity: Estimate | None = None  # of what predicts tokens, per token of its own; the lower the better
    retention: Estimate | None = None  # what is kept of the real rows' accuracy; None where it was not compared
    # of the gap between public text and real rows; None where it was not compared, or there is no gap.
    gap_closed: Estimate | None = None
    compared: bool = False  # whether the gap was asked for
    over_public_lm: Estimate | None = None  # of the accuracy of the public model's own rows; None where there are none

    @property
    def macro_f1(self) -> float | None:
        """Mean F1 over the labels, equally weighted; None for an evaluator that predicts no label."""
        return float(np.mean([one.f1 for one in self.per_class.values()])) if self.per_class else None

    def to_json(self) -> dict[str, Any]:
        """The fields as a mapping; a comparison that was not made is left out."""
        told = {"perplexity": self.perplexity, "retention": self.retention, "over_public_lm": self.over_public_lm}
        body = super().to_json() | {key: one.to_json() for key, one in told.items() if one is not None}
        gap = None if self.gap_closed is None else self.gap_closed.to_json()
        return body | ({"gap_closed": gap} if self.compared else {})

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Scored":
        kept, gap, perplexity, over = (
            None if body.get(key) is None else Estimate.from_json(body[key])
            for key in ("retention", "gap_closed", "perplexity", "over_public_lm")
        )
        told, compared = super().from_json(body), "gap_closed" in body
        told = replace(told, retention=kept, gap_closed=gap, perplexity=perplexity, compared=compared)
        return replace(told, over_public_lm=over)


@dataclass(frozen=True)
class UtilityScores(PlainFile):
    """Private zone: the scores of one variant by every evaluator."""

    rows: int
    test_rows: int
    evaluators: Mapping[str, Scored]
    label_fit: LabelFit | None = None  # of a variant's rows, where they bear public labels
    groups: Mapping[str, GroupScores] = field(default_factory=dict)  # those that were declared, by name


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluator on the test rows, over several seeds."""

    # which test rows each seed predicted right, bool of shape (seeds, test rows), or how many tokens of each. Private
    # zone: the stage may store it, so that two variants can be compared row by row.
    correct: np.ndarray
    scored: Scored  # what it comes to, without a word about single rows; it is compared with nothing

    @property
    def item_accuracy(self) -> np.ndarray:
        """Each test row's share of seeds that predicted it right, or mean number of right tokens; (test rows,)."""
        return self.correct.mean(axis=0)


@dataclass(frozen=True, eq=False)
class UtilityAudit:
    """Private zone: all evaluations of one variant."""

    rows: int
    test_rows: int
    evaluations: Mapping[str, Evaluation]

    def scores(self, compared: Callable[[str, Evaluation], Scored] = lambda _, one: one.scored) -> UtilityScores:
        """Return the scores of each evaluation by its name, with comparisons added by `compared`."""
        scores = {name: compared(name, evaluation) for name, evaluation in self.evaluations.items()}
        return UtilityScores(self.rows, self.test_rows, scores)


@dataclass(frozen=True)
class LinearSettings:
    """Settings of the linear classifiers' training."""

    # each seed draws which synthetic rows train and which choose the penalty; the solver itself is deterministic, so
    # the spread over seeds is that of this draw.
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        validate.require_in_range(3, 1000, number_of_seeds=len(self.seeds))


def minilm_lr(
    features: np.ndarray,
    targets: Sequence[str],
    test_features: np.ndarray,
    test_targets: Sequence[str],
    labels: Sequence[str],
    settings: LinearSettings,
) -> Evaluation:
    """Logistic regression on sentence embeddings by one encoder: (n, d) of the synthetic rows, (k, d) of the test rows.

    Raises:
        DataError: there are no synthetic or no test rows, or a label is not in `labels`.
    """
    known, truth = label_indices(targets, labels), label_indices(test_targets, labels)
    return _linear(features, known, test_features, truth, labels, settings)


def tfidf_lr(
    texts: Sequence[str],
    targets: Sequence[str],
    test_texts: Sequence[str],
    test_targets: Sequence[str],
    labels: Sequence[str],
    settings: LinearSettings,
) -> Evaluation:
    """Logistic regression on TF-IDF of words and word pairs: unrelated to any model used in generation.

    The vocabulary and the document frequencies are those of the synthetic texts. Arguments and errors are those of
    `minilm_lr`, with texts for embeddings; synthetic texts without a single word are a DataError too.
    """
    known, truth = label_indices(targets, labels), label_indices(test_targets, labels)
    if not any(words(text) for text in texts):
        raise DataError("The synthetic texts hold no word.", "Look at the generator: its training may have diverged.")
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, tokenizer=words, token_pattern=None, lowercase=False
    )
    features = vectorizer.fit_transform(texts)
    return _linear(features, known, vectorizer.transform(test_texts), truth, labels, settings)


def evaluate(probabilities: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> Evaluation:
    """Score predictions; the interval of the accuracy is Wilson's, of each row's mean over seeds.

    The interval covers the drawing of test rows, for which it is conservative, and not retraining, which the seeds
    show.

    Args:
        probabilities: probability of each label, shape (seeds, test rows, labels).
        truth: index of the right label, shape (test rows,).
    """
    predicted = probabilities.argmax(axis=2)  # (seeds, test rows)
    correct = predicted == truth
    interval = wilson(float(correct.mean(axis=0).sum()), len(truth))
    *of_labels, support = precision_recall_fscore_support(
        np.tile(truth, len(predicted)), predicted.ravel(), labels=range(len(labels)), zero_division=0.0
    )
    by_label = zip(labels, *(each.tolist() for each in of_labels), (support // len(predicted)).tolist(), strict=True)
    scored = Scored(
        accuracy=Estimate(float(correct.mean()), *interval),
        per_seed=tuple(correct.mean(axis=1).tolist()),
        correct=tuple(correct.sum(axis=1).tolist()),
        per_class={label: LabelScores(*scores) for label, *scores in by_label},
        ece=float(np.mean([calibration_error(seed, truth) for seed in probabilities])),
    )
    return Evaluation(correct, scored)


def calibration_error(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error of the top label, 15 equal bins (Guo et al. 2017, equation 3).

    `probabilities` has shape (test rows, labels), `truth` the right labels' indices, (test rows,).
    """
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    bins = np.minimum((confidence * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=correct - confidence, minlength=_CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(truth))


def retention(variant: np.ndarray, real: np.ndarray, bootstrap: Bootstrap) -> Estimate | None:
    """Accuracy of `variant` as a share of that of the real rows, with a paired bootstrap interval over test rows.

    None, to be printed as n/a, where the classifier that learned from the real rows is never right.

    Args:
        variant: `item_accuracy` of the variant, shape (test rows,).
        real: `item_accuracy` of the classifier trained on the private rows.
    """
    if not real.any():
        return None
    return Estimate(float(variant.sum() / real.sum()), *bootstrap_ratio(variant, real, bootstrap))


def gap_closed(method: np.ndarray, public_only: np.ndarray, real: np.ndarray, bootstrap: Bootstrap) -> Estimate | None:
    """(method - public) / (real - public), with a paired bootstrap interval; None where there is no gap to close.

    None, to be printed as n/a, where the interval of real - public_only reaches 0 or below. Arguments are those of
    `retention`.
    """
    gained, gap = method - public_only, real - public_only
    if bootstrap_ratio(gap, np.ones_like(gap), bootstrap).low <= 0.0:
        return None
    return Estimate(float(gained.sum() / gap.sum()), *bootstrap_ratio(gained, gap, bootstrap))


def label_indices(targets: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Index of each target among the labels; a DataError where there is no target, or one that is not a label."""
    position = {label: index for index, label in enumerate(labels)}
    if any(target not in position for target in targets):
        raise DataError("A row has a label that is not in the public list.", "Add it to dataset.labels.")
    if not len(targets):
        raise DataError("There are no rows to train or to test on.", "Generate some, or enlarge the test share.")
    return np.array([position[target] for target in targets])


def _linear(
    features: _Features,
    known: np.ndarray,
    test: _Features,
    truth: np.ndarray,
    labels: Sequence[str],
    settings: LinearSettings,
) -> Evaluation:
    runs = [fit_predict(features, known, test, len(labels), seed) for seed in settings.seeds]
    return evaluate(np.stack(runs), truth, labels)


def fit_predict(features: _Features, targets: np.ndarray, test: _Features, labels: int, seed: int) -> np.ndarray:
    """Probabilities of the test rows by the model that is best on this seed's validation rows; (test rows, labels)."""
    order = np.random.default_rng(seed).permutation(len(targets))
    held = int(_VALIDATION_SHARE * len(targets))
    chosen, train = order[:held], order[held:]
    probabilities = np.zeros((test.shape[0], labels))
    if len(np.unique(targets[train])) == 1:  # the only possible prediction
        probabilities[:, targets[train][0]] = 1.0
        return probabilities

    def accuracy(model: LogisticRegression) -> float:
        return float((model.predict(features[chosen]) == targets[chosen]).mean()) if held else 0.0

    regressions = (LogisticRegression(C=penalty, max_iter=_ITERATIONS) for penalty in _PENALTIES)
    best = max((one.fit(features[train], targets[train]) for one in regressions), key=accuracy)
    probabilities[:, best.classes_] = best.predict_proba(test)
    return probabilities


@dataclass(frozen=True)
class ClassifierAudit(PlainFile):
    """Private zone: the scores of one classifier."""

    test_rows: int
    # proven epsilon of the classifier and the language model charged before it together; None without noise
    epsilon: float | None
    beside: str | None  # the evaluator with whose baselines it is compared; None where no evaluator predicts labels
    scored: Scored


def score_classifier(
    judge: Callable[[Sequence[str]], np.ndarray], texts: Sequence[str], targets: Sequence[str], labels: Sequence[str]
) -> Evaluation:
    """Score a classifier on test rows.

    Args:
        judge: texts -> probabilities of the labels, (texts, labels).
        texts, targets: the test rows and their labels.
        labels: the labels in the order of the probabilities.

    Raises:
        DataError: there are no test rows, or one has a label that is not in `labels`.
    """
    truth = label_indices(targets, labels)
    starts = range(0, len(texts), _BATCH)
    shown = track(starts, name="classifier", total=len(starts), private=True)
    found = np.concatenate([judge(texts[start : start + _BATCH]) for start in shown])
    return evaluate(found[None], truth, labels)
