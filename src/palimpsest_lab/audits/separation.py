"""Separation: how well a model's hidden states tell the labels apart, and plane drawings of them.

Source: the paper's figures 1 and 2 (random forests on, and UMAP of, the states of the fine-tuned language model). The
forest is fitted on the states of training rows and scored on those of test rows; neither it nor the drawings see text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier

from palimpsest import validate
from palimpsest.audit.statistics import Estimate
from palimpsest.audit.utility import evaluate, label_indices
from palimpsest.errors import DataError, ModelError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.workspace import INTERNAL

METHODS = ("pca", "umap")
_DECIMALS = 3
_FEWEST = 4  # rows of a drawing: UMAP cannot begin with fewer
_NEIGHBOURS = 15  # UMAP's own default


@dataclass(frozen=True)
class ForestSettings:
    """Settings of the forests, one for each seed."""

    trees: int
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        validate.require_positive(trees=self.trees)
        validate.require_in_range(3, 1000, number_of_seeds=len(self.seeds))


@dataclass(frozen=True)
class Separation(Plain):
    """The accuracy of forests that read the label off a hidden state."""

    # on the test rows, mean over seeds, with the Wilson interval over test rows.
    accuracy: Annotated[Estimate, At(value="accuracy")]
    per_seed: tuple[float, ...]  # accuracy of each forest
    chance: float  # share of the commonest label among the test rows: the accuracy of always answering it
    train_rows: int  # states that the forests were fitted on
    test_rows: int  # states that they were scored on


@dataclass(frozen=True, eq=False)
class Projection(Plain):
    """Points in a plane, rounded, and the label of each."""

    x: np.ndarray
    y: np.ndarray
    label: Sequence[str]

    @classmethod
    def of(cls, points: np.ndarray, labels: Sequence[str]) -> "Projection":
        """Build a drawing from points of shape (n, 2)."""
        x, y = np.round(points, _DECIMALS).T
        return cls(x, y, labels)


@dataclass(frozen=True, eq=False)
class SeparationAudit(PlainFile):
    """Private zone: how one language model represents private rows."""

    separation: Separation  # of the labels in its hidden states
    lm_loss: float | None  # mean loss of the test rows in nats per token, or None where it was not measured
    projections: Mapping[str, Projection]  # method -> drawing of the test rows' states

    def to_json(self, variant: str, zone: str = INTERNAL) -> dict[str, Any]:
        """Return the document of a model, which stands for the variant; it holds numbers and public labels, no text."""
        body = super().to_json(variant, zone)
        return {"model": body.pop("variant"), **body}


def separation(
    train_states: np.ndarray,
    train_labels: Sequence[str],
    test_states: np.ndarray,
    test_labels: Sequence[str],
    labels: Sequence[str],
    settings: ForestSettings,
) -> Separation:
    """Measure the accuracy of random forests that read labels off hidden states.

    Args:
        train_states: states the forests are fitted on, shape (n, d).
        test_states: states the forests are scored on, by the same model, shape (k, d).
        labels: all public labels.

    Raises:
        DataError: there are no training or no test rows, or a label is not in `labels`.
        ModelError: a state is not finite.
    """
    _require_finite(train_states, test_states)
    known, truth = label_indices(train_labels, labels), label_indices(test_labels, labels)
    runs = [_forest(train_states, known, test_states, len(labels), settings.trees, seed) for seed in settings.seeds]
    scored = evaluate(np.stack(runs), truth, labels).scored
    return Separation(
        accuracy=scored.accuracy,
        per_seed=scored.per_seed,
        chance=float(np.bincount(truth).max() / len(truth)),
        train_rows=len(known),
        test_rows=len(truth),
    )


def _forest(
    states: np.ndarray, targets: np.ndarray, test: np.ndarray, labels: int, trees: int, seed: int
) -> np.ndarray:
    """Return probabilities of the test rows' labels, (test rows, labels); 0 for a label that no training row has."""
    forest = RandomForestClassifier(n_estimators=trees, random_state=seed).fit(states, targets)
    probabilities = np.zeros((len(test), labels))
    probabilities[:, forest.classes_] = forest.predict_proba(test)
    return probabilities


def project(states: np.ndarray, method: str, seed: int) -> np.ndarray:
    """Draw states in a plane, float64 of shape (n, 2).

    The same states and seed give the same points on one machine, unless nearly all states are equal.

    Args:
        states: shape (n, d).
        method: "pca" keeps distances as well as a plane can; "umap" keeps neighbourhoods (McInnes et al. 2018), and
            neither its distances nor its axes mean anything.

    Raises:
        DataError: there are too few rows to draw.
        ModelError: a state is not finite.
    """
    validate.require_one_of(METHODS, method=method)
    _require_finite(states)
    if len(states) < _FEWEST:
        raise DataError("There are too few rows for a drawing.", f"Give at least {_FEWEST} test rows.")
    plane = PCA(n_components=2, svd_solver="full").fit_transform(states) if method == "pca" else _umap(states, seed)
    return plane.astype(np.float64)


def _umap(states: np.ndarray, seed: int) -> np.ndarray:
    from umap import UMAP  # imported here, because its import compiles for many seconds

    neighbours = min(_NEIGHBOURS, len(states) - 1)
    return UMAP(n_components=2, n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(states)


def _require_finite(*states: np.ndarray) -> None:
    if not all(np.isfinite(part).all() for part in states):
        raise ModelError(
            "The model's hidden states are not all finite.", "Its training may have diverged: lower its learning rate."
        )
