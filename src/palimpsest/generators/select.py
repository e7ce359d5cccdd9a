"""`select`: public texts chosen by noisy class means, one cheap look at the private rows.

It writes nothing. A method with a language model must beat it at equal epsilon to earn what it costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent

from palimpsest.errors import DataError, ModelError, ParamsError
from palimpsest.generators.base import Budget, Plan, PlannedQuery
from palimpsest.generators.shares import divided, label_shares, planned_histogram, whole_rho
from palimpsest.params.evolve import SelectSettings
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.means import GRID, ClassMeans, Encode, class_steps, unit_rows
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-6  # the exact noise, and what the accountant of the statement rounds up when it recomputes epsilon
_SHRINKAGE = 0.5  # of the covariance of public texts towards a multiple of the identity


@dataclass(frozen=True, eq=False)
class Candidates:
    """Public texts to choose from.

    Attributes:
        texts: n texts; equal ones are chosen at most once between them.
        embeddings: theirs, shape (n, d), by the encoder that embeds the private rows; of any length.
    """

    texts: Sequence[str]
    embeddings: np.ndarray

    def __post_init__(self) -> None:
        if self.embeddings.ndim != 2 or len(self.embeddings) != len(self.texts):
            raise ValueError(f"got {len(self.texts)} texts and embeddings of shape {self.embeddings.shape!r}")

    def kept(self, domain: float) -> int:
        """How many of them a share of `domain` is, rounded up."""
        return math.ceil(domain * len(self.texts))


@dataclass(frozen=True, eq=False)
class ClassSums:
    """What private rows are about, label by label.

    Attributes:
        labels: the public labels, in their order.
        sums: noisy sum of each label's embeddings, shape (labels, d).
    """

    labels: tuple[str, ...]
    sums: np.ndarray


@dataclass(frozen=True, eq=False)
class Found:
    """What a fit of `select` leaves.

    Attributes:
        sums: noisy sums of embeddings per label.
        counts: label -> texts to choose.
    """

    sums: ClassSums
    counts: Mapping[str, int]


class Select:
    """The public texts that noisy class means point at.

    Guarantee: `fit` asks for a noisy label histogram where the shares of the labels are not public, and for the class
    means, each once for adding or removing one unit, a record or a person (`LabelHistogram`, `ClassMeans`). Their
    composition meets the budget under its primary accountant; without a histogram it is one Gaussian, exactly. Sampling
    is post-processing of the answers. The texts are public rows as they are, so what a release tells about private rows
    is which of them were chosen. With an infinite epsilon nothing is noised: a reference that must never be released.

    Attributes:
        settings: how texts are chosen.
        schema: what is public about the data set.
        candidates: the public texts; a plan needs none.
        encode: the encoder of the candidates; a plan needs none. See `ClassMeans` for what it may not do.
    """

    def __init__(
        self,
        settings: SelectSettings,
        schema: PublicSchema,
        candidates: Candidates | None = None,
        encode: Encode | None = None,
    ) -> None:
        self.settings, self.schema = settings, schema
        self.candidates, self.encode = candidates, encode

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        It is infeasible where the noise on a text's score is as large as the score could be at all, were every unit
        of a class of average size the same.

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        require_fit(self.settings, schema)
        counts = self._histogram(schema, budget)
        sigma, most = _sigma(budget, counts), schema.n_units / len(schema.label_names)
        means = self._means(schema, sigma)
        asked = [PlannedQuery(query.name, query.event()) for query in (counts, means) if query is not None]
        numbers: dict[str, float | int | str] = {"sigma": sigma, "rows": self.settings.rows}
        return Plan(
            "select",
            budget,
            tuple(asked),
            numbers if counts is None else {**numbers, "histogram_sigma": counts.sigma},
            feasible=sigma < most,
            notes=() if sigma < most else (_drowned(sigma, most, schema.unit),),
        )

    def fit(self, view: View, plan: Plan) -> Found:
        """Ask for the rows of each label, where they are not public, and for the noisy class means.

        Raises:
            DataError: there is no public text to choose from; nothing is asked then.
        """
        if self.encode is None or self.candidates is None or not self.candidates.texts:
            raise DataError("There is no public text to choose from.", "Name a public file with texts.")
        histogram = self._histogram(self.schema, plan.budget)
        shares = label_shares(view, self.settings, self.schema, histogram, "")
        answer = view.ask(self._means(self.schema, float(plan.numbers["sigma"])))
        sums = ClassSums(self.schema.label_names, np.array(answer, dtype=np.float64))
        return Found(sums, divided(self.settings.rows, shares))

    def sample(self, artifact: Found, counts: Mapping[str, int]) -> Iterator[Record]:
        """The texts chosen for each label, label by label in the order of `counts`. Free: see `choose`."""
        assert self.candidates is not None  # only a plan goes without them
        yield from choose(self.candidates, artifact.sums, counts, self.settings.domain)

    def _histogram(self, schema: PublicSchema, budget: Budget) -> LabelHistogram | None:
        return planned_histogram(self.settings, schema, whole_rho(budget))

    def _means(self, schema: PublicSchema, sigma: float) -> ClassMeans:
        width = 1 if self.candidates is None else self.candidates.embeddings.shape[1]
        return ClassMeans(schema.label_names, self.encode or _no_encoder, width, sigma)


def choose(candidates: Candidates, found: ClassSums, counts: Mapping[str, int], domain: float) -> list[Record]:
    """The candidates in domain that are most like one label and unlike the others.

    In domain of a label are the candidates with the largest cosine to its sum; each label has a domain of its own, so
    that one unlike the rest, or a rare one, keeps its texts. They are ranked by how much more they are like this label
    than like any other, along the directions that tell labels apart (`_telling`). Labels take turns, each taking its
    best text that none has taken, so no text is used twice; ties go to the text nearer the domain, then to the earlier
    one. A label gets fewer texts than asked where those in its domain run out.

    More texts cost nothing, and a classifier of words learns more from more of them, until a label has no more texts
    of its own.

    Args:
        candidates: public texts.
        found: sums of embeddings per label.
        counts: label -> texts wanted; labels of `found`.
        domain: share of the candidates that counts as in domain, for each label.

    Returns:
        Records, label by label in the order of `counts`, the best first.

    Raises:
        ValueError: a count is of a label that `found` has no sum of.
    """
    if unknown := set(counts) - set(found.labels):
        raise ValueError(f"{len(unknown)} labels have no sum")
    vectors, means = unit_rows(candidates.embeddings), unit_rows(found.sums)
    near = _rounded(vectors @ means.T)  # (n, labels)
    scores = _rounded(_margins(vectors @ _telling(means, vectors).T))  # (n, labels)
    columns = [found.labels.index(label) for label in counts]
    orders = [_ranked(near[:, column], scores[:, column], candidates.kept(domain)) for column in columns]
    chosen = _in_turns([iter(order.tolist()) for order in orders], list(counts.values()), candidates.texts)
    return [Record(candidates.texts[index], label) for label, own in zip(counts, chosen, strict=True) for index in own]


def oracle(
    candidates: Candidates,
    embeddings: np.ndarray,
    members: Sequence[str | None],
    labels: Sequence[str],
    counts: Mapping[str, int],
    domain: float,
) -> list[Record]:
    """The same choice from exact sums, each row a unit of its own: what this rule finds without noise.

    It reads private embeddings without noise: for tables of the private zone, never to be released.

    Args:
        candidates: public texts.
        embeddings: of the private rows, shape (n, d).
        members: their labels; rows with another label than `labels` contribute nothing.
        labels: the public labels.
        counts: label -> texts wanted.
        domain: share of the candidates that counts as in domain.
    """
    position: dict[str | None, int] = {label: index for index, label in enumerate(labels)}
    known = np.array([member in position for member in members], dtype=bool)
    classes = [position[member] for member in members if member in position]
    exact = class_steps(embeddings[known], classes, len(labels)) / GRID
    return choose(candidates, ClassSums(tuple(labels), exact), counts, domain)


def _telling(means: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The directions along which texts are compared with the labels, shape (labels, d).

    Linear discriminant analysis (Fisher 1936): what means differ by says little along directions in which all texts
    differ, so it is divided by the covariance. The covariance is that of the public texts, which costs no budget. It is
    shrunk halfway to a multiple of the identity: where public texts hardly vary, the division would enlarge little but
    the noise of the means.

    Args:
        means: of the labels, each of length 1, so that the sizes of labels do not speak, shape (labels, d).
        vectors: the candidates, shape (n, d).
    """
    centred = vectors - vectors.sum(axis=0) / max(1, len(vectors))
    covariance = centred.T @ centred  # (d, d), of any scale: it shortens every direction alike
    average = np.trace(covariance) / len(covariance)
    if not average > 0.0:
        return means
    shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * average * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(shrunk, means.T).T)


