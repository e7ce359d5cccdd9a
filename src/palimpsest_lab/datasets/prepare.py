"""Turns the files of a folder into private and test records, and finds which of them recur in a public text.

These counts follow from private rows: they belong beside them, and in no log.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.records.formats import MissingColumn, Wanted, cells
from palimpsest.records.keyed import normalise
from palimpsest_lab.datasets.declaration import PARTS, DataSet, Form, Item, Part

CUT = 0.2  # the share cut for a test where the publishers label only one part
SENTENCE = 40  # letters and digits of a sentence that does not recur by chance
_FEWEST = 20  # characters of a sentence that stands for a text
_BEHIND = re.compile(r"(?<=[.!?])\s+|\n")
_ENDS = re.compile(r"[.!?]+(?:\s|$)|\n")
_SIGNS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Found:
    """The form of a data set that a folder has."""

    dataset: DataSet
    form: Form
    paths: Mapping[Part, tuple[Path, ...]]  # the files of each part that is there


@dataclass(frozen=True)
class Cut:
    """How the records are split."""

    share: float | None  # of the test part, drawn anew from all parts; None keeps the publishers' parts
    seed: int = 0  # public; another one draws another test part


def find(dataset: DataSet, folder: Path) -> Found:
    """Find the first form whose files are in the folder, or in the folder that its archive unpacks into.

    Raises:
        DataError: no form has all of its files there.
    """
    for form in dataset.forms:
        for home in dict.fromkeys((folder / form.folder, folder)):
            paths = {part: found for part, names in form.files.items() if (found := _paths(home, names))}
            if all(part in paths for part in form.needed if part in form.files):
                return Found(dataset, form, paths)
    looked = "; ".join(f"{form.says}: {', '.join(form.names)}" for form in dataset.forms)
    raise DataError(
        f"{str(folder)!r} does not have the files of {dataset.name}, in any form that is read.",
        f"Get them from {dataset.where}; nothing is fetched for you. Unpack them, and name their folder. "
        f"Any of these is read, each file also with .gz: {looked}.",
    )


def _paths(home: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Return all files of a part; none where one of them is missing."""
    found = [_matching(home, name) or _matching(home, f"{name}.gz") for name in names]
    return tuple(path for paths in found for path in paths) if all(found) else ()


def _matching(home: Path, name: str) -> list[Path]:
    return sorted(path for path in home.glob(name) if path.is_file())


def cut_of(found: Found, share: float | None, seed: int) -> Cut:
    """Return the publishers' parts unless a share is given, or there is no test part."""
    return Cut(CUT if share is None and "test" not in found.paths else share, seed)


def expected_rows(found: Found, cut: Cut) -> int:
    """Return about how many private records there are, by the publishers' numbers of the parts."""
    form = found.form
    return form.rows if cut.share is None else round((form.rows + form.others) * (1 - cut.share))


def private_items(found: Found, cut: Cut) -> Iterator[Item]:
    """Yield the records that a workspace protects."""
    if cut.share is None:
        return items(found, "train")
    return (item for item in _all_items(found) if not _is_test(item, cut))


def evaluated_items(found: Found, cut: Cut) -> Iterator[Item]:
    """Yield the records that only evaluations read."""
    if cut.share is None:
        return items(found, "test")
    return (item for item in _all_items(found) if _is_test(item, cut))


def _all_items(found: Found) -> Iterator[Item]:
    return (item for part in PARTS if part in found.paths for item in items(found, part))


