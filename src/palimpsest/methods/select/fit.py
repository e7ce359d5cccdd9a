"""`select`: public texts chosen by noisy class means, one cheap look at the private rows.

It writes nothing. A method with a language model must beat it at equal epsilon to earn what it costs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.methods.shared.means import Candidates, ClassSums, choose, class_sums, plan_means
from palimpsest.methods.shared.shares import label_rows, planned_histogram, whole_rho
from palimpsest.privacy.means import Encode
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema


def plan(settings: SelectSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan the queries of a fit and their cost; see `plan_means`."""
    return plan_means("select", settings, schema, budget)


@dataclass(frozen=True, eq=False)
class Chosen:
    """The answers of `select`: noisy sums of embeddings per label, and label -> texts to choose."""

    sums: ClassSums
    counts: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Select:
    """The public texts that noisy class means point at.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, and for the class
    means, each once for adding or removing one unit, a record or a person (`LabelHistogram`, `ClassMeans`). Their
    composition meets the budget under its primary accountant; without a histogram it is one Gaussian, exactly. `made`
    is post-processing of the answers. The texts are public rows as they are, so what a release tells about private rows
    is which of them were chosen. With an infinite epsilon nothing is noised: a reference that must never be released.

    Attributes:
        candidates: the public texts.
        encode: the encoder of the candidates. See `ClassMeans` for its restrictions.
        named: embeddings of the labels' public descriptions, (labels, d); None where they say nothing.
    """

    settings: SelectSettings
    schema: PublicSchema
    plan: Plan
    candidates: Candidates
    encode: Encode
    named: np.ndarray | None = None

    def ask(self, view: View) -> Chosen:
        """Ask for the rows of each label, where they are not public, and for the noisy class means."""
        settings, schema = self.settings, self.schema
        histogram = planned_histogram(settings, schema, whole_rho(self.plan.budget))
        counts = label_rows(view, settings, schema, histogram)
        width, sigma = self.candidates.embeddings.shape[1], float(self.plan.numbers["sigma"])
        sums = class_sums(view, schema, self.encode, width, sigma, self.named)
        return Chosen(sums, counts)

    def made(self, artifact: Chosen) -> Made:
        """The texts chosen for each label, label by label; see `choose`."""
        counts = _shrink_counts(math.ceil(self.settings.most * len(self.candidates.texts)), artifact.counts)
        rows = choose(self.candidates, artifact.sums, counts, self.settings.domain)
        return Made(rows, len(rows))


def _shrink_counts(rows: int, counts: Mapping[str, int]) -> dict[str, int]:
    """The counts, made smaller in proportion where they add up to more rows."""
    asked = max(rows, sum(counts.values()))
    return {label: count * rows // asked for label, count in counts.items()}
