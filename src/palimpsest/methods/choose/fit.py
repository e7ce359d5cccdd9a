"""`choose`: picks the variant whose rows teach a classifier most, by a charged query on private rows.

`plan` gives the query and its cost; it reads no row.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.choose.declaration import ChooseSettings
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.privacy.accounting import calibrate_noise, is_private, planned_epsilon
from palimpsest.privacy.choice import Choice, Classify, choice_event
from palimpsest.privacy.events import gumbel_rho
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.query import View
from palimpsest.privacy.shown import up
from palimpsest.records.record import Record
from palimpsest.records.segment import words

_WIDE = 1e6  # a scale at which a choice costs next to nothing: its event decides which accountant counts
_ITERATIONS = 1000


def plan(budget: Budget, before: DpEvent) -> Plan:
    """Plan a choice and its cost; the budget covers it together with everything that any of the variants was charged.

    Raises:
        ParamsError: nothing is left of the budget after what the variants were charged.
    """
    scale = _scale(budget, before)
    event = choice_event(gumbel_rho(1, scale))
    query = PlannedQuery(Choice.name, event, versions=versions_of(Choice.name))
    return Plan("choose", budget, (query,), {"scale": scale, "rounds": 1})


def _scale(budget: Budget, before: DpEvent) -> float:
    if math.isinf(budget.epsilon):
        return 0.0
    if not is_private(before):
        raise ParamsError(
            "A variant that could be chosen is not private.",
            "Take it out of `from`, or give this one epsilon .inf and purpose reference.",
        )

    def whole(scale: float) -> DpEvent:
        return ComposedDpEvent([before, choice_event(gumbel_rho(1, scale))])

    try:
        return calibrate_noise(whole, budget.epsilon, budget.delta)
    except ValueError:
        spent = planned_epsilon(whole(_WIDE), budget.delta)
        raise ParamsError(
            f"The variants to choose from cost epsilon {up(spent)} together; nothing is left of {budget.epsilon:g}.",
            "Raise it, or name fewer.",
        ) from None


@dataclass(frozen=True, eq=False)
class Choose:
    """Picks one variant by a charged query and releases its rows unchanged.

    Guarantee: `ask` asks one query, `Choice`. Together with everything that all the variants were charged, those that
    were not chosen too, it meets the budget, under the primary accountant of their composition, for adding or removing
    one unit. The classifiers are trained on rows that were charged before (post-processing). They are compared on all
    private rows, including those that the variants were made from: composition covers that. The output is the name of a
    variant and no score. With an infinite epsilon nothing is noised: a reference that must never be released.

    Attributes:
        rows: those of each variant, by its name.

    Raises:
        DataError: there is a variant without rows.
    """

    settings: ChooseSettings
    plan: Plan
    rows: Mapping[str, Sequence[Record]]

    def __post_init__(self) -> None:
        if empty := [name for name, own in self.rows.items() if not own]:
            raise DataError(
                f"There is no row of {' and '.join(empty)} to learn from.", "Look at its filters, or take it out."
            )

    def ask(self, view: View) -> str:
        """Ask once which variant's classifier is right most often, and return the variant's name."""
        classifiers = tuple(classifier(own, self.settings.ngrams) for own in self.rows.values())
        among = tuple(tuple(f"{row.label}\0{row.text}" for row in own) for own in self.rows.values())
        rho = gumbel_rho(1, float(self.plan.numbers["scale"]))
        return list(self.rows)[view.ask(Choice(classifiers, rho, among))]

    def made(self, artifact: str) -> Made:
        """The rows of the variant that was chosen, and its name."""
        rows = self.rows[artifact]
        return Made(rows, len(rows), told={"chosen": artifact})


def classifier(rows: Sequence[Record], ngrams: int) -> Classify:
    """Logistic regression on TF-IDF of words, learned from rows: n texts -> n labels.

    A text's label depends on that text only: its features are a sparse row, multiplied entry by entry. Where there is
    one label, or no word, every text gets the most frequent label.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts, labels = [row.text for row in rows], [row.label or "" for row in rows]
    features = TfidfVectorizer(
        ngram_range=(1, ngrams), sublinear_tf=True, tokenizer=words, token_pattern=None, lowercase=False
    )
    wordless = not any(map(words, texts))
    if wordless or len(set(labels)) == 1:
        (usual, _), *_ = Counter(labels).most_common(1)
        return lambda asked: [usual] * len(asked)
    model = make_pipeline(features, LogisticRegression(max_iter=_ITERATIONS)).fit(texts, labels)
    return lambda asked: list(model.predict(asked)) if asked else []
