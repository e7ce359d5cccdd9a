"""Chooses texts by noisy class means: those that are like the rows of one label, and unlike those of the others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, GaussianDpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan, foretell_means
from palimpsest.methods.shared.method import Tools
from palimpsest.methods.shared.settings import Counted
from palimpsest.methods.shared.shares import (
    gaussian,
    note_counts,
    planned_histogram,
    planned_query,
    require_prior,
    whole_rho,
)
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.means import ClassMeans, Encode, unit_rows
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.personal import is_personal
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-6  # the exact noise, and what the accountant of the statement rounds up when it recomputes epsilon
_SHRINKAGE = 0.5  # of the covariance of public texts towards a multiple of the identity
# Measured in docs/sizing.md: what is expected of class means before noisy ones are seen.
_BETWEEN = 0.1  # variance between labels, as a share of the candidates' second moments
_NAMED = 0.1  # difference of labels' means, as a share of that of their descriptions


@dataclass(frozen=True, eq=False)
class Candidates:
    """Public texts to choose from.

    Attributes:
        texts: n texts; equal ones are chosen at most once between them.
        embeddings: those of the texts, shape (n, d), by the encoder that embeds the private rows; of any length.
    """

    texts: Sequence[str]
    embeddings: np.ndarray

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 2 or len(self.embeddings) != len(self.texts):
            raise ValueError(f"got {len(self.texts)} texts and embeddings of shape {self.embeddings.shape!r}")

    def count_kept(self, domain: float) -> int:
        """Return the number of candidates in a share of `domain`, rounded up."""
        return math.ceil(domain * len(self.texts))


def public_candidates(tools: Tools) -> Candidates:
    """Return the public texts that a release may contain: see `personal` for those that are left out.

    Raises:
        DataError: no text is left.
    """
    texts = tools.texts()
    free = np.array([not is_personal(Record(text)) for text in texts], dtype=bool)
    if not free.any():
        raise DataError(
            "There is no public text to choose from.",
            "Name a public file with texts that hold no telephone numbers, e-mail addresses or the like.",
        )
    return Candidates(list(compress(texts, free)), tools.embeddings()["texts"][free])


@dataclass(frozen=True, eq=False)
class ClassSums:
    """The noisy sum of the private rows' embeddings for each public label.

    Attributes:
        sums: shape (labels, d).
        sigma: the standard deviation of each coordinate's noise; 0 where there is none, or it is not known.
        units: the public number of units of an average label.
        named: embeddings of the labels' public descriptions, (labels, d), of length 1; None where they say nothing.
    """

    labels: tuple[str, ...]
    sums: np.ndarray
    sigma: float = 0.0
    units: float = 1.0
    named: np.ndarray | None = None


def plan_means(method: str, settings: Counted, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan a method whose only query on the rows, besides the label histogram, is the class means.

    The plan is infeasible where the noise on a text's score is at least as large as the largest possible score, which
    it has if all units of a class of average size are equal.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    if len(schema.label_names) < 2:
        raise ParamsError(f"{method} needs two labels or more.", f"Name them in dataset.labels, or leave {method} out.")
    require_prior(settings.prior, schema)
    histogram = planned_histogram(settings, schema, whole_rho(budget))
    sigma, most = _sigma(budget, histogram), schema.n_units / len(schema.label_names)
    told = foretell_means(schema, sigma)
    numbers: dict[str, float | int | str] = {"sigma": sigma, "rows": settings.rows}
    return Plan(
        method,
        budget,
        (*planned_query(histogram), planned_means(sigma)),
        numbers if histogram is None else {**numbers, "histogram_sigma": histogram.sigma},
        feasible=sigma < most,
        notes=tuple(note_counts(histogram, schema)) if sigma < most else (_explain_noise(sigma, most, schema.unit),),
        foretold=(told,),
    )


def _sigma(budget: Budget, histogram: LabelHistogram | None) -> float:
    """Return the noise of the class means that uses up the budget left by the histogram."""
    if math.isinf(budget.epsilon):
        return 0.0
    if histogram is None:
        return _MARGIN * gdp_sigma(budget.epsilon, budget.delta)

    def asked(sigma: float) -> DpEvent:
        return ComposedDpEvent([histogram.event(), GaussianDpEvent(sigma)])

    return calibrate_noise(asked, budget.epsilon, budget.delta)


def _explain_noise(sigma: float, most: float, unit: str) -> str:
    return (
        f"The noise on a text's score, {sigma:.1f}, is as large as a class of {most:.0f} {unit}s could make the score: "
        "raise epsilon, or use public_only."
    )


def planned_means(sigma: float) -> PlannedQuery:
    """Return the planned query for class means with this noise."""
    return PlannedQuery(ClassMeans.name, gaussian(sigma), versions=versions_of(ClassMeans.name))


def class_sums(
    view: View, schema: PublicSchema, encode: Encode, dimensions: int, sigma: float, named: np.ndarray | None = None
) -> ClassSums:
    """Ask for the class sums; see `ClassMeans`. The encoder decides how many texts it reads at once.

    Args:
        named: embeddings of the labels' public descriptions, (labels, dimensions).
    """
    labels = schema.label_names
    answer = view.ask(ClassMeans(labels, encode, dimensions, sigma))
    told = None if named is None else unit_rows(np.asarray(named, dtype=np.float64))
    return ClassSums(labels, np.array(answer, dtype=np.float64), sigma, schema.n_units / len(labels), told)


def choose(candidates: Candidates, classes: ClassSums, counts: Mapping[str, int], domain: float) -> list[Record]:
    """The candidates in domain that are most like one label and unlike the others.

    The domain of a label is the candidates with the largest cosine to its sum. Each label has its own domain, so that
    an unusual or rare label keeps its texts. Candidates are ranked by how much more they resemble this label than any
    other, along the directions that separate labels (`_discriminant_directions`). Labels take turns, each taking its
    best text that none has taken, so no text is used twice; ties go to the text nearer the domain, then to the earlier
    one. A label gets fewer texts than asked where those in its domain run out.

    More texts cost nothing, and a classifier of words learns more from more of them, until a label has no more texts
    of its own.

    Args:
        candidates: public texts.
        classes: sums of embeddings per label.
        counts: label -> texts wanted; labels of `classes`.
        domain: share of the candidates that form the domain of each label.

    Returns:
        Records, label by label in the order of `counts`, the best first.

    Raises:
        ValueError: a count is of a label without a sum.
    """
    if unknown := set(counts) - set(classes.labels):
        raise ValueError(f"{len(unknown)} labels have no sum")
    vectors = unit_rows(candidates.embeddings)
    means = unit_rows(estimate_means(classes, vectors))
    near = _round_scores(vectors @ means.T)  # (n, labels)
    scores = _round_scores(_margins(vectors @ _discriminant_directions(means, vectors).T))  # (n, labels)
    columns = [classes.labels.index(label) for label in counts]
    orders = [_rank(near[:, column], scores[:, column], candidates.count_kept(domain)) for column in columns]
    chosen = _take_in_turns([iter(order.tolist()) for order in orders], list(counts.values()), candidates.texts)
    return [Record(candidates.texts[index], label) for label, own in zip(counts, chosen, strict=True) for index in own]


def estimate_means(classes: ClassSums, vectors: np.ndarray) -> np.ndarray:
    """Estimate the labels' exact means, shape (labels, d), from the noisy sums and the candidates' unit vectors (n, d).

    A Wiener filter (Wiener 1949): means are expected to differ from their prior along the directions in which
    candidates lie, in proportion to their second moments, and noise lies along all directions alike. It reads noisy
    answers and public facts only (post-processing), and changes nothing where there is no noise.
    """
    if not classes.sigma or not vectors.any():
        return classes.sums
    noise, found = (classes.sigma / classes.units) ** 2, classes.sums / classes.units
    prior = 0.0 if classes.named is None else _name_means(classes.named, found, vectors.mean(axis=0), noise)
    moments = _BETWEEN / len(vectors) * vectors.T @ vectors  # (d, d)
    return np.asarray(prior + np.linalg.solve(moments + noise * np.eye(len(moments)), moments @ (found - prior).T).T)


def _name_means(named: np.ndarray, found: np.ndarray, centre: np.ndarray, noise: float) -> np.ndarray:
    """Return the means that the labels' descriptions suggest, (labels, d), around the candidates' centre, (d,).

    How far descriptions say what sets labels apart is estimated from the noisy means themselves: the posterior mean of
    one factor whose prior has mean and standard deviation `_NAMED`.
    """
    apart = named - named.mean(axis=0)
    agreed = float(((found - centre) * apart).sum())
    factor = (noise / _NAMED + agreed) / (noise / _NAMED**2 + float(np.square(apart).sum()))
    return centre + max(0.0, factor) * apart


def _discriminant_directions(means: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the directions along which texts are compared with the labels, shape (labels, d).

    Linear discriminant analysis (Fisher 1936): a difference of means says little along directions in which all texts
    differ, so it is divided by the covariance. The covariance is that of the public texts, which costs no budget. It is
    shrunk halfway to a multiple of the identity: where public texts hardly vary, the division would mostly enlarge the
    noise of the means. The means, (labels, d), have length 1, so that the sizes of labels have no influence.
    """
    centred = vectors - vectors.sum(axis=0) / max(1, len(vectors))
    covariance = centred.T @ centred  # (d, d), of any scale: it shortens every direction alike
    average = np.trace(covariance) / len(covariance)
    if not average > 0.0:
        return means
    shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * average * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(shrunk, means.T).T)


