"""`sentdp`: public texts that the exponential mechanism picks among those deep in the cloud of a label's rows.

A baseline (Meehan, Mrini, Chaudhuri 2022, for whole texts): it writes nothing, and it pays for every text it picks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.errors import DataError
from palimpsest.methods.baselines.sentdp.plan import costs_of
from palimpsest.methods.baselines.sentdp.settings import SentDpSettings
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.means import Candidates
from palimpsest.methods.shared.shares import divided, label_shares
from palimpsest.privacy.depth import DepthPicks, public_directions
from palimpsest.privacy.means import Encode
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema


@dataclass(frozen=True)
class Picked:
    """What the answers of `sentdp` are.

    Attributes:
        texts: label -> the public texts picked, in the order they were picked.
    """

    texts: Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class SentDp:
    """The public texts that noisy depth points at.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, and for the picks
    of all labels in one query (`LabelHistogram`, `DepthPicks`), each for adding or removing one unit, a record or a
    person. In zCDP their costs add up to what the budget converts to: the picks cost the rho that is planned, however
    the histogram shares them out. `made` is post-processing of the answers. The texts are public rows as they are, so
    what a release tells about private rows is which of them were picked. With an infinite epsilon nothing is noised: a
    reference that must never be released.

    Attributes:
        candidates: the public texts; of equal ones the first counts.
        encode: the encoder of the candidates. See `DepthPicks` for what it may not do.

    Raises:
        DataError: there is no public text to pick from.
    """

    settings: SentDpSettings
    schema: PublicSchema
    plan: Plan
    candidates: Candidates
    encode: Encode

    def __post_init__(self) -> None:
        if not self.candidates.texts:
            raise DataError("There is no public text to pick from.", "Name a public file with texts.")

    def ask(self, view: View) -> Picked:
        """Ask for the rows of each label, where they are not public, and for the picks."""
        settings, candidates = self.settings, _distinct(self.candidates)
        histogram, rho = costs_of(settings, self.schema, self.plan.budget)
        counts = divided(settings.rows, label_shares(view, settings, self.schema, histogram, ""))
        lines = public_directions(settings.directions, candidates.embeddings.shape[1])
        answer = view.ask(DepthPicks(self.encode, candidates.embeddings, lines, counts, rho))
        return Picked({label: tuple(candidates.texts[index] for index in own) for label, own in answer.items()})

    def made(self, artifact: Picked) -> Made:
        """The texts picked for each label, label by label, those picked first first."""
        rows = [Record(text, label) for label, own in artifact.texts.items() for text in own]
        return Made(rows, len(rows))


def _distinct(candidates: Candidates) -> Candidates:
    """Equal texts count as one, the first of them."""
    first: dict[str, int] = {}
    for place, text in enumerate(candidates.texts):
        first.setdefault(text, place)
    return Candidates(list(first), candidates.embeddings[np.array(list(first.values()), dtype=np.intp)])
