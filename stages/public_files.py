"""Reads the rows of public files, once it is checked that these are not the workspace's own."""

from collections.abc import Sequence
from functools import partial

from palimpsest.params.schema import Params
from palimpsest.records.faults import POLICIES
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, read_rows
from stages.vouching import named, vouched, written


def public_rows(params: Params, key: str, columns: ColumnNames) -> Sequence[RawRow]:
    """Read the rows of the file that params.yaml names at `key`, for which `vouched` holds when they are read.

    Raises:
        DataError: it does not hold, the file changed meanwhile, or it cannot be read.
    """
    data, path = params.dataset, written(named(params)[key])
    labels, bad = tuple(data.labels) or None, POLICIES[data.bad_rows]
    return read_rows(path, columns, data.max_length, labels, check=partial(vouched, params, key), bad=bad)
