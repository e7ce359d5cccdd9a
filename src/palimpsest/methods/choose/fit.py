"""`choose`: picks the variant whose rows teach a classifier most, by a charged query on private rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.errors import DataError
from palimpsest.methods.choose.declaration import ChooseSettings
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.privacy.choice import Choice, Classify
from palimpsest.privacy.events import gumbel_rho
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.segment import words

_ITERATIONS = 1000


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
