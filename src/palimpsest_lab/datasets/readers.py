"""Readers of published files: the paths of one part in, its records out, in the files' order.

A reader yields every record that its form has. `prepare` checks for all forms whether labels are known and texts are
UTF-8. Bytes that are not of the form's encoding come back as lone surrogates.

Errors name the file and the record's place and hold no value. Each is raised outside the handler that found it, so that
no exception with a row in it is chained.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from palimpsest.errors import DataError
from palimpsest.records.formats import FIELD_LIMIT, MissingColumn, Wanted, cells
from palimpsest.records.structured import canonical_text
from palimpsest_lab.datasets.declaration import Item, Part

_DAMAGED = (OSError, EOFError, zlib.error)
_CHANGED = "Give the files as they are published, unchanged; another data set may have files of the same names."
_BROKEN = object()
_BR = re.compile(r"<br\s*/?>")


def fault(name: str, number: int, problem: str) -> DataError:
    """Make the error for one record, by its place in a file."""
    return DataError(f"{name!r}, record {number}: {problem}.", _CHANGED)


# Classes, numbered or named. A reader is told the part; most forms have separate files for each, and do not ask.


def read_numbered(
    paths: Sequence[Path], part: Part, *, names: Sequence[str], fields: int, texts: slice = slice(None),
    newline: str = "\\n",
) -> Iterator[Item]:  # fmt: skip
    """Read CSV without a header: the class, counted from 1, then texts. A header is passed over.

    Args:
        fields: number of fields of a row.
        texts: which fields behind the class are joined to the record's text.
        newline: how a line break inside a text is written; it becomes a blank.

    Source: the readme.txt of the archives of Zhang, Zhao and LeCun, "Character-level Convolutional Networks for Text
    Classification" (2015). Kaggle's copies begin with a header.
    """
    for path in paths:
        for number, row in _table(path):
            if number == 1 and row and not row[0].strip().isdecimal():
                continue
            if len(row) != fields:
                raise fault(path.name, number, f"it has {len(row)} fields, and the form {fields}")
            text = " ".join(row[1:][texts]).replace(newline, " ").replace('\\"', '"')
            yield Item(" ".join(text.split()), (_nth(row[0], names),))


def read_headed(
    paths: Sequence[Path], part: Part, *, text: str, labels: Sequence[str], named: Mapping[str, str] | None = None,
    prefixes: Sequence[str] = (),
) -> Iterator[Item]:  # fmt: skip
    """Read a table with a header (CSV, TSV, JSONL or Parquet): a text column, a column for each attribute.

    Args:
        named: the meaning of a cell, such as 0 and 1; a cell that is not listed stands for itself.
        prefixes: taken off the front of each label, in the attributes' order.
    """
    fronts = [*prefixes, *[""] * (len(labels) - len(prefixes))]
    for path in paths:
        for _, (written, *own) in _columns(path, (text, *labels)):
            cut = [str(value).removeprefix(front) for value, front in zip(own, fronts, strict=True)]
            yield Item(str(written or "").strip(), tuple((named or {}).get(value, value) for value in cut))


def read_leading(
    paths: Sequence[Path], part: Part, *, named: Mapping[str, str], encoding: str = "utf-8"
) -> Iterator[Item]:
    """Read lines of label, blank and text: `1 a fine film`, or `DESC:manner How does ...`, whose fine part goes."""
    for path in paths:
        for _, line in _lines(path, encoding):
            label, _, text = line.partition(" ")
            coarse = label.partition(":")[0]
            yield Item(text.strip(), (named.get(coarse, coarse),))


def read_tabbed(paths: Sequence[Path], part: Part, *, named: Mapping[str, str]) -> Iterator[Item]:
    """Read TSV without quoting, as GLUE writes it: a header, then text and label; quotes are signs of the text."""
    for path in paths:
        for number, line in _lines(path):
            text, tab, label = line.partition("\t")
            if not tab:
                raise fault(path.name, number, "it is not a text, a tab and a label")
            if number > 1:
                yield Item(text.strip(), (named.get(label.strip(), label.strip()),))


def read_folders(paths: Sequence[Path], part: Part, *, named: Mapping[str, str]) -> Iterator[Item]:
    """Read a text from each file, and its label from the folder."""
    for path in paths:
        text = _BR.sub(" ", " ".join(line for _, line in _lines(path)))
        yield Item(" ".join(text.split()), (named.get(path.parent.name, path.parent.name),))


def read_reviews(paths: Sequence[Path], part: Part) -> Iterator[Item]:
    """Read JSON lines of reviews: text, stars, user_id. The person comes along.

    Source: https://business.yelp.com/data/resources/open-dataset/ and the documentation of the archive.
    """
    for path in paths:
        for number, line in _lines(path):
            row = _parse_json(line)
            if not isinstance(row, dict) or type(row.get("stars")) not in (int, float):
                raise fault(path.name, number, "it is not a JSON object with text, stars and user_id")
            person = str(row.get("user_id") or "")  # null names nobody, like a missing id
            yield Item(str(row.get("text") or "").strip(), (f"{float(row['stars']):.1f}",), person)


# The Stanford Sentiment Treebank.


def read_treebank(paths: Sequence[Path], part: Part) -> Iterator[Item]:
    """Read the treebank's whole sentences that are not neutral: negative up to .4, positive above .6.

    Its dictionary has phrases in UTF-8. Its sentences are the same, with brackets as -LRB- and -RRB-, and with their
    bytes read as Latin-1. A sentence that the dictionary lacks is left out, as a neutral one is.

    Source: README.txt of stanfordSentimentTreebank.zip; Socher et al. 2013.
    """
    sentences, splits, dictionary, scores = paths
    wanted = {"train": "1", "test": "2", "dev": "3"}[part]
    split = {index: each for index, _, each in _pairs(splits, ",")}
    phrases = {phrase: index for phrase, _, index in _pairs(dictionary, "|")}
    score = {index: _number(value) for index, _, value in _pairs(scores, "|")}
    for index, _, sentence in _pairs(sentences, "\t", last=False):
        if split.get(index) == wanted:
            text = _restore_signs(sentence)
            label = _polarity(score.get(phrases.get(text, "")))
            if label is not None:
                yield Item(text, (label,))


def _polarity(value: float | None) -> str | None:
    if value is None or 0.4 < value <= 0.6:
        return None
    return "positive" if value > 0.6 else "negative"


def _restore_signs(sentence: str) -> str:
    text = sentence.replace("-LRB-", "(").replace("-RRB-", ")")
    with suppress(UnicodeError):
        return text.replace("\u00c3 ", "\u00c3\u00a0").encode("latin-1").decode("utf-8")
    return text.replace("\u00c2", "")


# Spans.


def read_tagged(paths: Sequence[Path], part: Part, *, tag: str) -> Iterator[Item]:
    """Read questions of the MIT Movie Corpus that name a thing of one kind, which is then the label.

    There are two forms. In the .bio files a line is a tag, a tab and a word, and a blank line ends a question. In the
    files of `slot-movies` in the few-shot-learning repository a line is a question, each word with a colon and its tag.
    As there, the words of all mentions make one label.

    Source: https://groups.csail.mit.edu/sls/downloads/movie/; `load_slot_movies` in data_utils.py of
    tonyzhaozh/few-shot-learning.
    """
    own = {f"B-{tag}", f"I-{tag}"}
    for path in paths:
        for words in _bio(path) if ".bio" in path.suffixes else _slots(path):
            if label := " ".join(word for word, kind in words if kind in own):
                yield Item(" ".join(word for word, _ in words), (label,))


def _bio(path: Path) -> Iterator[list[tuple[str, str]]]:
    lines = (line.partition("\t") for _, line in _lines(path, blank=True))
    for blank, group in groupby(lines, key=lambda line: not line[0].strip()):
        if not blank:
            yield [(word.strip(), kind.strip()) for kind, _, word in group]


def _slots(path: Path) -> Iterator[list[tuple[str, str]]]:
    for _, line in _lines(path):
        parts = (word.rpartition(":") for word in line.replace(" <=> <NULL>", "").split())
        yield [(word, kind) if colon else (kind, "") for word, colon, kind in parts]


# Records that are JSON objects.


def read_films(paths: Sequence[Path], part: Part, *, keys: Sequence[str]) -> Iterator[Item]:
    """Read the films of JSON files, each one list or an object a line, that have all keys, with nothing empty there.

    Source: README.md of prust/wikipedia-movie-data. Leaving out other keys and incomplete films is paper 003's.
    """
    for path in paths:
        for number, film in _objects(path):
            if not isinstance(film, dict):
                raise fault(path.name, number, "it is not a JSON object")
            if all(film.get(key) for key in keys):
                yield Item(_record(film, keys, path.name, number))


def _record(film: Mapping[str, Any], keys: Sequence[str], name: str, number: int) -> str:
    with suppress(ValueError):
        return canonical_text(film, keys)
    raise fault(name, number, "it has a number or a text that JSON has not")


def _objects(path: Path) -> Iterator[tuple[int, Any]]:
    if ".json" not in path.suffixes:
        yield from ((number, _parse_json(line)) for number, line in _lines(path))
        return
    found = _parse_json("\n".join(line for _, line in _lines(path)))
    if not isinstance(found, list):
        raise DataError(f"{path.name!r} is not a list of JSON objects.", _CHANGED)
    yield from enumerate(found, 1)


# Lines, cells and values.


@contextmanager
def _explain_failures(path: Path) -> Iterator[None]:
    failed, missing = False, None
    try:
        yield
    except MissingColumn as error:
        missing = error.column
    except _DAMAGED:
        failed = True
    if failed:
        raise DataError(f"{path.name!r} cannot be read.", "Check that you may read it, and copy it again.")
    if missing is not None:
        raise DataError(f"{path.name!r} has no column {missing!r}.", _CHANGED)


def _open_stream(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path, encoding: str = "utf-8", *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a file's lines without their ends, numbered from 1; blank ones count, and are left out unless wanted."""
    with _explain_failures(path), _open_stream(path) as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.decode(encoding, "surrogateescape").rstrip("\r\n").removeprefix("\ufeff")
            if blank or line.strip():
                yield number, line


def _pairs(path: Path, sign: str, *, last: bool = True) -> Iterator[tuple[str, str, str]]:
    """Yield each line as two parts with the sign between: at its last place, or at its first."""
    for number, line in _lines(path):
        parts = line.rpartition(sign) if last else line.partition(sign)
        if not parts[1]:
            raise fault(path.name, number, "it has not two parts")
        yield parts


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(FIELD_LIMIT)
    rows = csv.reader((f"{line}\n" for _, line in _lines(path, blank=True)), strict=True)
    number = 0
    while True:
        number += 1
        try:
            row = next(rows, None)
        except csv.Error:
            break
        if row is None:
            return
        if row:
            yield number, row
    raise fault(path.name, number, "its quoting is broken")


def _columns(path: Path, names: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
    with _explain_failures(path):
        yield from ((place.row, row) for place, row in cells(path, [Wanted(name) for name in names]))


def _nth(number: str, names: Sequence[str]) -> str:
    place = int(number) - 1 if number.strip().isdecimal() else -1
    return names[place] if 0 <= place < len(names) else ""


def _number(value: str) -> float | None:
    with suppress(ValueError):
        return float(value)
    return None


def _parse_json(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return _BROKEN
