"""The declaration of a paper's table or figure: its rows and epsilons, its measures, and the published values.

A grid is a YAML file in `grids`, read strictly: a key that is not described here is refused. Nothing in a grid is read
from data. The settings of the paper's methods are in its preset; `settings` of a grid override them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from palimpsest.errors import ParamsError

Need = Literal["gpu", "api", "file", "model"]
Body = Mapping[str, Any]
HOUSE = "house"
_GRIDS = resources.files(__package__) / "grids"


class _Strict:
    """Base of what pydantic reads: each field of its type, none unknown."""

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Source(_Strict):
    """A data set of a table."""

    public: str  # the file with public text in the folder of the data, without its ending
    sentences: int | None = None  # how many sentences of it are public texts; None: its texts as they are
    dataset: str | None = None  # its name in `palimpsest dataset`; None: the one it has in the grid
    # its name in the ledger, where another data set of a grid has the same rows; None: as in the grid
    asset: str | None = None
    n_public: int | None = None  # how many are declared; None: as published
    part: bool = False  # whether it is a part of the data set, whose files lie in a folder of its name
    records: int | None = None  # how many private records the paper counts with; None: as many as are declared
    cut: float | None = None  # the share that is cut for the test; None: the publishers' split
    label: str | None = None  # which of its labels is learned; None: the first
    settings: Body = field(default_factory=dict)  # of params.yaml, only for this data set


@dataclass(frozen=True)
class Row(_Strict):
    """A row of the table."""

    title: str  # as the paper calls it
    like: str | None = None  # the variant of the settings that it uses; None: the one of its own name
    changes: Body = field(default_factory=dict)  # settings in which it differs from that variant
    # changed settings of its origin, a language model or an author, which then is its own
    below: Body = field(default_factory=dict)
    # the baseline that stands in place of a variant: the private rows (real), public texts (public_only), rows of the
    # public language model (public_lm), that model (base); None of a variant
    baseline: Literal["real", "public_only", "public_lm", "base"] | None = None
    epsilons: tuple[float, ...] | None = None  # instead of those of the grid
    detail: Body = field(default_factory=dict)  # what its cells measure differently from their column
    model: str = ""  # the language model that writes it, as the name of --model's folder has it; empty: any given model
    per_word: bool = False  # whether its epsilons are of one word, which is another unit: they stand beside no other
    needs: Mapping[Need, str] = field(default_factory=dict)  # requirements that not everybody has, in words
    missing: str = ""  # required parts that are not built; empty where all are


@dataclass(frozen=True)
class Column(_Strict):
    """A measurement of every row, or of some."""

    measure: str  # a key of `measures.MEASURES`
    title: str  # the heading in the table
    rows: tuple[str, ...] = ()  # the names of the rows that have it; empty of all
    # of the published values; percent is a hundredth of the measured value
    unit: Literal["share", "percent", "nats", "plain"] = "plain"
    detail: Body = field(default_factory=dict)  # the choice among the measure's values
    needs: Mapping[Need, str] = field(default_factory=dict)  # as is `missing`, as of a row
    missing: str = ""


@dataclass(frozen=True)
class Counting(_Strict):
    """The paper's way of counting epsilon; see `countings`."""

    # same: as it is counted here. two_gradients: both gradients of a step at the price of one. one_pick: all picks of a
    # call at the price of one. printed_noise: for the noise that is printed.
    kind: Literal["same", "two_gradients", "one_pick", "printed_noise"] = "same"
    rows: tuple[str, ...] = ()  # the rows that it counts so; all others as it is done here
    batch: int = 0  # of the training, as epochs are
    epochs: float = 0.0
    picks: int = 1  # of a call
    rounds: int = 0  # of votes
    noise: Mapping[str, Mapping[float, float]] = field(default_factory=dict)  # data set -> epsilon as stated -> printed
    says: str = ""  # what it does not cover, in a sentence


@dataclass(frozen=True)
class Grid(_Strict):
    """A table or a figure; data sets, rows and columns are declared by their names."""

    title: str  # what the table or figure shows
    data: Mapping[str, Source]
    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    epsilons: tuple[float, ...]  # of every row that names none; .inf is the run without noise
    models: Mapping[str, str] = field(default_factory=dict)  # that write and judge in the paper, in words
    counting: Counting = Counting()
    # data set -> row -> epsilon -> a value for each column, or None where it is not known
    published: Mapping[str, Mapping[str, Mapping[float, tuple[float | None, ...]]]] = field(default_factory=dict)
    unpublished: str = ""  # why values are missing there
    # of params.yaml, for all its data sets, over those of the paper. In names `<e>` is the epsilon of a cell as names
    # have it, and `<epsilon>` by itself is its value.
    settings: Body = field(default_factory=dict)
    named: Body = field(default_factory=dict)  # settings over those, where --model names a language model
    paper: str = ""  # as `table`, from the name of its file; `house` where the methods have no paper's settings
    table: str = ""

    @property
    def called(self) -> str:
        """The table's name, in words."""
        return f"{'House' if self.paper == HOUSE else f'Paper {self.paper}'}, {self.table}"


def list_grids() -> tuple[tuple[str, str], ...]:
    """Return (paper, table) of every grid, in order."""
    names = (path.name for path in _GRIDS.iterdir() if path.name.endswith(".yaml"))
    parts = (name.removesuffix(".yaml").partition("-") for name in names)
    return tuple(sorted((paper, table) for paper, _, table in parts))


def grid(paper: str, table: str) -> Grid:
    """Read the grid of that table. Raises ParamsError if there is none."""
    if (paper, table) not in list_grids():
        known = ", ".join(" ".join(each) for each in list_grids())
        raise ParamsError(f"There is no table {table!r} of paper {paper!r}.", f"Name one of: {known}.")
    return parse_grid({**_read(f"{paper}-{table}.yaml"), "paper": paper, "table": table})


def parse_grid(body: Body) -> Grid:
    """Build a grid from its file's content.

    Raises:
        ParamsError: a key is unknown, is missing or has a wrong value, or a row that is published or named by a column
            is not among its rows.
    """
    try:
        found = TypeAdapter(Grid).validate_python(dict(body))
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ParamsError(f"A grid cannot be read: {places}.", "Correct its file.") from None
    _check(found)
    return found


def _check(found: Grid) -> None:
    for name, column in found.columns.items():
        if strange := [row for row in column.rows if row not in found.rows]:
            raise ParamsError(f"The column {name!r} names {strange[0]!r}, which is no row.", "Name rows of its grid.")
    for data, rows in found.published.items():
        for row, values in rows.items():
            known = data in found.data and row in found.rows
            if not known or any(len(each) != len(found.columns) for each in values.values()):
                raise ParamsError(
                    f"{data}/{row} is published in a grid that does not have it, or with another number of values.",
                    "Give each published row of the grid one value a column.",
                )


@cache
def _read(name: str) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load((_GRIDS / name).read_text(encoding="utf-8")) or {})
