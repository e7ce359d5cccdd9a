"""Stages that measure something: the files that they read, by name, and their declaration in short."""

from functools import partial
from pathlib import Path

from palimpsest.graph.stage import BELOW, NAME, Each, Feature, Stage
from palimpsest.workspace import METRICS, MODEL_RECEIPTS, MODELS, PRIVATE, PUBLIC, RECEIPTS, SYNTHETIC, Zone

TRAIN, HOLDOUT, TEST = (PRIVATE / f"{part}.parquet" for part in ("train", "holdout", "test"))
TEXTS, HELD = PUBLIC / "train.parquet", PUBLIC / "heldout.parquet"
MODEL, MODEL_RECEIPT, MODEL_BELOW = MODELS / NAME, MODEL_RECEIPTS / f"{NAME}.json", MODELS / BELOW
ROWS, RECEIPT = SYNTHETIC / f"{NAME}.parquet", RECEIPTS / f"{NAME}.json"
EVALUATED, AUDITED = Each("run.evaluate", "variant"), Each("run.audit", "variant")
COLUMNS = ("dataset.text", "dataset.label")
GUESSING = ("seed", "dataset", "privacy.budget.delta", "audit.guesses", "audit.alpha")  # read by guesses at coins


def measured(metric: str) -> tuple[Path, ...]:
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
    module: str = "",
    first: bool = False,
    gpus: int = 0,
) -> Stage:
    """Declare a stage that measures what it is repeated for: by default each variant's rows, beside private rows."""
    return Stage(
        name, desc, zone, over, params, deps, metrics=measured(metric), needs=needs, module=module, first=first,
        gpus=gpus,
    )  # fmt: skip


computes = partial(measures, gpus=1)  # with torch
