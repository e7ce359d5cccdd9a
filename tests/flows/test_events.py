from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Completed, Failed

from flows import events
from flows.events import BROKEN, FAILED, refuted, tell_outcomes
from flows.runner import How, StageOutcome
from palimpsest.audit.statistics import Estimate
from palimpsest.files import write_json
from palimpsest.report.row import Membership, Row
from palimpsest.workspace import SUMMARY, TWINS


def write_page(folder: Path, verdict: str, twin: str) -> None:
    attack = Membership("loss", Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6), 4.0, 5.0, True, verdict, 0.001)
    nothing: dict[str, Any] = {one.name: None for one in fields(Row)}
    row = Row(**{**nothing, "variant": "dp3", "role": "release", "scores": (), "membership": attack})
    rows = [row, replace(row, variant="plain", role="reference", membership=replace(attack, verdict="refuted"))]
    write_json(folder / SUMMARY, {"rows": [asdict(one) for one in rows]})
    write_json(folder / TWINS / "select.json", {"verdict": twin})


@pytest.mark.parametrize(
    ("verdict", "twin", "found"),
    [
        ("not refuted", "inconclusive", []),
        ("refuted", "not refuted", []),
        ("inconclusive", "refuted", ["select"]),
    ],
)
def test_a_claim_that_is_told_of_was_refuted_on_invented_records(
    tmp_path: Path, verdict: str, twin: str, found: list[str]
) -> None:
    """What an attack on real records came to is in the private zone, which no message leaves."""
    write_page(tmp_path, verdict, twin)
    assert refuted(tmp_path) == found


def test_failures_are_told_and_a_refuted_claim_once_where_the_page_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(events, "emit_event", lambda event, _, payload: told.append((event, payload["said"])))
    write_page(tmp_path, "not refuted", "refuted")
    tell_outcomes(tmp_path, {"report": Completed(), "mia": Failed()}, {"report": StageOutcome(How.CACHED, 1.0)})
    assert [event for event, _ in told] == [FAILED]
    assert "mia" in told[0][1]
    tell_outcomes(tmp_path, {"report": Completed()}, {"report": StageOutcome(How.REPRODUCED, 1.0)})
    assert told[1:] == [(BROKEN, "An audit refuted the claim of method select: release nothing of it.")]
