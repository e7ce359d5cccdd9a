"""Fields beside texts: how far their tables are from those of real rows, and what a model of both learns from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from palimpsest.audit.statistics import Bootstrap, Estimate, wilson
from palimpsest.audit.utility import fit_predict, retention
from palimpsest.errors import DataError
from palimpsest.plain import Plain, PlainFile
from palimpsest.records.fields import decode_cells, domains_of, encode_cells
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.segment import words

_DRAWS = 20  # of equally many rows, behind each distance
_LEAST = 2  # texts with a word that a model reads


@dataclass(frozen=True)
class TableDistance(Plain):
    """Total variation between one table of the real test rows and that of others, in 0 to 1.

    All have equally many rows, so `real` is what sampling alone makes.
    """

    axes: tuple[str, ...]  # the label or fields of the table
    cells: int  # those with no value are among them
    synthetic: float
    real: float  # of real training rows
    apart: float  # of these with every column shuffled: each alone is right, and none goes with another
    uniform: float  # of every cell equally often


@dataclass(frozen=True)
class Learned(Plain):
    """Accuracy, on real test rows, of a model that reads the text and all columns but the one that it names."""

    target: str
    cells: int
    majority: float  # of always naming what most real training rows have
    synthetic: Estimate
    real: Estimate
    kept: Estimate | None  # `synthetic` as a share of `real`, paired by test row; None where `real` is never right


@dataclass(frozen=True)
class FieldsAudit(PlainFile):
    """Private zone: the fields of one variant; `compared` rows of each side are behind a distance."""

    rows: int
    real_rows: int
    test_rows: int
    compared: int
    tables: tuple[TableDistance, ...]
    learned: tuple[Learned, ...]


@dataclass(frozen=True)
class Columns:
    """The label, where there are labels, and the fields: their names, and the number of cells of each."""

    names: tuple[str, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, schema: PublicSchema) -> "Columns":
        """Return those of a data set; a field has a cell more, for no value."""
        label = {str(schema.label): len(schema.labels)} if schema.labels else {}
        sizes = [domain.size + 1 for domain in domains_of(schema.fields)]
        return cls((*label, *schema.fields), (*label.values(), *sizes))


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows in public cells: their texts, and the cell of each in each column, int64 (rows, columns)."""

    texts: Sequence[str]
    cells: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[SplitRow], schema: PublicSchema) -> "Placed":
        """Place rows; one without a public label is left out."""
        labels = schema.label_names
        kept = [row for row in rows if not labels or row.label in labels]
        own = [(*([labels.index(str(row.label))] if labels else []), *decode_cells(row.fields)) for row in kept]
        width = len(Columns.of(schema).names)
        return cls([row.text for row in kept], np.array(own, dtype=np.int64).reshape(len(own), width))


def to_cells(row: Record, schema: PublicSchema) -> SplitRow:
    """Return a synthetic row with its values read into cells, as private rows are kept."""
    values = [value for _, value in row.fields]
    return SplitRow(row.text, row.label, fields=encode_cells(values, domains_of(schema.fields)))


def audit_fields(synthetic: Placed, real: Placed, test: Placed, columns: Columns, bootstrap: Bootstrap) -> FieldsAudit:
    """Compare synthetic rows with real training rows, both against real test rows; nothing where none has fields.

    Raises:
        DataError: there are no real rows.
    """
    written, own, asked = len(synthetic.texts), len(real.texts), len(test.texts)
    if not (own and asked):
        raise DataError("There are no real rows to compare with.", "Enlarge the file or dataset.test_share.")
    if not written:
        return FieldsAudit(written, own, asked, 0, (), ())
    count = min(written, own)
    places = range(len(columns.names))
    axes = [*((place,) for place in places), *combinations(places, 2)]
    rng = np.random.default_rng(bootstrap.seed)
    tables = [_measure_table(synthetic, real, test, columns, own, count, rng) for own in axes]
    learned = [_measure_learned(synthetic, real, test, columns, place, bootstrap) for place in places]
    return FieldsAudit(written, own, asked, count, tuple(tables), tuple(learned))


def _measure_table(
    synthetic: Placed, real: Placed, test: Placed, columns: Columns, axes: tuple[int, ...], count: int,
    rng: np.random.Generator,
) -> TableDistance:  # fmt: skip
    shape = [columns.shape[axis] for axis in axes]
    wanted = _table(test.cells[:, axes], shape)
    drawn = [[rng.permutation(len(side.texts))[:count] for side in (synthetic, real)] for _ in range(_DRAWS)]

    def mean(tables: Sequence[np.ndarray]) -> float:
        return float(np.mean([total_variation(_table(own, shape), wanted) for own in tables]))

    return TableDistance(
        tuple(columns.names[axis] for axis in axes), int(np.prod(shape)),
        synthetic=mean([synthetic.cells[some][:, axes] for some, _ in drawn]),
        real=mean([real.cells[some][:, axes] for _, some in drawn]),
        apart=mean([rng.permuted(real.cells[some][:, axes], axis=0) for _, some in drawn]),
        uniform=total_variation(np.full(len(wanted), 1.0 / len(wanted)), wanted),
    )  # fmt: skip


def _table(cells: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the share of rows in each cell, flat."""
    flat = np.ravel_multi_index(tuple(cells.T), tuple(shape))
    return np.bincount(flat, minlength=int(np.prod(shape))) / len(cells)


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Half of the summed distance of two distributions over the same cells.

    >>> total_variation(np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25]))
    0.25
    """
    return float(np.abs(one - other).sum() / 2.0)


def _measure_learned(
    synthetic: Placed, real: Placed, test: Placed, columns: Columns, place: int, bootstrap: Bootstrap
) -> Learned:
    most = np.bincount(real.cells[:, place], minlength=columns.shape[place]).argmax()
    ours, theirs = (_is_right(side, test, columns.shape, place, bootstrap.seed) for side in (synthetic, real))
    return Learned(
        columns.names[place], columns.shape[place], float((test.cells[:, place] == most).mean()),
        _estimate(ours), _estimate(theirs), retention(ours, theirs, bootstrap),
    )  # fmt: skip


def _estimate(right: np.ndarray) -> Estimate:
    return Estimate(float(right.mean()), *wilson(float(right.sum()), len(right)))


def _is_right(train: Placed, test: Placed, shape: Sequence[int], place: int, seed: int) -> np.ndarray:
    """Return whether logistic regression on text and columns names the cell of each test row, float (rows,)."""
    vectorizer = TfidfVectorizer(
        min_df=min(_LEAST, len(train.texts)), sublinear_tf=True, tokenizer=words, token_pattern=None, lowercase=False
    )
    features = _beside(vectorizer.fit_transform(train.texts), train.cells, shape, place)
    asked = _beside(vectorizer.transform(test.texts), test.cells, shape, place)
    told = fit_predict(features, train.cells[:, place], asked, shape[place], seed)
    return np.asarray(told.argmax(axis=1) == test.cells[:, place], dtype=np.float64)


def _beside(texts: csr_matrix, cells: np.ndarray, shape: Sequence[int], left_out: int) -> csr_matrix:
    """Return the features of texts beside those of all columns but one, a feature for each cell."""
    rows, ones = np.arange(len(cells)), np.ones(len(cells))
    others = [
        csr_matrix((ones, (rows, cells[:, axis])), (len(cells), size))
        for axis, size in enumerate(shape)
        if axis != left_out
    ]
    return csr_matrix(hstack([texts, *others]))