def _is_test(item: Item, cut: Cut) -> bool:
    """Tell whether a record is of the test part: drawn from a hash of the person, else of the text, and the seed.

    Equal texts go to the same part, so that no test text was learned from. One more record moves no other.
    """
    unit = item.person or normalise(read_text(item.text))
    drawn = hashlib.sha256(f"{cut.seed} {unit}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(drawn[:8], "big") < (cut.share or 0.0) * 2**64


def items(found: Found, part: Part) -> Iterator[Item]:
    """Yield the records of one part, in the files' order.

    Raises:
        DataError: a record that cannot be used; the error says its place, and holds no value.
    """
    allowed = [attribute.values for attribute in found.dataset.attributes]
    for number, item in enumerate(found.form.read(found.paths[part], part), 1):
        if problem := _problem(item, allowed):
            raise DataError(
                f"{found.dataset.name}, {part} part, record {number}: {problem}.",
                "Give the files as they are published, unchanged; another data set may have files of the same names.",
            )
        yield item


def _problem(item: Item, allowed: list[Mapping[str, str]]) -> str:
    if any(values and label not in values for label, values in zip(item.labels, allowed, strict=True)):
        return "its label is none that the data set has"
    try:
        "".join((item.text, *item.labels, item.person or "")).encode()
    except UnicodeEncodeError:
        return "it is not valid UTF-8"
    return ""


def public_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a public file, from its column `text`, or of a folder's .txt files, a text each.

    Raises:
        DataError: there is none.
    """
    if path.is_dir():
        found = sorted(path.glob("*.txt"))
        texts: Iterator[str] = (each.read_text(encoding="utf-8", errors="replace") for each in found)
    else:
        texts = _column(path)
    some = False
    for text in texts:
        if text.strip():
            some = True
            yield text.encode("utf-8", "replace").decode()
    if not some:
        raise DataError(
            f"--public is {str(path)!r}, which has no text.", "Name a table with the column text, or .txt files."
        )


def sentences(texts: Iterable[str], longest: int, most: int) -> Iterator[str]:
    """Yield the first sentence of every text, then the second of every text, and so on, until there are `most`.

    Public text is often longer than the private texts beside it. Whole, it is cut at their length.

    Args:
        longest: characters of a sentence, at most; longer ones are left out, as are those of less than `_FEWEST`.
    """
    each = ([one.strip() for one in _BEHIND.split(text)] for text in texts)
    kept = [[one for one in own if _FEWEST <= len(one) <= longest] for own in each]
    return islice((one for row in zip_longest(*kept) for one in row if one is not None), most)


def _column(path: Path) -> Iterator[str]:
    lacks = False
    try:
        yield from (str(row[0] or "") for _, row in cells(path, [Wanted("text")]))
    except MissingColumn:
        lacks = True
    if lacks:
        raise DataError(f"--public is {str(path)!r}, which has no column 'text'.", "Call the column of its texts so.")


class Seen:
    """Texts to look up again, as hashes of 8 bytes."""

    def __init__(self) -> None:
        self.exact: set[int] = set()
        self.same: set[int] = set()
        self.pieces: set[int] = set()

    @staticmethod
    def key(text: str) -> int:
        """Hash a text's letters and digits."""
        return hash(strip_signs(read_text(text)))

    def add(self, text: str) -> None:
        """Remember a text, and its sentences."""
        self.exact.add(hash(text.strip()))
        self.same.add(self.key(text))
        self.pieces.update(_sentences(text))


@dataclass
class Tally:
    """Counts of the written records; private."""

    rows: int = 0
    exact: int = 0  # records whose text recurs as it is
    same: int = 0  # records whose letters and digits recur
    pieces: int = 0  # records with a sentence of at least `SENTENCE` letters and digits that recurs
    labels: Counter[str] = field(default_factory=Counter)  # how many records carry each

    def add(self, item: Item, seen: Seen) -> None:
        """Count an item, and whether its text was seen before."""
        text, self.rows = read_text(item.text), self.rows + 1
        self.labels.update(item.labels)
        self.exact += hash(text.strip()) in seen.exact
        self.same += (alike := seen.key(text) in seen.same)
        self.pieces += alike or bool(seen.pieces and not seen.pieces.isdisjoint(_sentences(text)))


def strip_signs(text: str) -> str:
    """Return the letters and digits of a text, in lower case.

    >>> strip_signs("You 've seen it : ÇA!")
    'youveseenitça'
    """
    return _SIGNS.sub("", normalise(text))


def _sentences(text: str) -> set[int]:
    found = (strip_signs(sentence) for sentence in _ENDS.split(text))
    return {hash(sentence) for sentence in found if len(sentence) >= SENTENCE}


def read_text(text: str) -> str:
    """Return what a person reads of a record: the longest text of a JSON object."""
    if not text.startswith("{"):
        return text
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return max((value for value in members.values() if isinstance(value, str)), key=len, default=text)
