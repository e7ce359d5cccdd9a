"""The record that leaves a generator, and public rows: text with a label or none, and fields where there are any."""

from dataclasses import dataclass
from typing import TypeAlias

Fields: TypeAlias = tuple[tuple[str, str | int | float | None], ...]  # name and value, in the order of params.yaml


@dataclass(frozen=True, slots=True)
class Record:
    """One text and its label; `label` is None where the task has none or the text is unlabelled.

    Attributes:
        fields: synthetic values, drawn from public cells; None for one that the record does not have.
    """

    text: str
    label: str | None = None
    fields: Fields = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """A public record on which a training is tried: with the cells of its fields, as a private row has them."""

    text: str
    label: str | None = None
    fields: str = ""


def list_fields(fields: Fields) -> str:
    """Return values in words; one that a record does not have is left out.

    >>> list_fields((("priority", "high"), ("age", None), ("stars", 4)))
    'priority: high, stars: 4'
    """
    return ", ".join(f"{name}: {value}" for name, value in fields if value is not None)
