"""`select`: public texts chosen by noisy class means, one cheap look at the private rows.

It writes nothing. A method with a language model must beat it at equal epsilon to earn what it costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from palimpsest import validate
from palimpsest.errors import ParamsError
from palimpsest.generators.base import Budget, Plan, PlannedQuery
from palimpsest.privacy.accounting import gdp_sigma
from palimpsest.privacy.means import GRID, ClassMeans, Encode, class_steps, unit_rows
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-6  # the exact noise, and what the accountant of the statement rounds up when it recomputes epsilon


@dataclass(frozen=True)
class SelectSettings:
    """How texts are chosen.

    Attributes:
        domain: share of the candidates that counts as in domain: those nearest the mean of all rows.
        batch: private texts handed to the encoder at once. With 1 no text's embedding can depend on another's; more
            are faster, and let it do so by what the encoder rounds.
    """

    domain: float = 0.5
    batch: int = 1

    def __post_init__(self) -> None:
        validate.positive(domain=self.domain, batch=self.batch)
        validate.in_range(0.0, 1.0, domain=self.domain)


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
    """What a fit of `select` leaves.

    Attributes:
        labels: the public labels, in their order.
        sums: noisy sum of each label's embeddings, shape (labels, d).
    """

    labels: tuple[str, ...]
    sums: np.ndarray


class Select:
    """The public texts that noisy class means point at.

    Guarantee: `fit` asks one query, `ClassMeans`, whose noise meets the budget under privacy-loss distributions, for
    adding or removing one record. Sampling is post-processing of its answer. The texts are public rows as they are, so
    what a release tells about private rows is which of them were chosen. With an infinite epsilon nothing is noised: a
    reference that must never be released.

    Attributes:
        settings: how texts are chosen.
        schema: what is public about the data set.
        candidates: the public texts.
        encode: the encoder of the candidates; see `ClassMeans` for what it may not do.
    """

    def __init__(self, settings: SelectSettings, schema: PublicSchema, candidates: Candidates, encode: Encode) -> None:
        self.settings = settings
        self.schema = schema
        self.candidates = candidates
        self.encode = encode

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        It is infeasible where the noise on a text's score is as large as the score could be at all, were every row of
        a class of average size the same.

        Raises:
            ParamsError: there are fewer than two labels, or no public text.
        """
        _check(schema, self.candidates)
        sigma = 0.0 if math.isinf(budget.epsilon) else _MARGIN * gdp_sigma(budget.epsilon, budget.delta)
        query = self._query(schema, sigma)
        most, kept = schema.n_public / len(schema.label_names), self.candidates.kept(self.settings.domain)
        return Plan(
            "select",
            budget,
            (PlannedQuery(query.name, query.event()),),
            {"sigma": sigma, "candidates": len(self.candidates.texts), "in_domain": kept},
            feasible=sigma < most,
            notes=() if sigma < most else (_drowned(sigma, most),),
        )

    def fit(self, view: View, plan: Plan) -> ClassSums:
        """Ask for the noisy class means."""
        answer = view.ask(self._query(self.schema, float(plan.numbers["sigma"])))
        return ClassSums(self.schema.label_names, np.array(answer, dtype=np.float64))

    def sample(self, artifact: ClassSums, counts: Mapping[str, int]) -> Iterator[Record]:
        """The texts chosen for each label, label by label in the order of `counts`. Free: see `choose`."""
        yield from choose(self.candidates, artifact, counts, self.settings.domain)

    def _query(self, schema: PublicSchema, sigma: float) -> ClassMeans:
        width = self.candidates.embeddings.shape[1]
        return ClassMeans(schema.label_names, self.encode, width, sigma, self.settings.batch)


def choose(candidates: Candidates, found: ClassSums, counts: Mapping[str, int], domain: float) -> list[Record]:
    """The candidates in domain that are most like one label and unlike the others.

    In domain are those with the largest cosine to the sum over all labels. They are ranked per label by their product
    with what its sum has beyond the domain. Labels take turns, each taking its best text that none has taken, so no
    text is used twice; ties go to the text nearer the domain, then to the earlier one. A label gets fewer texts than
    asked where those in domain run out.

    Args:
        candidates: public texts.
        found: sums of embeddings per label.
        counts: label -> texts wanted; labels of `found`.
        domain: share of the candidates that counts as in domain.

    Returns:
        Records, label by label in the order of `counts`, the best first.

    Raises:
        ValueError: a count is of a label that `found` has no sum of.
    """
    if unknown := set(counts) - set(found.labels):
        raise ValueError(f"{len(unknown)} labels have no sum")
    vectors = unit_rows(candidates.embeddings)
    centre = unit_rows(found.sums.sum(axis=0, keepdims=True))[0]  # (d,)
    kept = np.argsort(-(vectors @ centre), kind="stable")[: candidates.kept(domain)]
    scores = vectors[kept] @ _beyond(found.sums, centre).T  # (kept, labels)
    orders = [kept[np.argsort(-scores[:, found.labels.index(label)], kind="stable")] for label in counts]
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
    """The same choice from exact sums: what this rule finds in the public text without noise.

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


def _beyond(sums: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Each sum without its part along the centre, shape (labels, d).

    What remains adds up to zero over the labels, so each is, but for its scale, itself less the mean of the others.
    Along the centre the sums differ by the sizes of their labels, which say nothing about a text.
    """
    return sums - np.outer(sums @ centre, centre)


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


def _check(schema: PublicSchema, candidates: Candidates) -> None:
    """Raise ParamsError where there is nothing to choose between."""
    if len(schema.label_names) < 2:
        raise ParamsError("select needs two labels or more.", "Name them in dataset.labels, or leave select out.")
    if not len(candidates.texts):
        raise ParamsError("There is no public text to choose from.", "Name a public file with texts.")


def _drowned(sigma: float, most: float) -> str:
    return (
        f"The noise on a text's score, {sigma:.1f}, is as large as a class of {most:.0f} rows could make the score: "
        "raise epsilon, or use public_only."
    )
