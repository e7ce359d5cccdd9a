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
    """A data set of a table.

    Attributes:
        public: the file with public text in the folder of the data, without its ending.
        sentences: how many sentences of it are public texts; None: its texts as they are.
        dataset: its name in `palimpsest dataset`; None: the one it has in the grid.
        asset: its name in the ledger, where another data set of a grid has the same rows; None: as in the grid.
        records: how many private records the paper counts with; None: as many as are declared.
        n_public: how many are declared; None: as published.
        part: whether it is a part of the data set, whose files lie in a folder of its name.
        cut: the share that is cut for the test; None: the publishers' split.
        label: which of its labels is learned; None: the first.
        settings: of params.yaml, only for this data set.
    """

    public: str
    sentences: int | None = None
    dataset: str | None = None
    asset: str | None = None
    n_public: int | None = None
    part: bool = False
    records: int | None = None
    cut: float | None = None
    label: str | None = None
    settings: Body = field(default_factory=dict)


@dataclass(frozen=True)
class Row(_Strict):
    """A row of the table.

    Attributes:
        title: as the paper calls it.
        like: the variant of the settings that it uses; None: the one of its own name.
        changes: settings in which it differs from that variant.
        below: changed settings of its origin, a language model or an author, which then is its own.
        baseline: the baseline that stands in place of a variant: the private rows (real), public texts (public_only),
            rows of the public language model (public_lm), that model (base); None of a variant.
        epsilons: instead of those of the grid.
        detail: what its cells measure differently from their column.
        model: the language model that writes it, as the name of --model's folder has it; empty: any given model.
        per_word: whether its epsilons are of one word, which is another unit: they stand beside no other.
        needs: requirements that not everybody has, in words.
        missing: required parts that are not built; empty where all are.
    """

    title: str
    like: str | None = None
    changes: Body = field(default_factory=dict)
    below: Body = field(default_factory=dict)
    baseline: Literal["real", "public_only", "public_lm", "base"] | None = None
    epsilons: tuple[float, ...] | None = None
    detail: Body = field(default_factory=dict)
    model: str = ""
    per_word: bool = False
    needs: Mapping[Need, str] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True)
class Column(_Strict):
    """A measurement of every row, or of some.

    Attributes:
        rows: the names of the rows that have it; empty of all.
        measure: a key of `measures.MEASURES`.
        title: the heading in the table.
        unit: of the published values; percent is a hundredth of the measured value.
        detail: the choice among the measure's values.
        needs, missing: as of a row.
    """

    measure: str
    title: str
    rows: tuple[str, ...] = ()
    unit: Literal["share", "percent", "nats", "plain"] = "plain"
    detail: Body = field(default_factory=dict)
    needs: Mapping[Need, str] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True)
class Counting(_Strict):
    """The paper's way of counting epsilon; see `countings`.

    Attributes:
        kind: same: as it is counted here. two_gradients: both gradients of a step at the price of one. one_pick: all
            picks of a call at the price of one. printed_noise: for the noise that is printed.
        rows: the rows that it counts so; all others as it is done here.
        batch, epochs: of the training.
        picks: of a call.
        rounds: of votes.
        noise: data set -> epsilon as stated -> the printed noise.
        says: what it does not cover, in a sentence.
    """

    kind: Literal["same", "two_gradients", "one_pick", "printed_noise"] = "same"
    rows: tuple[str, ...] = ()
    batch: int = 0
    epochs: float = 0.0
    picks: int = 1
    rounds: int = 0
    noise: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    says: str = ""


@dataclass(frozen=True)
class Grid(_Strict):
    """A table or a figure.

    Attributes:
        title: what the table or figure shows.
        models: the models that write and judge in the paper, in words.
        counting: its way of counting epsilon.
        data: data set -> its declaration.
        rows, columns: name -> its declaration.
        epsilons: of every row that names none; .inf is the run without noise.
        published: data set -> row -> epsilon -> a value for each column, or None where it is not known.
        unpublished: why values are missing there.
        settings: of params.yaml, for all its data sets, over those of the paper. In names `<e>` is the epsilon of a
            cell as names have it, and `<epsilon>` by itself is its value.
        named: settings over those, where --model names a language model.
        paper, table: from the name of its file; the paper is `house` where the methods have no paper's settings.
    """

    title: str
    data: Mapping[str, Source]
    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    epsilons: tuple[float, ...]
    models: Mapping[str, str] = field(default_factory=dict)
    counting: Counting = Counting()
    published: Mapping[str, Mapping[str, Mapping[float, tuple[float | None, ...]]]] = field(default_factory=dict)
    unpublished: str = ""
    settings: Body = field(default_factory=dict)
    named: Body = field(default_factory=dict)
    paper: str = ""
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
    """Read the grid of that table.

    Raises:
        ParamsError: there is none.
    """
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
