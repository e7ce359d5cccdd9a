"""How long a stage took is kept with the public sizes that it had, and expected of a larger one in proportion."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.params.file import RESOLVED
from palimpsest.work.plan import Work, estimate_minutes, find_memory
from palimpsest.workspace import SEEN
from stages.common import note, start

WAS = Work(records=600, rows=100, passes=2)


def write_values(workspace: Path, n_public: int = 600, epochs: float = 2.0, rows: int = 100) -> None:
    """What a stage reads of the settings; JSON is YAML."""
    lms: dict[str, Any] = {"dp3": {"epsilon": 3.0, "train": {"epochs": epochs, "batch": 64}}}
    variants = {"dp3": {"generate": {"rows": rows, "max_tokens": 64}}}
    write_json(workspace / RESOLVED, {"dataset": {"n_public": n_public}, "lms": lms, "variants": variants})


@pytest.mark.parametrize(
    ("changes", "times"),
    [({}, 1), ({"rows": 200}, 2), ({"records": 1200, "rows": 200}, 2), ({"passes": 1}, 0.5), ({"records": 300}, 1)],
)
def test_time_grows_with_what_grew_most_and_with_each_pass(changes: dict[str, Any], times: float) -> None:
    assert replace(WAS, **changes).ratio_to(WAS) == times


def test_only_what_was_measured_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_values(tmp_path)
    note("dp_train", "dp3", 60.0)
    note("ngram_audit", "dp3", 6.0)
    note("pplm_generate", "dp3", 30.0)
    stages = ["dp_train@dp3", "ngram_audit@dp3", "pplm_generate@dp3", "report", "of_somebody_else"]
    write_values(tmp_path, n_public=1200, epochs=4.0)
    assert estimate_minutes(tmp_path, stages) == {"dp_train@dp3": 4.0, "ngram_audit@dp3": 0.2, "pplm_generate@dp3": 0.5}
    kept = tmp_path / SEEN / "seconds" / "dp_train@dp3.json"
    for other in ({**read_json(kept), "cores": 0}, {}):
        write_json(kept, other)
        assert "dp_train@dp3" not in estimate_minutes(tmp_path, stages)


def test_the_largest_of_what_was_measured_says_how_much_memory_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_values(tmp_path)
    stages = ["dp_train@dp3", "report", "ngram_audit@dp3", "of_somebody_else"]
    assert find_memory(tmp_path, stages) is None
    note("ngram_audit", "dp3", 6.0)
    before = find_memory(tmp_path, stages)
    held = np.ones(1 << 27)  # 1 GiB
    note("dp_train", "dp3", 6.0)
    assert before is not None
    assert held.nbytes / 2**30 <= find_memory(tmp_path, stages) < 64.0
    kept = tmp_path / SEEN / "seconds" / "dp_train@dp3.json"
    write_json(kept, {name: value for name, value in read_json(kept).items() if name != "gib"})  # by an older version
    assert find_memory(tmp_path, stages) == before


def test_a_stage_that_ends_well_keeps_its_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise DataError(f"{name} went wrong.", "Mend it.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "stages" / "ngram_audit.py"), "dp3"])
    kept = tmp_path / SEEN / "seconds" / "ngram_audit@dp3.json"
    start(lambda name: None)  # without settings there is nothing to keep
    write_values(tmp_path)
    with pytest.raises(SystemExit):
        start(fail)
    assert not kept.exists()
    start(lambda name: None)
    body = read_json(kept)
    assert body.pop("seconds") >= 0
    sizes = {"dataset.n_public": 600.0, "lms.dp3.train.epochs": 2.0, "variants.dp3.generate.rows": 100.0}
    assert body.pop("gib") > 0.0
    assert body == {"cores": os.cpu_count(), "sizes": sizes}
