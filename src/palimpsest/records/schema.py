"""The public facts about a private data set and its labels. Nothing here is ever read out of the data."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from palimpsest.records.fields import Declared

LEAST_DELTA = 1e-12  # what accountants on a grid cut off is then still small beside it
_LISTED = re.compile(r"list\((.+)\)")
_PLUS = " + "  # between the values of a list
_SEPARATOR = "; "  # no label of a data set with several columns holds it: `dataset.labels` is refused then


@dataclass(frozen=True)
class PublicSchema:
    """The public facts that plans and generators may use.

    Attributes:
        asset: the data asset's name in the ledger.
        task: "classify", "span", "text" or "json".
        text: name of the text column; "*" where each row is a record of task json; see `texts` for several.
        label: name of the label column, or None. Its value is part of the record where `labels` is empty.
        labels: label name -> public description, in the order of params.yaml; empty except for task classify.
        n_public: the declared, public, approximate number of records.
        n_persons: the declared, public, approximate number of persons; None where the unit of privacy is one record.
        max_length: longest text kept, in characters; longer texts are cut.
        unit_column: the column that names the person, where that is the unit of privacy; None where it is one record.
        max_rows_per_unit: public cap on rows per person.
        json_schema: the JSON schema of a record of task json, else None.
        fields: name -> public declaration of the fields beside a text (`records.fields`), in the order of params.yaml.
    """

    asset: str
    task: str
    text: str
    n_public: int
    max_length: int
    label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    unit_column: str | None = None
    max_rows_per_unit: int = 1
    json_schema: Mapping[str, Any] | None = None
    n_persons: int | None = None
    fields: Mapping[str, Declared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a unit without its number, and a number without its unit."""
        if (self.unit_column is None) != (self.n_persons is None):
            raise ValueError("unit_column and n_persons go together: name both or neither")

    @property
    def unit(self) -> str:
        """The unit of privacy: "person" where a column names one, else "record"."""
        return "record" if self.unit_column is None else "person"

    @property
    def n_units(self) -> int:
        """The declared number of units of privacy, from which delta, sampling rates and divisors are computed."""
        return self.n_public if self.n_persons is None else self.n_persons

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels in their public order."""
        return tuple(self.labels)

    @property
    def free_label(self) -> bool:
        """Whether the label is free text and part of the record."""
        return self.label is not None and not self.labels

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keys of a record that is a JSON object, in their public order; None where records are plain text."""
        return None if self.json_schema is None else tuple(self.json_schema["properties"])


def default_delta(n_units: int) -> float:
    """Return 1 / (n ln n) for n units of privacy, the delta used where params.yaml names none.

    >>> f"{default_delta(5000):.3g}"
    '2.35e-05'
    """
    return 1.0 / (n_units * math.log(n_units))


def join_parts(parts: Sequence[str]) -> str:
    """Join the names, or the labels, of all attributes to one.

    >>> join_parts(["Restaurants", "5.0"]), join_parts(["refund"])
    ('Restaurants; 5.0', 'refund')
    """
    return _SEPARATOR.join(parts)


def holds_lists(column: str | None) -> bool:
    """Return whether the setting names a column of lists, `list(tags)`, whose values together are a label."""
    return _LISTED.fullmatch(column or "") is not None


def join_values(values: Sequence[str]) -> str:
    """Return the label that a list is: its different values in their order of the alphabet.

    >>> join_values(["late", "angry", "late"])
    'angry + late'
    """
    return _PLUS.join(sorted(set(values)))


def names(column: str | None) -> tuple[str, ...]:
    """Return the label columns of a data set; none where there is no label.

    >>> names("category; stars"), names("list(tags)"), names(None)
    (('category', 'stars'), ('tags',), ())
    """
    listed = _LISTED.fullmatch(column or "")
    return () if column is None else (listed[1],) if listed else tuple(column.split(_SEPARATOR))


def parts(label: str | None, column: str | None) -> tuple[Any, ...]:
    """Return the cell of each column of `column`, None where the record has none; one column's label stays whole.

    >>> parts("Restaurants; 5.0", "category; stars"), parts("refund; late", "team"), parts(None, "category; stars")
    (('Restaurants', '5.0'), ('refund; late',), (None, None))
    >>> parts("angry + late", "list(tags)")
    (['angry', 'late'],)
    """
    columns = names(column)
    if label is not None and holds_lists(column):
        return (label.split(_PLUS),)
    if label is None or len(columns) < 2:
        return (label,) * len(columns)
    return tuple(label.split(_SEPARATOR))


