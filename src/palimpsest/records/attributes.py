"""Several labels of one record, as category and stars of a review: where they are joined and taken apart.

A data set may name several label columns. Their names are joined to one, `category; stars`, and so are the labels of a
record, `Restaurants; 5.0`. Everything that asks private rows or writes rows knows only the joined label, which is one
of a public list like any label. Files have a column for each attribute.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

_SEPARATOR = "; "  # no label of a data set with several columns holds it: `dataset.labels` is refused then


def joined(parts: Sequence[str]) -> str:
    """Join the names, or the labels, of all attributes to one.

    >>> joined(["Restaurants", "5.0"]), joined(["refund"])
    ('Restaurants; 5.0', 'refund')
    """
    return _SEPARATOR.join(parts)


def names(column: str | None) -> tuple[str, ...]:
    """Return the label columns of a data set; none where there is no label.

    >>> names("category; stars"), names("team"), names(None)
    (('category', 'stars'), ('team',), ())
    """
    return () if column is None else tuple(column.split(_SEPARATOR))


def parts(label: str | None, column: str | None) -> tuple[str | None, ...]:
    """Return the label of each column of `column`, None where the record has none; one column's label stays whole.

    >>> parts("Restaurants; 5.0", "category; stars"), parts("refund; late", "team"), parts(None, "category; stars")
    (('Restaurants', '5.0'), ('refund; late',), (None, None))
    """
    columns = names(column)
    if label is None or len(columns) < 2:
        return (label,) * len(columns)
    return tuple(label.split(_SEPARATOR))


def whole(found: Sequence[str | None]) -> str | None:
    """Return a record's label from its cells in all label columns; None where one is empty or there are no columns.

    >>> whole(["Restaurants", "5.0"]), whole(["Restaurants", None]), whole([])
    ('Restaurants; 5.0', None, None)
    """
    named = [label for label in found if label is not None]
    return joined(named) if named and len(named) == len(found) else None


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


def combined(lists: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Make the public list of joined labels, label -> description, from the list of each column: every combination.

    It has all combinations, whichever of them private rows have, so the list tells nothing of the rows.

    >>> combined([{"Arts": "art", "Bars": "a bar"}, {"1": "bad"}])
    {'Arts; 1': 'art; bad', 'Bars; 1': 'a bar; bad'}
    """
    chosen = product(*(each.items() for each in lists))
    return {joined([name for name, _ in one]): joined([words or name for name, words in one]) for one in chosen}


def as_one(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `dataset` with a list of label columns as one name, and a list of labels for each as one list.

    >>> as_one({"label": ["kind", "stars"], "labels": {"stars": {"1": "bad"}, "kind": {"bar": ""}}})
    {'label': 'kind; stars', 'labels': {'bar; 1': 'bar; bad'}}
    """
    label, labels = section.get("label"), section.get("labels")
    column = joined([str(name) for name in label]) if isinstance(label, list | tuple) else label
    own = names(column) if isinstance(column, str) else ()
    if len(own) > 1 and isinstance(labels, Mapping) and set(labels) == set(own) and all(map(_listed, labels.values())):
        labels = combined([labels[name] for name in own])
    return {**section} | {key: value for key, value in {"label": column, "labels": labels}.items() if key in section}


def _listed(labels: Any) -> bool:
    return isinstance(labels, Mapping) and all(isinstance(name, str) for name in labels)


def problem(labels: Sequence[str], column: str | None) -> str | None:
    """Return what is wrong with several label columns and their public list; None where nothing is.

    >>> problem(["Arts; 1", "Bars"], "category; stars")
    "label 'Bars' has 1 part, and there are 2 label columns: labels are joined by '; ', which none may hold"
    """
    columns = names(column)
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
