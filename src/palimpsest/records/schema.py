"""The public facts about a private data set. Nothing here is ever read out of the rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PublicSchema:
    """The public facts that plans and generators may use.

    Attributes:
        asset: the data asset's name in the ledger.
        task: "classify", "span", "text" or "json".
        text: name of the text column; "*" where each row is a record of task json.
        label: name of the label column, or None. Its value is part of the record where `labels` is empty.
        labels: label name -> public description, in the order of params.yaml; empty except for task classify.
        n_public: the declared, public, approximate number of records.
        n_persons: the declared, public, approximate number of persons; None where the unit of privacy is one record.
        max_length: longest text kept, in characters; longer texts are cut.
        unit_column: the column that names the person, where that is the unit of privacy; None where it is one record.
        max_rows_per_unit: public cap on rows per person.
        json_schema: the JSON schema of a record of task json, else None.
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


LEAST_DELTA = 1e-12  # what accountants on a grid cut off is then still small beside it


def default_delta(n_units: int) -> float:
    """Return 1 / (n ln n) for n units of privacy, the delta used where params.yaml names none.

    >>> f"{default_delta(5000):.3g}"
    '2.35e-05'
    """
    return 1.0 / (n_units * math.log(n_units))
