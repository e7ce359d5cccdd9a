"""`sentdp`: public texts that the exponential mechanism picks among those deep in the cloud of a label's rows.

A baseline (Meehan, Mrini, Chaudhuri 2022, for whole texts): it writes nothing, and it pays for every text it picks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.methods.shared.means import Candidates
from palimpsest.methods.shared.shares import label_rows, planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.privacy.depth import DepthPicks, picks_event, public_directions
from palimpsest.privacy.events import gumbel_scale
from palimpsest.privacy.means import Encode
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.methods.sentdp.declaration import SentDpSettings

_MARGIN = 1.0 - 1e-9  # allows for what rounding may add up to


def plan(settings: SentDpSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan what a fit asks and costs.

    It is infeasible where the scale of the noise exceeds the depth, in units, of a text in the middle of a class of
    average size, which is the greatest depth there is: the picks are then nearly uniform.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    if not schema.label_names:
        raise ParamsError("sentdp needs public labels.", "Name them in dataset.labels, or leave sentdp out.")
    require_prior(settings.prior, schema)
    histogram, rho = costs_of(settings, schema, budget)
    each = math.ceil(settings.rows / len(schema.label_names))
    scale, deepest = gumbel_scale(each, rho), schema.n_units / len(schema.label_names) / 2.0
    name = DepthPicks.name
    numbers: dict[str, float | int | str] = {"scale": scale, "rows": settings.rows, "directions": settings.directions}
    return Plan(
        "sentdp",
        budget,
        (*planned_query(histogram), PlannedQuery(name, picks_event(rho), versions=versions_of(name))),
        numbers if histogram is None else {**numbers, "histogram_sigma": histogram.sigma},
        feasible=scale <= deepest,
        notes=() if scale <= deepest else (_noise_note(scale, deepest),),
    )


def costs_of(settings: SentDpSettings, schema: PublicSchema, budget: Budget) -> tuple[LabelHistogram | None, float]:
    """Return the histogram, and the rho of the picks, which does not depend on how many there are of each label."""
    usable = whole_rho(budget) * _MARGIN
    histogram = planned_histogram(settings, schema, usable)
    return histogram, usable * (1.0 if histogram is None else 1.0 - settings.histogram_share)


def _noise_note(scale: float, deepest: float) -> str:
    return (
        f"The scale of the noise, {scale:.1f}, is above {deepest:.1f}, the depth of a text in the very middle of a "
        "class of average size: the picks would be nearly uniform. Ask for fewer rows, raise epsilon, or use select."
    )


@dataclass(frozen=True, eq=False)
class SentDp:
    """The public texts picked by noisy depth.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, and for the picks
    of all labels in one query (`LabelHistogram`, `DepthPicks`), each for adding or removing one unit, a record or a
    person. In zCDP their costs add up to what the budget converts to: the picks cost the rho that is planned, however
    the histogram shares them out. `made` is post-processing of the answers. The texts are public rows as they are, so
    a release tells about private rows only which texts were picked. With an infinite epsilon nothing is noised: a
    reference that must never be released.
    """

    settings: SentDpSettings
    schema: PublicSchema
    plan: Plan
    candidates: Candidates  # the public texts; of equal ones the first counts
    encode: Encode  # the encoder of the candidates. See `DepthPicks` for what it may not do.

    def ask(self, view: View) -> dict[str, list[str]]:
        """Return label -> the public texts picked, in the order they were picked."""
        settings, candidates = self.settings, _drop_equal(self.candidates)
        histogram, rho = costs_of(settings, self.schema, self.plan.budget)
        counts = label_rows(view, settings, self.schema, histogram)
        lines = public_directions(settings.directions, candidates.embeddings.shape[1])
        answer = view.ask(DepthPicks(self.encode, candidates.embeddings, lines, counts, rho))
        return {label: [candidates.texts[index] for index in own] for label, own in answer.items()}

    def made(self, artifact: Mapping[str, Sequence[str]]) -> Made:
        """Return the texts picked for each label, label by label, the earliest picks first."""
        rows = [Record(text, label) for label, own in artifact.items() for text in own]
        return Made(rows, len(rows))


def _drop_equal(candidates: Candidates) -> Candidates:
    first: dict[str, int] = {}
    for place, text in enumerate(candidates.texts):
        first.setdefault(text, place)
    return Candidates(list(first), candidates.embeddings[np.array(list(first.values()), dtype=np.intp)])
