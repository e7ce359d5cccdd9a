"""`sentdp`: public texts that the exponential mechanism picks among those deep in the cloud of a label's rows.

A baseline (Meehan, Mrini, Chaudhuri 2022, for whole texts): it writes nothing, and it pays for every text it picks.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.errors import DataError, ModelError, ParamsError
from palimpsest.methods.baselines.sentdp.settings import SentDpSettings
from palimpsest.methods.select.fit import Candidates
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import divided, label_shares, planned_histogram, whole_rho
from palimpsest.privacy.depth import DepthPicks, public_directions, scale_of
from palimpsest.privacy.means import Encode
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 - 1e-9  # what rounding may add up to


@dataclass(frozen=True)
class Picked:
    """What a fit of `sentdp` leaves.

    Attributes:
        texts: label -> the public texts picked, in the order they were picked.
    """

    texts: Mapping[str, Sequence[str]]

    @property
    def counts(self) -> dict[str, int]:
        """Texts of each label."""
        return {label: len(own) for label, own in self.texts.items()}


class SentDp:
    """The public texts that noisy depth points at.

    Guarantee: `fit` asks for a noisy label histogram where the shares of the labels are not public, and for the picks
    of all labels in one query (`LabelHistogram`, `DepthPicks`), each for adding or removing one unit, a record or a
    person. In zCDP their costs add up to what the budget converts to: the picks cost the rho that is planned, however
    the histogram shares them out. Sampling is post-processing of the answers. The texts are public rows as they are, so
    what a release tells about private rows is which of them were picked. With an infinite epsilon nothing is noised: a
    reference that must never be released.

    Attributes:
        settings: how texts are picked.
        schema: what is public about the data set.
        candidates: the public texts, each once, in their order; a plan needs none.
        encode: the encoder of the candidates; a plan needs none. See `DepthPicks` for what it may not do.
    """

    def __init__(
        self,
        settings: SentDpSettings,
        schema: PublicSchema,
        candidates: Candidates | None = None,
        encode: Encode | None = None,
    ) -> None:
        self.settings, self.schema, self.encode = settings, schema, encode
        self.candidates = None if candidates is None else _distinct(candidates)

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        It is infeasible where the scale of the noise exceeds the depth that a text in the middle of a class of average
        size has, in units, which is the greatest there is: the picks are then nearly uniform.

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        _require_fit(self.settings, schema)
        histogram = self._histogram(schema, budget)
        picks = self._picks(budget, histogram, {})
        asked = [PlannedQuery(query.name, query.event()) for query in (histogram, picks) if query is not None]
        each = math.ceil(self.settings.rows / len(schema.label_names))
        scale, deepest = scale_of(each, picks.rho), schema.n_units / len(schema.label_names) / 2.0
        numbers: dict[str, float | int | str] = {
            "scale": scale,
            "rows": self.settings.rows,
            "directions": self.settings.directions,
        }
        return Plan(
            "sentdp",
            budget,
            tuple(asked),
            numbers if histogram is None else {**numbers, "histogram_sigma": histogram.sigma},
            feasible=scale <= deepest,
            notes=() if scale <= deepest else (_drowned(scale, deepest),),
        )

    def fit(self, view: View, plan: Plan) -> Picked:
        """Ask for the rows of each label, where they are not public, and for the picks.

        Raises:
            DataError: there is no public text to pick from; nothing is asked then.
        """
        if self.encode is None or self.candidates is None or not self.candidates.texts:
            raise DataError("There is no public text to pick from.", "Name a public file with texts.")
        histogram = self._histogram(self.schema, plan.budget)
        shares = label_shares(view, self.settings, self.schema, histogram, "")
        answer = view.ask(self._picks(plan.budget, histogram, divided(self.settings.rows, shares)))
        texts = self.candidates.texts
        return Picked({label: tuple(texts[index] for index in own) for label, own in answer.items()})

    def sample(self, artifact: Picked, counts: Mapping[str, int]) -> Iterator[Record]:
        """The texts picked for each label, those picked first first, at most as many as `counts` says. Free."""
        for label, count in counts.items():
            yield from (Record(text, label) for text in artifact.texts[label][:count])

    def _histogram(self, schema: PublicSchema, budget: Budget) -> LabelHistogram | None:
        return planned_histogram(self.settings, schema, _usable_rho(budget))

    def _picks(self, budget: Budget, histogram: LabelHistogram | None, counts: Mapping[str, int]) -> DepthPicks:
        """The query for so many texts of each label; what it costs does not depend on how many."""
        left = 1.0 if histogram is None else 1.0 - self.settings.histogram_share
        vectors = np.empty((0, 1)) if self.candidates is None else self.candidates.embeddings
        lines = public_directions(self.settings.directions, vectors.shape[1])
        return DepthPicks(self.encode or _no_encoder, vectors, lines, counts, left * _usable_rho(budget))


def digest(candidates: Candidates) -> str:
    """Of texts and embeddings: a stored answer names texts by their places, so it belongs to these alone."""
    found = hashlib.sha256(repr((list(candidates.texts), candidates.embeddings.shape)).encode())
    found.update(np.ascontiguousarray(candidates.embeddings, dtype=np.float64).tobytes())
    return found.hexdigest()


def _distinct(candidates: Candidates) -> Candidates:
    """Equal texts count as one, the first of them."""
    first: dict[str, int] = {}
    for place, text in enumerate(candidates.texts):
        first.setdefault(text, place)
    return Candidates(list(first), candidates.embeddings[np.array(list(first.values()), dtype=np.intp)])


def _usable_rho(budget: Budget) -> float:
    return whole_rho(budget) * _MARGIN


def _require_fit(settings: SentDpSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if not schema.label_names:
        raise ParamsError("sentdp needs public labels.", "Name them in dataset.labels, or leave sentdp out.")
    if settings.prior is not None and set(settings.prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")


def _no_encoder(texts: Sequence[str]) -> np.ndarray:
    """Stands in where only a plan is made."""
    raise ModelError("There is no sentence encoder.", "Hand one to the generator.")


def _drowned(scale: float, deepest: float) -> str:
    return (
        f"The scale of the noise, {scale:.1f}, is above {deepest:.1f}, the depth of a text in the very middle of a "
        "class of average size: the picks would be nearly uniform. Ask for fewer rows, raise epsilon, or use select."
    )
