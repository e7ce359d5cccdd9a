"""Ratings of rows by people: a blinded sheet of rows, and the results of filled sheets.

Table 4 of "Generate Synthetic Text Approximating the Private Distribution with Differential Privacy" marks texts that
people call decoded. A sheet asks of each text whether it reads as a person's, and does not name its writer.
"""

import csv
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.audit.statistics import Estimate, wilson
from palimpsest.errors import DataError
from palimpsest.plain import Plain

COLUMNS = ("item", "text", "readable (yes or no)")
_ANSWERS = {"yes": True, "no": False, "": None}
_FORMULA = tuple("=+-@＝＋－＠\t\r\n")  # begins a formula in some spreadsheet, or is left out before one
_SIGNS = "bcdfghjkmnpqrtvwxz"  # of an item: without a vowel no spreadsheet reads a month, a number or a word

Sheet = Mapping[str, bool | None]  # item -> a person's answer, None where there is none


@dataclass(frozen=True)
class Ratings(Plain):
    """Private zone: the answers of people."""

    raters: int  # number of sheets that were read
    # variant -> the share of yes among its answers, each text counting alike; none where none was answered
    readable: Mapping[str, Estimate]
    # Krippendorff's alpha of all answers: 1 where raters agree, 0 where they do as chance would have it; None where it
    # cannot be told: no text has two answers, or all answers are alike
    agreement: float | None


def make_blind_sheet(texts: Mapping[str, Sequence[str]], seed: int) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Make the lines of a sheet in random order, item and text, and the key: item -> variant.

    Items begin with signs that follow from the texts, so that no sheet of other texts is read with this key.
    """
    every = [(variant, text) for variant, own in texts.items() for text in own]
    random.Random(seed).shuffle(every)
    of_texts = "".join(random.Random(repr([text for _, text in every])).choices(_SIGNS, k=6))
    items = [f"{of_texts}-{number}" for number in range(1, len(every) + 1)]
    lines = [
        (item, f" {text}" if text.startswith(_FORMULA) else text) for item, (_, text) in zip(items, every, strict=True)
    ]
    return lines, {item: variant for item, (variant, _) in zip(items, every, strict=True)}


def read_sheet(path: Path, key: Mapping[str, str]) -> Sheet:
    """Read the answers of one filled sheet.

    Raises:
        DataError: it is no sheet of this key, or an answer is neither yes nor no.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(row[COLUMNS[0]].strip(), row[COLUMNS[2]].strip().lower()) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, AttributeError) as error:
        raise DataError(
            f"The sheet {str(path)!r} cannot be read ({type(error).__name__}).", "Save it as CSV, with its own columns."
        ) from error
    if len({item for item, _ in rows}) < len(rows) or not {item for item, _ in rows} <= set(key):
        raise DataError(
            f"The sheet {str(path)!r} has items that the key lacks, or one twice.", "Read sheets of the last key only."
        )
    if not {answer for _, answer in rows} <= set(_ANSWERS):
        raise DataError(
            f"The sheet {str(path)!r} has other answers than yes and no.", "Correct them, or leave them out."
        )
    return {item: _ANSWERS[answer] for item, answer in rows}


def ratings(key: Mapping[str, str], sheets: Sequence[Sheet]) -> Ratings:
    """Sum up all sheets; intervals are Wilson's, over texts: conservative for shares of raters."""
    said = {item: [told for sheet in sheets if (told := sheet.get(item)) is not None] for item in key}
    readable = {}
    for variant in dict.fromkeys(key.values()):
        shares = [sum(told) / len(told) for item, told in said.items() if told and key[item] == variant]
        if shares:
            readable[variant] = Estimate(sum(shares) / len(shares), *wilson(sum(shares), len(shares)))
    return Ratings(len(sheets), readable, agreement(list(said.values())))


def agreement(answers: Sequence[Sequence[bool]]) -> float | None:
    """Compute Krippendorff's alpha for two nominal answers (Krippendorff 2011), from the answers about each text.

    >>> agreement([[True, True], [False, False]])
    1.0
    """
    paired = [Counter(each) for each in answers if len(each) > 1]
    yes, total = sum(one[True] for one in paired), sum(one.total() for one in paired)
    expected = 2 * yes * (total - yes)
    if not expected:
        return None
    observed = sum(2 * one[True] * one[False] / (one.total() - 1) for one in paired)
    return 1.0 - (total - 1) * observed / expected
