"""Tables of the label and of fields: the question, the joint distribution that fits the answer, and rows drawn of it.

All but the question is post-processing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from palimpsest.errors import ParamsError
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.tables import MOST_CELLS, Axes, FieldTables, shape_of
from palimpsest.records.fields import Declared, domains_of, list_read
from palimpsest.records.record import Fields
from palimpsest.records.schema import PublicSchema

_STEPS = 400  # of mirror descent
_FASTER, _SLOWER = 1.5, 0.5
_SEEN = 3.0  # standard deviations above which a count is told from noise


def sizes_of(schema: PublicSchema) -> tuple[int, ...]:
    """Return the number of cells of each field, with the one for values that have none."""
    return tuple(domain.size + 1 for domain in domains_of(schema.fields))


def tables_query(schema: PublicSchema, sigma: float) -> FieldTables:
    """Return the question for the tables: every axis alone, and every two together."""
    sizes = sizes_of(schema)
    axes = range(len(shape_of(schema.label_names, sizes)))
    tables: tuple[Axes, ...] = (*((axis,) for axis in axes), *combinations(axes, 2))
    return FieldTables(schema.label_names, sizes, tables, sigma)


def planned_tables(query: FieldTables) -> PlannedQuery:
    """Return the planned query of the tables."""
    return PlannedQuery(query.name, query.event(), versions=versions_of(query.name))


def require_fitted(schema: PublicSchema) -> None:
    """Raise ParamsError where there are more combinations of values than a distribution is fitted for."""
    cells = math.prod(shape_of(schema.label_names, sizes_of(schema)))
    if cells > MOST_CELLS:
        raise ParamsError(
            f"The label and the fields have {cells} combinations; at most {MOST_CELLS} are fitted.",
            "Name fewer fields, or wider cells: number(0..120, 10), date(..., year).",
        )


def note_cells(query: FieldTables, schema: PublicSchema) -> Iterator[str]:
    """Yield from which size a cell is seen, and the fields whose cells are too fine for that."""
    if query.std:
        yield (
            f"{len(query.tables)} tables of the label and {len(schema.fields)} fields: the noise on a count is "
            f"{query.std:.0f} {schema.unit}s, so a cell is seen from about {math.ceil(_SEEN * query.std)}"
        )
    for name in list_read(schema.fields):
        yield f"field {name} is no column: the encoder reads it from each text, by itself"
    for (name, _), size in zip(schema.fields.items(), query.sizes, strict=True):
        if _SEEN * query.std > schema.n_units / size:
            yield f"field {name} has {size} cells, fewer {schema.unit}s each than are seen: wider cells say more"


def fit_joint(shape: Sequence[int], tables: Sequence[Axes], counts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distribution of largest entropy whose tables are nearest to noisy ones: shape `shape`, sum 1.

    Mirror descent on the squared distance of all tables, from the even distribution (McKenna, Miklau and Sheldon 2021,
    "Winning the NIST contest", Algorithm 1), over all cells at once.

    Args:
        tables: the axes of each table, ascending.
        counts: the noisy counts of each, flat, the last axis running fastest.
    """
    wanted = [own.reshape([shape[axis] for axis in axes]) for axes, own in zip(tables, counts, strict=True)]
    total = max(1.0, float(np.median([own.sum() for own in wanted])))
    wanted = [own / total for own in wanted]
    logits, rate = np.zeros(shape), 1.0
    joint = _softmax(logits)
    loss, gradient = _distance(joint, tables, wanted)
    for _ in range(_STEPS):
        trial = logits - rate * gradient
        tried = _softmax(trial)
        found, ahead = _distance(tried, tables, wanted)
        if found <= loss:
            logits, joint, loss, gradient, rate = trial, tried, found, ahead, rate * _FASTER
        else:
            rate *= _SLOWER
    return joint


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max())
    return np.asarray(raised / raised.sum())


def _distance(joint: np.ndarray, tables: Sequence[Axes], wanted: Sequence[np.ndarray]) -> tuple[float, np.ndarray]:
    """Return half of the squared distance of all tables, and its gradient by the joint, of the joint's shape."""
    loss, gradient = 0.0, np.zeros(joint.shape)
    for axes, own in zip(tables, wanted, strict=True):
        error = table_of(joint, axes) - own
        loss += 0.5 * float(np.square(error).sum())
        gradient += np.expand_dims(error, _others(joint.ndim, axes))
    return loss, gradient


def table_of(joint: np.ndarray, axes: Axes) -> np.ndarray:
    """Return the table of some axes of a joint distribution, ascending."""
    return np.asarray(joint.sum(axis=_others(joint.ndim, axes)))


def _others(count: int, axes: Axes) -> tuple[int, ...]:
    return tuple(axis for axis in range(count) if axis not in axes)


def draw_cells(joint: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of a distribution, in any order: the index of each on every axis, int64 (rows, axes).

    They are drawn at even steps of the cumulative distribution (systematic sampling), so each combination comes as
    often as is expected of it, but for less than one row.
    """
    ends = np.cumsum(joint.reshape(-1))
    chosen = np.searchsorted(ends, (np.arange(rows) + rng.random()) / rows * ends[-1], side="right")
    cells = np.stack(np.unravel_index(np.minimum(chosen, len(ends) - 1), joint.shape), axis=1)
    return rng.permutation(cells)


def draw_values(fields: Mapping[str, Declared], cells: Iterable[int], rng: np.random.Generator) -> Fields:
    """Draw a value of each cell, as a record holds them; None for a cell of values that have none."""
    domains = zip(fields, domains_of(fields), cells, strict=True)
    return tuple((name, None if at == domain.size else domain.draw(int(at), rng)) for name, domain, at in domains)
