"""The columns that methods have in `palimpsest plan`; each group of methods shares a table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Shown(Protocol):
    """Numbers of a plan as words."""

    def __call__(self, *keys: str, digits: int = 3) -> str:
        """The first of these numbers that the plan has; a dash where it has none."""


@dataclass(frozen=True)
class PlanColumn:
    """One column: its heading, and its cell for a plan."""

    heading: str
    cell: Callable[[Shown], str]


@dataclass(frozen=True)
class PlanTable:
    """One table: what a row is, and the columns between its name and its cost.

    `way` is a number of the plan that is shown under the name, and says how the method works.
    """

    row: str
    columns: tuple[PlanColumn, ...]
    way: str | None = None


TRAINED = PlanTable(
    "model",
    (
        PlanColumn("noise", lambda shown: shown("noise_multiplier", digits=5)),
        PlanColumn("steps", lambda shown: shown("steps")),
        PlanColumn(
            "batch\n(rate)", lambda shown: f"{shown('expected_batch', digits=6)}\n({shown('sampling_rate', digits=4)})"
        ),
    ),
)
WRITTEN = PlanTable(
    "variant",
    (
        PlanColumn("clip", lambda shown: shown("clip", digits=4)),
        PlanColumn(
            "tokens\n(batches)", lambda shown: f"{shown('tokens')}\n({shown('batches')} of {shown('batch_size')})"
        ),
        PlanColumn("examples\n(read)", lambda shown: f"{shown('expected_examples')}\n({shown('forward_tokens')})"),
    ),
    way="clipping",
)
CHOSEN = PlanTable(
    "variant",
    (
        PlanColumn("noise\n(rounds)", lambda shown: f"{shown('sigma', 'scale', digits=5)}\n({shown('rounds')})"),
        PlanColumn("rows\n(candidates)", lambda shown: f"{shown('rows')}\n({shown('candidates')})"),
        PlanColumn("requests\n(tokens)", lambda shown: f"{shown('requests')}\n({shown('tokens')})"),
    ),
)
