"""What a monitor is told of a workspace: the budget, charges and seconds, and nothing else."""

import json

import dp_accounting as dpa
import pytest
from cli_place import Place

from palimpsest.cli.metrics import VARIABLE
from palimpsest.files import write_json
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from stages.timing import place as seconds_of

RUN = Run("select", "select3", "release", "data", "plan")


def told(output: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Metric -> labels and value of each of its points."""
    (resource,) = json.loads(output)["resource_metrics"]
    metrics = (metric for scope in resource["scope_metrics"] for metric in scope["metrics"])
    return {
        metric["name"]: [(point["attributes"], point["value"]) for point in metric["data"]["data_points"]]
        for metric in metrics
    }


def test_a_monitor_is_told_of_budget_charges_and_seconds(place: Place) -> None:
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    plan = [PlannedQuery(name, dpa.GaussianDpEvent(20.0)) for name in ("first", "second")]
    first, _ = ledger.reserve("notes", RUN, plan).charges
    ledger.begin(first)
    write_json(place.workspace / seconds_of("fit", "select3"), {"seconds": 7})
    asset, of = {"asset": "notes"}, {"stage": "select", "variant": "select3"}
    balance, found = ledger.balance("notes"), told(place.call("metrics").stdout)
    assert found == {
        "palimpsest.budget.cap": [(asset, 9.0)],
        "palimpsest.budget.spent": [(asset, balance.spent)],
        "palimpsest.budget.left": [(asset, balance.left)],
        "palimpsest.queries": [({**asset, **of, "state": state}, 1) for state in ("begun", "reserved")],
        "palimpsest.stage.seconds": [({**asset, "stage": "fit", "variant": "select3"}, 7)],
    }


def test_an_exporter_that_is_not_there_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "nowhere")
    done = place.call("metrics")
    assert done.exit_code == 1
    assert "OpenTelemetry has no exporter 'nowhere' here." in done.output
