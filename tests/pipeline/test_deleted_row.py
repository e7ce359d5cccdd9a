"""A row that is deleted by the lines of docs/operations.md: nothing of it is left, nor a hash of what held it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dvc.repo import Repo

from bench.pages import ROOT, blocks
from palimpsest.files import make_folder
from palimpsest.records.write import read_split
from palimpsest.workspace import CHECKPOINTS, PRIVATE, RATINGS, SAMPLES, SHARDS
from palimpsest_lab.stages import incontext_eval
from stages import tools
from tests.pipeline.place import MARKER, Place
from tests.pipeline.test_pipeline_runs import hashes

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

# Where rows, and what follows from one, are kept beside the outputs of stages, which the next run writes anew.
BESIDE = (
    SHARDS / "dp3" / "0.parquet",
    CHECKPOINTS / "dp3" / "state",
    tools.OF_ROWS / "a.vectors",
    tools.OF_MEASURED / "a.vectors",
    tools.OF_OTHER_ASKS / "inf.sqlite",
    incontext_eval.KEPT / "real.sqlite",
    RATINGS / "sheet.csv",
    SAMPLES,
)


def test_nothing_is_left_of_a_row_that_is_deleted_by_the_pages_lines(
    made: Place, copy: Callable[[Place], Place]
) -> None:
    place = copy(made)
    place.edit("dataset", private=str(place.private))
    before = read(place)
    row = next(one.text for one in read_split(place.workspace / PRIVATE / "train.parquet") if MARKER in one.text)
    for path in BESIDE:
        make_folder((place.workspace / path).parent)
        (place.workspace / path).write_text(row)
    lines = place.private.read_text().splitlines(keepends=True)
    place.private.write_text("".join(line for line in lines if row not in line))
    gone = before - read(place)
    assert len(gone) > 1, "the split that had it, and what was said of all rows"
    traces = {row, *gone, *(f"{name[:2]}/{name[2:]}" for name in gone)}
    assert len(set(left(place, traces))) > len(BESIDE)
    (shown,) = (one.script for one in blocks(ROOT / "docs/operations.md") if "dvc gc --workspace" in one.code)
    subprocess.run(["bash", "-euc", shown], cwd=place.workspace, env=place.variables, check=True)
    assert set(left(place, traces)) == set()


def read(place: Place) -> set[str]:
    """Read the private file, and tell the names in the cache of all that lies there now."""
    code, output = place.run("dvc", "repro", "preprocess")
    assert code == 0, output
    with Repo(str(place.workspace)) as repo:
        outs = [out for stage in repo.index.stages for out in stage.outs if out.use_cache and out.hash_info]
        return {name for out in outs for name in hashes(place, out)}


def left(place: Place, traces: set[str]) -> Iterator[str]:
    """The files of a workspace, and of what DVC notes of it elsewhere, that hold a trace or are called by one."""
    with Repo(str(place.workspace)) as repo:
        folders = [place.workspace, Path(repo.site_cache_dir)]
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if any(trace in str(path) or trace.encode() in content for trace in traces):
            yield str(path)