def join_cells(found: Sequence[str | list[str] | None]) -> str | None:
    """Return a record's label from its cells in all label columns; None where one is empty or there are no columns.

    >>> join_cells(["Restaurants", "5.0"]), join_cells(["Restaurants", None]), join_cells([])
    ('Restaurants; 5.0', None, None)
    """
    named = [join_values(cell) if isinstance(cell, list) else cell for cell in found if cell is not None]
    return join_parts(named) if named and len(named) == len(found) else None


def values(labels: Sequence[str], column: str | None) -> dict[str, tuple[str, ...]]:
    """Return for several columns: column -> its labels in the order of the public list; empty for fewer than two.

    >>> values(["Arts; 1", "Arts; 2", "Bars; 1"], "category; stars")
    {'category': ('Arts', 'Bars'), 'stars': ('1', '2')}
    """
    columns = names(column)
    if len(columns) < 2:
        return {}
    apart = zip(*(label.split(_SEPARATOR) for label in labels), strict=True)
    return {name: tuple(dict.fromkeys(own)) for name, own in zip(columns, apart, strict=True)}


def combine_labels(lists: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Make the public list of joined labels, label -> description, from the list of each column: every combination.

    It has all combinations, whichever of them private rows have, so the list tells nothing of the rows.

    >>> combine_labels([{"Arts": "art", "Bars": "a bar"}, {"1": "bad"}])
    {'Arts; 1': 'art; bad', 'Bars; 1': 'a bar; bad'}
    """
    chosen = product(*(each.items() for each in lists))
    return {join_parts([name for name, _ in one]): join_parts([words or name for name, words in one]) for one in chosen}


def join_columns(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `dataset` with a list of text or label columns as one name, and lists of labels as one list.

    >>> join_columns({"label": ["kind", "stars"], "labels": {"stars": {"1": "bad"}, "kind": {"bar": ""}}})
    {'label': 'kind; stars', 'labels': {'bar; 1': 'bar; bad'}}
    """
    label, labels = section.get("label"), section.get("labels")
    column = join_parts([str(name) for name in label]) if isinstance(label, list | tuple) else label
    own = names(column) if isinstance(column, str) else ()
    if (
        len(own) > 1
        and isinstance(labels, Mapping)
        and set(labels) == set(own)
        and all(map(_is_label_list, labels.values()))
    ):
        labels = combine_labels([labels[name] for name in own])
    text = section.get("text")
    texts = join_parts([str(name) for name in text]) if isinstance(text, list | tuple) else text
    told = {"label": column, "labels": labels, "text": texts}
    return {**section} | {key: value for key, value in told.items() if key in section}


def _is_label_list(labels: Any) -> bool:
    return isinstance(labels, Mapping) and all(isinstance(name, str) for name in labels)


def problem(labels: Sequence[str], column: str | None) -> str | None:
    """Return what is wrong with several label columns, or one of lists, and their public list; None if nothing is.

    >>> problem(["Arts; 1", "Bars"], "category; stars")
    "label 'Bars' has 1 part, and there are 2 label columns: labels are joined by '; ', which none may hold"
    """
    columns = names(column)
    if holds_lists(column):
        other = {label: join_values(label.split(_PLUS)) for label in labels}
        wrong = next((label for label in labels if other[label] != label), None)
        return wrong and f"label {wrong!r} is no list as it is read: write {other[wrong]!r}"
    if len(columns) < 2:
        return None
    if len(set(columns)) < len(columns) or "" in columns:
        return f"label names {list(columns)}: each column is named once"
    if not labels:
        return f"label names {list(columns)}, and there are no `labels`: only with public lists may there be several"
    for label in labels:
        found = label.split(_SEPARATOR)
        if len(found) != len(columns) or "" in found:
            count = f"{len(found)} part{'s' * (len(found) != 1)}"
            return (
                f"label {label!r} has {count}, and there are {len(columns)} label columns: labels are joined by "
                f"{_SEPARATOR!r}, which none may hold"
            )
    return None
