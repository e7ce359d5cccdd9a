"""Approximate Tukey depth: how deep public texts lie in the cloud of a label's records, and noisy picks of the deepest.

A point's depth (Tukey 1975) is the least number of records on one side of a plane through it. Approximate depth looks
at a few public directions instead of all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent, ZCDpEvent

from palimpsest import validate
from palimpsest.privacy.events import gumbel_scale
from palimpsest.privacy.means import Encode, embed_texts, encode_ahead
from palimpsest.privacy.queries import gumbel_top_k
from palimpsest.privacy.query import Stored, bounds_persons, mark_of, register_query
from palimpsest.privacy.rows import PrivateRow, select_one_each

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

_SEED = 4242  # of the public directions: part of the method, no secret
_AT_ONCE = 32  # directions that all records are projected on at once


def picks_event(rho: float) -> DpEvent:
    """Return the event of picks that cost `rho`; with an infinite rho they are not private."""
    return ZCDpEvent(rho) if math.isfinite(rho) else NonPrivateDpEvent()


@bounds_persons
@register_query
@dataclass(frozen=True, eq=False)
class DepthPicks(Stored):
    """Public candidates picked for each label among those that lie deepest in the cloud of its records.

    For each label, `picks` of the candidates are drawn one after another without replacement, each with a probability
    in proportion to exp(depth / scale) among those that are left, where the depth is that of `depths` among the
    label's records. A candidate may be picked for several labels.

    Guarantee: rho-zCDP for adding or removing one unit, a record or a person with all their rows. Of a person with
    several rows one counts, chosen by a keyed hash of that person's rows alone, over all their labels (`one_each`). A
    record raises the depth of every candidate of its own label by 0 or 1 (`depths`), and those of other labels not at
    all. The k picks of one label are k exponential mechanisms on monotone scores of sensitivity 1, taken in one draw
    (`gumbel_top_k`): k / (8 scale^2)-zCDP. Each label's scale is sqrt(k / (8 rho)) for its own k, so each label costs
    rho whatever its k is, and since a unit counts in one label, all labels together cost rho (parallel composition: of
    two neighbouring data sets, the records that count in all labels but one are the same). `picks` may come from noisy
    counts: they are then fixed before the records are compared (adaptive composition). What a record adds to a depth
    does not depend on the other records, bit for bit, as far as `encode` gives a text its vector whatever comes with
    it. Running time and memory are not covered. With an infinite `rho` the deepest are picked without noise, which is
    not private: for reference runs.

    Attributes:
        encode: a public encoder, n texts -> (n, d).
        candidates: vectors of the public candidates, shape (m, d), by the same encoder; one that is zero or not finite
            is never picked.
        directions: public directions, shape (u, d).
        picks: label -> candidates wanted, k; fewer are picked where there are fewer. Records of other labels count
            nowhere.
    """

    encode: Encode
    candidates: np.ndarray
    directions: np.ndarray
    picks: Mapping[str, int]
    rho: float
    name: str = "depth_picks"

    def __post_init__(self) -> None:
        """Refuse an invalid cost and negative counts."""
        if self.rho != math.inf:
            validate.require_positive(rho=self.rho)
        if min(self.picks.values(), default=0) < 0:
            raise ValueError("picks must not be negative")

    @property
    def subject(self) -> object:
        """The picks wanted, the candidates whose indices are released, and the space that they lie in."""
        return self.picks, self.candidates, mark_of(self.encode)

    def event(self) -> DpEvent:
        return picks_event(self.rho)

    def prepare(self, rows: Sequence[PrivateRow]) -> None:
        """Encode the rows that count, for an encoder that keeps what it encoded."""
        encode_ahead(self.encode, [row.text for row in select_one_each(rows) if (row.label or "") in self.picks])

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> dict[str, list[int]]:
        """Return label -> indices of the candidates picked, in the order they were picked.

        The noise comes from OpenDP's own source.

        Raises:
            ModelError: the encoder fails, or does not return one vector per text of the candidates' length.
        """
        from palimpsest.privacy.nearest import round_to_grid

        usable = np.flatnonzero(round_to_grid(self.candidates).any(axis=1))
        texts: dict[str, list[str]] = {label: [] for label in self.picks}
        for row in select_one_each(rows):
            texts.get(row.label or "", []).append(row.text)
        return {label: self._pick_candidates(own, usable, self.picks[label]) for label, own in texts.items()}

    def _pick_candidates(self, texts: Sequence[str], usable: np.ndarray, wanted: int) -> list[int]:
        most = min(wanted, len(usable))
        if most == 0:
            return []
        dimensions = self.candidates.shape[1]
        vectors = embed_texts(self.encode, texts, dimensions) if texts else np.empty((0, dimensions))
        deep = depths(vectors, self.candidates[usable], self.directions)
        scale = gumbel_scale(most, self.rho)
        best = gumbel_top_k(deep.tolist(), most, scale) if scale > 0 else np.argsort(-deep, kind="stable")[:most]
        return [int(usable[place]) for place in best]


def depths(rows: np.ndarray, candidates: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the approximate Tukey depth of candidates among rows: int64 (m,), in rows.

    The depth of c is the least, over directions u, of min(number of rows x with u.x >= u.c, number of those with
    u.x <= u.c); the two sides share the rows on the plane. All three kinds of vectors are brought to the grid of
    `privacy.nearest` first, on which inner products are whole multiples of 2^-24 and no partial sum is above 1. A
    float64 holds each of them, so in whatever order they are added nothing is rounded, and each comparison of u.x with
    u.c is a fact about only x, c and u.

    Guarantee: adding one row raises every depth by 0 or 1, and removing it undoes that: monotone, L-infinity
    sensitivity 1. Take a candidate and a direction. The new row makes at least one of u.x >= u.c and u.x <= u.c true,
    both in a tie, and it changes no comparison of another row: each of the two counts grows by 0 or 1. If every number
    of a family of whole numbers grows by 0 or 1, so does the least: it cannot fall, because none falls, and the
    one that was the least is at most 1 above it now. This holds for min of the two counts, and again for the least over
    directions. A row that is zero or not finite is left out and changes nothing.

    Args:
        rows: shape (n, d), of any length: directions count.
        candidates: shape (m, d), likewise.
        directions: shape (u, d), likewise; without any, every depth is n.
    """
    from palimpsest.privacy.nearest import round_to_grid

    own, points, lines = (round_to_grid(part).astype(np.float64) for part in (rows, candidates, directions))
    own = own[own.any(axis=1)]
    least = np.full(len(points), len(own), dtype=np.int64)
    for start in range(0, len(lines), _AT_ONCE):
        part = lines[start : start + _AT_ONCE]
        for along, at in zip(np.sort(part @ own.T, axis=1), part @ points.T, strict=True):  # (n,), (m,)
            np.minimum(least, np.searchsorted(along, at, side="right"), out=least)
            np.minimum(least, len(own) - np.searchsorted(along, at, side="left"), out=least)
    return least


def public_directions(count: int, dimensions: int) -> np.ndarray:
    """Return directions drawn uniformly, the same ones each time: shape (count, dimensions), of any length."""
    return np.random.default_rng(_SEED).normal(size=(count, dimensions))
