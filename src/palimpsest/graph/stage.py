"""The declaration of a stage, from which its entry in dvc.yaml follows."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from palimpsest.params.file import model_keys
from palimpsest.workspace import (
    CODE,
    METRICS,
    MODEL_RECEIPTS,
    MODELS,
    PRIVATE,
    PUBLIC,
    PUBLIC_FILES,
    RECEIPTS,
    SOURCES,
    SYNTHETIC,
    Zone,
)

NAME = "{name}"  # in a declaration: the name that a stage is repeated for
BELOW = "{below}"  # what that name is built on, where params.yaml maps it to something
FIRST = "${item.of0}"  # in dvc.yaml: the first of several that a name is built on
READ = "{read}"  # the file that its author reads, where one writes for it, or that its first population is chosen from
PRIVATE_FILE, TEST_FILE = "${dataset.private}", "${dataset.test}"
PUBLIC_FILE, PUBLIC_TEST_FILE = "${dataset.public}", "${dataset.public_test}"
_HINT = "# not found? Activate the environment that has palimpsest"
# Keys of models that no stage makes.
_MODELS = ("models.lm", "models.encoder", "models.classifier", "models.next_token", "authors.")
TEXTS, HELD = PUBLIC / "train.parquet", PUBLIC / "heldout.parquet"
MODEL, MODEL_RECEIPT, MODEL_BELOW = MODELS / NAME, MODEL_RECEIPTS / f"{NAME}.json", MODELS / BELOW
ROWS, RECEIPT = SYNTHETIC / f"{NAME}.parquet", RECEIPTS / f"{NAME}.json"
COLUMNS = ("dataset.text", "dataset.label")
GUESSING = ("seed", "dataset", "privacy.budget.delta", "audit.guesses", "audit.alpha")  # read by guesses at coins


class Feature(StrEnum):
    """A feature that a data set, or what runs on it, has by params.yaml. Some stages need some of these."""

    WORLD = "world"  # its rows are invented
    TEST = "test"  # a private test file of its own
    PUBLIC_TEST = "public_test"
    LABELS = "labels"  # a closed set of them
    JSON = "json"  # its records are JSON
    FIELDS = "fields"  # columns beside the text come out
    BASE = "base"  # something that runs reads a public language model
    NAMED = "named"  # that model is one from elsewhere
    UNTOUCHED = "untouched"  # it is a named one, and a copy of it learns prompts
    PUBLIC_LM = "public_lm"  # that model writes a row of its own
    WRITTEN = "written"  # an author writes its public file
    NEXT_TOKEN = "next_token"  # rows are measured by what a language model learns of them


@dataclass(frozen=True)
class Each:
    """A stage runs once for each name in a list of params.yaml, or in a mapping, which says what each is built on."""

    listed: str  # the key of the list or the mapping
    item: str | None = None  # what the names of a list are names of; None for a mapping
    # whether each name of the mapping reads a file of its own, as its author does. dvc.yaml then has the mapping
    # itself: a name's entry must not change when another name is added to it.
    authored: bool = False
    # whether a name of the mapping is built on several. dvc.yaml then has the mapping itself, and a file of each of
    # them: see `render`.
    several: bool = False

    def spell(self, text: str) -> str:
        """The text with DVC's words for the name, and for what it is built on."""
        if self.item is not None:
            return text.replace(NAME, f"${{item.{self.item}}}")
        below = FIRST if self.several else "${item.from}" if self.authored else "${item}"
        return text.replace(NAME, "${key}").replace(BELOW, below).replace(READ, "${item.reads}")


@dataclass(frozen=True)
class DvcPlot:
    """A JSON table that DVC draws."""

    path: Path
    x: str
    y: str
    title: str


