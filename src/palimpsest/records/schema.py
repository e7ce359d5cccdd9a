"""What is public about a private data set. Nothing here is ever read out of the rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublicSchema:
    """The public facts that plans and generators may use.

    Attributes:
        asset: the data asset's name in the ledger.
        task: "classify" or "text".
        text: name of the text column.
        label: name of the label column, or None.
        labels: label name -> public description, in the order of params.yaml.
        n_public: the declared, public, approximate number of records.
        max_length: longest text kept, in characters; longer texts are cut.
        unit_column: the column that names the person, or None (the unit is one record).
        max_rows_per_unit: public cap on rows per person.
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

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels in their public order."""
        return tuple(self.labels)


def default_delta(n_public: int) -> float:
    """1 / (n ln n): the delta used where params.yaml names none.

    >>> f"{default_delta(5000):.3g}"
    '2.35e-05'
    """
    return 1.0 / (n_public * math.log(n_public))
