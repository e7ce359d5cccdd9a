"""Reads fields from texts: which of a public list of words is most like a text, by the public encoder.

Published methods write such a table first and texts under it (ACTG-ARL, MAPLE); there a large language model answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from palimpsest.records.fields import Declared, decode_cells, list_read
from palimpsest.records.private import RawRow

_AT_ONCE = 4096  # texts whose vectors are held


def read_fields(
    rows: Sequence[RawRow], fields: Mapping[str, Declared], encode: Callable[[Sequence[str]], np.ndarray]
) -> Iterator[RawRow]:
    """Yield rows in whose cells the fields to be read are answered.

    The answer is the value whose words have the largest cosine with the text; of equal ones the first.

    Guarantee: what is answered about a row is a function of its text and of public words (1-stable), as long as
    `encode` reads each text by itself, which `models.vectors.KeptVectors` with batch 1 does.

    Args:
        rows: private rows; their cells of these fields are overwritten.
        fields: name -> declaration of all fields, in the order of the cells.
        encode: texts -> unit vectors, (n, d).
    """
    read = list_read(fields)
    heads = {list(fields).index(name): encode(domain.values) for name, domain in read.items()}
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        vectors = encode([row.text for row in some])
        for row, vector in zip(some, vectors, strict=True):
            answers = {at: int(np.argmax(head @ vector)) for at, head in heads.items()}
            cells = enumerate(decode_cells(row.fields))
            yield replace(row, fields=",".join(str(answers.get(at, cell)) for at, cell in cells))