def _margins(scores: np.ndarray) -> np.ndarray:
    """How far each label's score is above the best of the others, (n, labels); alone, a label has none to beat."""
    if scores.shape[1] < 2:
        return scores
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1]  # (n, 1)
    return scores - np.where(scores == best, second, best)


def _ranked(near: np.ndarray, scores: np.ndarray, kept: int) -> np.ndarray:
    """Indices of the `kept` nearest, those with the highest scores first."""
    nearest = np.argsort(-near, kind="stable")[:kept]
    return nearest[np.argsort(-scores[nearest], kind="stable")]


def _rounded(scores: np.ndarray) -> np.ndarray:
    """Each column in billionths of its largest, whole ones, so that ties do not hang on the order of additions."""
    largest = np.abs(scores).max(axis=0, initial=0.0)
    return np.rint(scores / np.where(largest > 0.0, largest, 1.0) * 1e9)


def _in_turns(queues: Sequence[Iterator[int]], wanted: Sequence[int], texts: Sequence[str]) -> list[list[int]]:
    """What each queue gives when they take turns and skip texts that are taken, at most `wanted` of each."""
    taken: set[str] = set()
    chosen: list[list[int]] = [[] for _ in queues]
    for turn in range(max(wanted, default=0)):
        for queue, own, most in zip(queues, chosen, wanted, strict=True):
            free = (index for index in queue if texts[index] not in taken)
            for index in islice(free, int(turn < most)):
                own.append(index)
                taken.add(texts[index])
    return chosen


def require_fit(settings: SelectSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if len(schema.label_names) < 2:
        raise ParamsError("select needs two labels or more.", "Name them in dataset.labels, or leave select out.")
    if settings.prior is not None and set(settings.prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")


def _sigma(budget: Budget, histogram: LabelHistogram | None) -> float:
    """The noise of the class means that the histogram leaves of the budget."""
    if math.isinf(budget.epsilon):
        return 0.0
    if histogram is None:
        return _MARGIN * gdp_sigma(budget.epsilon, budget.delta)

    def asked(sigma: float) -> DpEvent:
        return ComposedDpEvent([histogram.event(), GaussianDpEvent(sigma)])

    return calibrate_noise(asked, budget.epsilon, budget.delta)


def _no_encoder(texts: Sequence[str]) -> np.ndarray:
    """Stands in where only a plan is made."""
    raise ModelError("There is no sentence encoder.", "Hand one to the generator.")


def _drowned(sigma: float, most: float, unit: str) -> str:
    return (
        f"The noise on a text's score, {sigma:.1f}, is as large as a class of {most:.0f} {unit}s could make the score: "
        "raise epsilon, or use public_only."
    )
