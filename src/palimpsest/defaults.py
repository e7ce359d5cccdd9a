"""Defaults that follow from public facts of the data set, for keys of several sections."""

import json
from typing import Any, Literal

from palimpsest.settings import Follows, Stated

RECORD = 200  # tokens that hold a whole record of JSON
_SHORT, LONGEST = 64, 400  # tokens of a text that are kept by default, and at most
_LARGEST_BATCH, _SMALLEST_BATCH = 10, 4  # powers of two
_REFUSED: tuple[Literal["personal_data"]] = ("personal_data",)  # by a release
_NO_TEXTS = ("json", "span")  # tasks whose records are no texts


def text_tokens(stated: Stated) -> int:
    """Return the longest text in tokens: as long as usual, or as the data set says."""
    return RECORD if stated.task == "json" else min(max(_SHORT, stated.text_tokens or 0), LONGEST)


def near_a_twelfth(stated: Stated) -> int:
    """Return the default batch: a power of two near a twelfth of the units, because large batches suit DP."""
    power = (stated.units // 12).bit_length() - 1
    return int(min(stated.units, 2 ** min(_LARGEST_BATCH, max(_SMALLEST_BATCH, power))))


def by_labels(there: Any, other: Any) -> Follows:
    """Return one default for data with labels and another for data without."""
    words = f"{shown(there)} where there are labels, else {shown(other)}"
    return Follows(words, lambda stated, _: there if stated.labelled else other)


def by_json(own: Any, other: Any) -> Follows:
    """Return one default for records of JSON and another for texts."""
    words = f"{shown(other)}; task json: {shown(own)}"
    return Follows(words, lambda stated, _: own if stated.task == "json" else other)


def by_model(embedded: Any, named: Any, words: str) -> Follows:
    """Return one default for the embedded language model and another for a named one."""
    return Follows(words, lambda stated, _: embedded if stated.embedded else named)


def shown(value: Any) -> str:
    """Return a default as the reference page shows it."""
    return f"`{json.dumps(value)}`"


TEXT = Follows(
    f"{shown(_SHORT)}, or `dataset.text_tokens` up to 400; task json: {shown(RECORD)}",
    lambda stated, _: text_tokens(stated),
)
TRAINED_RATE = by_model(0.002, None, "`0.002` where `models.lm` is embedded, else `null`")
CHAIN: tuple[Literal["length", "personal_data", "duplicates"], ...] = ("length", "personal_data", "duplicates")
TEXT_CHAIN = Follows(
    f"{shown(CHAIN)}; task {' or '.join(_NO_TEXTS)}: {shown(_REFUSED)}",
    lambda stated, _: _REFUSED if stated.task in _NO_TEXTS else CHAIN,
)
WITH_LABELS = Follows(
    "the section's own defaults where there are labels, else `null`",
    lambda stated, _: {} if stated.labelled else None,
)