@dataclass(frozen=True)
class Stage:
    """One stage of the graph, repeated or not.

    Paths and keys have `{name}` and `{below}` where they follow from what the stage is repeated for. A path that starts
    with `${` is named in params.yaml. The code of a stage, the public models that its keys name, and its receipt are
    among what it reads and writes without being listed.
    """

    name: str  # as DVC and the command line know it
    desc: str  # what it does, in a sentence
    zone: Zone  # what it reads. Nothing that a private or dp stage writes is pushed, but for `PUBLIC_FILES`.
    over: Each | None = None  # what it is repeated for
    params: tuple[str, ...] = ()  # the keys of params.yaml that it reads
    deps: tuple[Path | str, ...] = ()  # the files that it reads
    outs: tuple[Path, ...] = ()  # the files and folders that it writes, and that others may read
    metrics: tuple[Path, ...] = ()  # the measurements that it writes
    plots: tuple[DvcPlot, ...] = ()  # the tables that it writes
    receipt: Path | None = None  # what it writes of its own charge: a stage with a receipt spends
    gates: tuple[Path, ...] = ()  # files that can do no more than stop it
    needs: tuple[Feature, ...] = ()  # what there must be for the stage to be there
    module: str = ""  # its module in `stages`, where that has another name; with dots, one of another package
    gpus: int = 0  # how many devices it must have to itself, where the machine has any: 1 for what computes with torch
    team: bool = False  # whether it runs in several processes, each with so many
    retries: int = 0  # how often a flow may run it again after a failure; never where it reads private rows
    first: bool = False  # whether the first page of a run waits for it, while the other measurements are still to come
    always: bool = False  # whether it looks at the world outside the graph, and so runs every time
    cached: bool = True  # whether DVC keeps what it writes in its cache

    @property
    def code(self) -> str:
        """The name of its module."""
        return self.module if "." in self.module else f"stages.{self.module or self.name}"

    @property
    def command(self) -> str:
        """The command that runs it, with the name it is repeated for and, where it reads that, what this is built on.

        `-P` keeps a folder `stages` that users have in their workspace from being imported in place of ours. Whoever
        runs DVC with another Python reads behind the first stage's command, in the error about it, what to do.
        """
        used = " ".join((*self.params, *self.reads))
        one = self.over is not None and not self.over.several
        named = [NAME] * (self.over is not None) + [BELOW] * (one and BELOW in used)
        first = [] if self.code.startswith("stages.") else ["stages.packaged"]
        return " ".join(["python -P -m", *first, self.code, *named, *[_HINT] * self.always])

    @property
    def reads(self) -> tuple[str, ...]:
        """The files and folders that it reads."""
        code = [] if self.always else [_fact(CODE, self.name)]
        models = (_fact(SOURCES, key) for key in self.params if key.startswith(_MODELS) or key in model_keys())
        return (*map(str, self.deps), *map(str, self.gates), *code, *models)

    @property
    def kept(self) -> tuple[str, ...]:
        """The files and folders that it writes, besides its measurements and tables."""
        return (*map(str, self.outs), *([] if self.receipt is None else [str(self.receipt)]))

    @property
    def writes(self) -> tuple[str, ...]:
        """All that it writes."""
        return (*self.kept, *map(str, self.metrics), *(str(plot.path) for plot in self.plots))

    def may_push(self, path: str) -> bool:
        """Whether a file that it writes may leave this machine by `dvc push`."""
        return self.zone is Zone.PUBLIC or PUBLIC_FILES.get(path) == self.name


def _fact(folder: Path, name: str) -> str:
    return f"{folder.as_posix()}/{name}.json"


TRAIN, HOLDOUT, TEST = (PRIVATE / f"{part}.parquet" for part in ("train", "holdout", "test"))
EVALUATED, AUDITED = Each("run.evaluate", "variant"), Each("run.audit", "variant")


def metric_files(metric: str) -> tuple[Path, ...]:
    """Return the file of a metric, for each name that a stage is repeated for."""
    return (METRICS / NAME / f"{metric}.json",)


def measures(
    name: str,
    desc: str,
    metric: str,
    params: tuple[str, ...],
    deps: tuple[Path | str, ...],
    over: Each = AUDITED,
    needs: tuple[Feature, ...] = (),
    zone: Zone = Zone.PRIVATE,
    **more: Any,
) -> Stage:
    """Declare a stage that measures what it is repeated for: by default each variant's rows, beside private rows."""
    return Stage(name, desc, zone, over, params, deps, metrics=metric_files(metric), needs=needs, **more)


computes = partial(measures, gpus=1)  # with torch
