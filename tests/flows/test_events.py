from pathlib import Path

import pytest
from prefect.states import Completed, Failed

from flows import events
from flows.events import BROKEN, FAILED, tell_outcomes
from flows.runner import How, StageOutcome
from palimpsest.files import write_json
from palimpsest.workspace import SUMMARY, TWINS


def write_audits(folder: Path, **verdicts: str) -> None:
    for name, verdict in verdicts.items():
        write_json(folder / TWINS / f"{name}.json", {"verdict": verdict})


def test_failures_are_told_and_a_refuted_claim_when_its_audit_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit with invented records: what an attack on real ones found is in the private zone."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(events, "emit_event", lambda event, _, payload: told.append((event, payload["said"])))
    write_audits(tmp_path, select="refuted", evolve="not refuted", embed="inconclusive", steer="refuted")
    new, old = StageOutcome(How.REPRODUCED, 1.0), StageOutcome(How.CACHED, 1.0)
    tell_outcomes(tmp_path, {"report": Completed(), "mia": Failed()}, {"report": new, "twins@select": old})
    assert [event for event, _ in told] == [FAILED]
    assert "mia" in told[0][1]
    tell_outcomes(tmp_path, {}, {"twins@evolve": new, "twins@select": new, "twins@embed": new, "twins@steer": old})
    assert told[1:] == [(BROKEN, "An audit refuted the claim of method select: release nothing of it.")]


def test_what_an_attack_on_real_records_found_is_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "emit_event", lambda *_, **__: pytest.fail("something was told"))
    write_json(tmp_path / SUMMARY, {"rows": [{"variant": "dp3", "role": "release", "verdict": "refuted"}]})
    new = StageOutcome(How.REPRODUCED, 1.0)
    tell_outcomes(tmp_path, {"report": Completed()}, {"report": new, "mia@dp3": new, "text_mia@dp3": new})
