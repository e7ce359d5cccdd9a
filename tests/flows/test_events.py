from pathlib import Path

import pytest
from prefect.states import Completed, Failed

from flows import summary
from flows.summary import FAILED, tell_failures
from palimpsest.files import write_json
from palimpsest.workspace import SUMMARY


def test_failures_are_told_and_no_verdict_of_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(summary, "emit_event", lambda event, _, payload: told.append((event, payload["said"])))
    write_json(tmp_path / SUMMARY, {"rows": [{"variant": "dp3", "role": "release", "verdict": "refuted"}]})
    tell_failures(tmp_path, {"report": Completed(), "mia@dp3": Completed()})
    assert told == []
    tell_failures(tmp_path, {"report": Completed(), "mia": Failed()})
    assert told == [(FAILED, "Failed: mia. The log of each stage says why.")]
