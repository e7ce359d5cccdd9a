"""palimpsest from Python: the workspaces, the ledger and the graph of the commands, as values.

    import palimpsest as p
    work = p.create("work", tickets, public=public, text="body", label="team", labels=teams, n_public=12000, ...)
    work.plan()
    work.run()
    work.samples("select3")
    work.audit()
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from palimpsest.cli.context import Context, opened
from palimpsest.cli.decisions import DataSource
from palimpsest.cli.init import init_workspace
from palimpsest.cli.run import run_workspace
from palimpsest.errors import DataError, PalimpsestError
from palimpsest.files import atomic_path, make_folder
from palimpsest.privacy.ledger.records import Balance
from palimpsest.records.write import read_synthetic
from palimpsest.workspace import DATA, SYNTHETIC

if TYPE_CHECKING:
    from pandas import DataFrame

GIVEN = DATA / "given"  # tables that were handed over as values


@runtime_checkable
class Frameable(Protocol):
    """A table that becomes a DataFrame, such as a `datasets.Dataset`."""

    def to_pandas(self) -> "DataFrame": ...


Table: TypeAlias = "Path | str | DataFrame | Frameable"