def _margins(scores: np.ndarray) -> np.ndarray:
    """Subtract from each label's score the best of the others, (n, labels); a single label keeps its score."""
    if scores.shape[1] < 2:
        return scores
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1]  # (n, 1)
    return scores - np.where(scores == best, second, best)


def _rank(near: np.ndarray, scores: np.ndarray, kept: int) -> np.ndarray:
    """Indices of the `kept` nearest, those with the highest scores first."""
    nearest = np.argsort(-near, kind="stable")[:kept]
    return nearest[np.argsort(-scores[nearest], kind="stable")]


def _round_scores(scores: np.ndarray) -> np.ndarray:
    """Round each column to billionths of its largest, as whole numbers: ties must not depend on summation order."""
    largest = np.abs(scores).max(axis=0, initial=0.0)
    return np.rint(scores / np.where(largest > 0.0, largest, 1.0) * 1e9)


def _take_in_turns(queues: Sequence[Iterator[int]], wanted: Sequence[int], texts: Sequence[str]) -> list[list[int]]:
    """Take from each queue in turn, skipping texts that are taken, at most `wanted` of each."""
    taken: set[str] = set()
    chosen: list[list[int]] = [[] for _ in queues]
    for turn in range(max(wanted, default=0)):
        for queue, own, most in zip(queues, chosen, wanted, strict=True):
            free = (index for index in queue if texts[index] not in taken)
            for index in islice(free, int(turn < most)):
                own.append(index)
                taken.add(texts[index])
    return chosen
