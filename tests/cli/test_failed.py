"""An audit that failed itself is tried again by the next run; one whose rows allow no result is not."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dvc.repo import Repo

from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.files import write_json
from palimpsest.work.run import forget_failed

GRAPH = """
stages:
  audit:
    cmd: {python} -c "import pathlib; pathlib.Path('ran').open('a').write('x')" && cp told.json reports/metrics/v/a.json
    metrics: [reports/metrics/v/a.json: {{push: false}}]
"""


@pytest.fixture
def reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Run the audit where something changed for it: how often it has run so far."""
    monkeypatch.chdir(tmp_path)
    Repo.init(".", no_scm=True).close()
    Path("reports/metrics/v").mkdir(parents=True)
    Path("dvc.yaml").write_text(GRAPH.format(python=sys.executable))

    def run() -> int:
        with Repo(".") as repo:
            repo.reproduce()
        return len(Path("ran").read_text())

    return run


@pytest.mark.parametrize("failed", [True, False])
def test_a_failure_is_tried_again_and_no_result_is_not(failed: bool, reproduce: Callable[[], int]) -> None:
    write_json("told.json", Inconclusive("it is so", "Wait.", failed=failed).document)
    assert reproduce() == 1
    forget_failed(Path())
    assert reproduce() == 1 + failed


def test_results_stay_and_a_torn_file_is_not_ours_to_judge(reproduce: Callable[[], int]) -> None:
    write_json("told.json", {"zone": "internal", "value": 1})
    assert reproduce() == 1
    Path("reports/metrics/torn.json").write_text("{")
    forget_failed(Path())
    assert Path("reports/metrics/torn.json").read_text() == "{"
    assert reproduce() == 1
