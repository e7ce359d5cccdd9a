"""`palimpsest sweep`: what it plans and writes, what it leaves out; and the scores of workspaces side by side."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_place import Place
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.files import write_json, write_text
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.params.load import read
from palimpsest.params.sweep import axis, points
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.report import drawing
from palimpsest.work import before as checks
from palimpsest.work import plan, run
from palimpsest.work.look import CHOICE
from palimpsest.work.run import hold_workspace
from palimpsest.workspace import GRAPH, METRICS, RECEIPTS, SUMMARY
from tests.receipts import a_receipt

DRAWN = ("dp3", "temperature=0.7,1.0")


def scored(workspace: Path, variant: str, value: float, half: float = 0.02) -> None:
    body = {"accuracy": value, "low": value - half, "high": value + half}
    write_json(workspace / METRICS / variant / "utility.json", {"evaluators": {"tfidf_lr": body}})


@pytest.fixture
def ran(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that a sweep asks to run; each is scored at once, and the second one fails."""
    asked: list[str] = []

    def run_workspace(workspace: Path, targets: list[str], **_: Any) -> int:
        asked.extend(targets)
        scored(workspace, targets[0].partition("@")[2], 0.8)
        return int(len(asked) == 2)

    monkeypatch.setattr(run, "run_workspace", run_workspace)
    return asked


def lines(text: str) -> dict[str, str]:
    return {line.partition("  ")[0]: line for line in text.splitlines()}


def test_a_plan_prices_the_grid_and_writes_no_point(place: Place) -> None:
    before = (place.workspace / FILE).read_bytes()
    done = place.call("sweep", *DRAWN, "--plan")
    assert done.exit_code == 0, done.output
    found = lines(done.stdout)
    assert "adds epsilon 0.000  will run" not in found["dp3_temperature0_7"]  # its model is not fitted yet
    assert "adds epsilon 0.000  will run" in found["dp3_temperature1"]
    assert CHOICE in done.stdout
    assert (place.workspace / FILE).read_bytes() == before


def test_points_that_cannot_run_are_named_and_left_out(place: Place) -> None:
    place.edit("variants", select3={"method": "select", "epsilon": 3.0})
    found = lines(place.call("sweep", "select3", "epsilon=3,5,9,60,0.001", "--plan").stdout)
    assert "will run" in found["select3"]
    assert "will run" in found["select3_epsilon5"]
    assert "left out: does not fit: the total would be epsilon" in found["select3_epsilon9"]
    assert "left out: select3_epsilon60: epsilon 60 is no protection" in found["select3_epsilon60"]
    assert "left out: select3_epsilon0_001: epsilon 0.001 is too small" in found["select3_epsilon0_001"]
    done = place.call("sweep", "dp3", "top_p=1.5,2", "--yes")
    assert (done.exit_code, "No point can run" in done.stdout) == (1, True)


def test_a_charge_however_small_is_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.Till, "offer", lambda _, point: plan.Offer(point, "", added=0.0002))
    assert "adds epsilon 0.001  will run" in place.call("sweep", *DRAWN, "--plan").stdout


def test_what_may_be_paid_already_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.edit("variants", select3={"method": "select", "epsilon": 3.0})
    line = ("select3", "epsilon=3,5", "--plan")
    assert "0 or" not in place.call("sweep", *line).stdout
    monkeypatch.setattr(plan, "may_be_paid", lambda *_: True)
    told = place.call("sweep", *line).stdout
    assert re.findall(r"adds epsilon 0 or \d+\.\d+", told)
    assert "They add at most epsilon" in told
    assert plan.MAY_BE_PAID in told
    drawn = lines(place.call("sweep", *DRAWN, "--plan").stdout)
    assert "adds epsilon 0.000  will run" in drawn["dp3_temperature1"]  # what is drawn is free in any case


def test_a_choice_that_has_nothing_left_is_left_out(place: Place) -> None:
    place.edit("variants", one={"method": "select", "epsilon": 1.0}, two={"method": "select", "epsilon": 1.1})
    place.edit("variants", best={"method": "choose", "epsilon": 3.0, "from": ["one", "two"]})
    done = place.call("sweep", "best", "epsilon=1.2,3", "--plan")
    assert done.exit_code == 0, done.output
    found = lines(done.stdout)
    assert "left out: The variants to choose from cost epsilon" in found["best_epsilon1_2"]
    assert "will run" in found["best"]


def test_a_sweep_writes_its_points_beside_what_is_there_and_runs_each(place: Place, ran: list[str]) -> None:
    before = read(place.workspace)
    done = place.call("sweep", *DRAWN, "--yes")
    assert (done.exit_code, "Failed: dp3_temperature1" in done.stderr) == (1, True)
    after = read(place.workspace)
    assert ran == ["downstream_eval@dp3_temperature0_7", "downstream_eval@dp3_temperature1"]
    assert after.run.dp_lm == {"dp3": "dp3", "dp3_temperature0_7": "dp3", "dp3_temperature1": "dp3"}
    assert (after.lms, after.variants["dp3"]) == (before.lms, before.variants["dp3"])
    assert after.swept == {"dp3", "dp3_temperature0_7", "dp3_temperature1"}
    assert "# Rows of the results" in (place.workspace / FILE).read_text(encoding="utf-8")
    asked = plan.Sweep(None, "dp3", (place.workspace / FILE).read_text(encoding="utf-8"), {})  # type: ignore[arg-type]
    assert plan.insert_points(asked, points(asked.written, "dp3", [axis(DRAWN[1])])) == asked.text  # again: it goes on
    assert Ledger.open(f"sqlite:///{place.ledger}").balance("notes").spent == 0.0


def test_what_failed_is_said_where_nothing_was_scored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_workspace", lambda *_, **__: 1)
    done = place.call("sweep", *DRAWN, "--yes")
    assert (done.exit_code, "Failed: dp3_temperature0_7, dp3_temperature1." in done.stderr) == (1, True)
    assert "Nothing was scored" not in done.stderr


def test_a_sweep_waits_for_a_run_at_work_and_writes_nothing_meanwhile(place: Place, ran: list[str]) -> None:
    path = place.workspace / FILE
    path.write_text(path.read_text(encoding="utf-8").replace("multitask", "plain"), encoding="utf-8")
    before = {name: (place.workspace / name).read_bytes() for name in (FILE, RESOLVED, GRAPH)}
    with hold_workspace(place.workspace):
        done = place.call("sweep", *DRAWN, "--yes")
    assert (done.exit_code, "A run is at work in this workspace" in done.stderr, ran) == (1, True, [])
    assert {name: (place.workspace / name).read_bytes() for name in before} == before
    assert place.call("sweep", *DRAWN, "--yes").exit_code == 1
    assert len(ran) == 2, "its points run under locks of their own"


def test_without_a_word_nothing_is_written(place: Place, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = (place.workspace / FILE).read_bytes()
    done = place.call("sweep", *DRAWN)
    assert (done.exit_code, "nobody can be asked" in done.stderr) == (1, True)
    monkeypatch.setattr(checks, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(checks, "confirm", lambda _: False)
    assert "params.yaml is as it was" in place.call("sweep", *DRAWN).stdout
    assert ((place.workspace / FILE).read_bytes(), ran) == (before, [])


def test_a_file_that_cannot_take_points_says_why(place: Place) -> None:
    place.edit("variants", dp3_temperature1={"method": "dp_lm", "from": "dp3", "variant": "plain"})
    assert "is there with other settings" in lines(place.call("sweep", *DRAWN, "--plan").stdout)["dp3_temperature1"]
    place.edit("runs", evaluate=["dp3"])
    assert "runs.evaluate of params.yaml lists" in place.call("sweep", *DRAWN).stderr


@pytest.mark.parametrize("varied", ["rows=2024-01-01", "epsilon=3,.nan"])
def test_a_value_that_is_no_setting_is_refused(place: Place, varied: str) -> None:
    done = place.call("sweep", "dp3", varied, "--plan")
    assert (done.exit_code, f"'{varied}' has NaN or a date among its values" in done.stderr) == (1, True)


def test_a_section_in_braces_takes_no_points(place: Place) -> None:
    path = place.workspace / FILE
    text = path.read_text(encoding="utf-8")
    row = "{method: dp_lm, from: dp3, variant: multitask}"
    path.write_text(text.replace(f"variants:\n  dp3: {row}", f"variants: {{dp3: {row}}}"), encoding="utf-8")
    assert "written on one line in braces" in place.call("sweep", *DRAWN, "--plan").stdout


def test_workspaces_stand_side_by_side_and_noise_is_told_from_differences(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "draw_svg", lambda _, rows: json.dumps(rows))  # which tables are drawn by too
    place.edit("variants", other={"method": "dp_lm", "from": "dp3", "variant": "plain"})
    for name, value in (("dp3", 0.80), ("other", 0.81), ("real", 0.90)):
        scored(place.workspace, name, value)
    write_json(place.workspace / RECEIPTS / "dp3.json", a_receipt(epsilon=2.5).to_json())
    place.workspace.rename(place.home / "second")
    folder, plot = place.home / "second", place.home / "plot.svg"
    shutil.copytree(folder, place.workspace)
    told = json.loads(place.call("compare", folder, place.workspace, "--json", "--plot", plot).stdout)
    assert {one["workspace"] for one in told["scores"]} == {str(folder), str(place.workspace)}
    noise = {(one["first"], one["second"]): one["noise"] for one in told["differences"]}
    assert noise == {("dp3", "other"): True, ("dp3", "real"): False, ("other", "real"): False}
    assert len(told["differences"]) == 6  # rows of different workspaces have other test rows
    first = {"row": "dp3, epsilon 2.5", "whose": "tfidf_lr", "value": 0.8, "low": 0.78, "high": pytest.approx(0.82)}
    assert json.loads(plot.read_text(encoding="utf-8"))[0] == {"data": str(folder), **first}
    shown = place.call("compare", folder).stdout
    assert "dp3  dp_lm  epsilon 2.5  tfidf_lr 80.0% (78.0 to 82.0%) ≈ other" in shown
    assert CHOICE in shown
    (place.home / "again").symlink_to(folder)
    assert place.call("compare", folder, place.home / "again").stdout.count("≈ other") == 1  # it is one workspace


@pytest.mark.parametrize(
    ("name", "proved", "shown"),
    [
        ("dp3", {"epsilon": 2.998333}, "2.999"),
        ("dp3", {"epsilon": None, "purpose": "reference"}, "∞"),
        ("dp3", {"epsilon": None, "plan": {"token_epsilon": 3.0}}, "3 a word"),
        ("public_only", None, "0"),
    ],
)
def test_scores_stand_beside_no_less_than_what_was_proved(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, proved: dict[str, Any] | None, shown: str
) -> None:
    monkeypatch.setattr(drawing, "draw_svg", lambda _, rows: rows[0]["row"])
    scored(place.workspace, name, 0.8)
    if proved is not None:
        write_json(place.workspace / RECEIPTS / f"{name}.json", a_receipt(**proved).to_json())
    assert f"epsilon {shown}  tfidf_lr" in place.call("compare", place.workspace, "--plot", place.home / "p.svg").stdout
    assert (place.home / "p.svg").read_text(encoding="utf-8") == f"{name}, epsilon {shown}"


def test_a_name_that_was_not_measured_is_drawn_by_nobody(place: Place) -> None:
    scored(place.workspace, "dp3", 0.8)
    done = place.call("compare", "dp3", "dp4", "--plot", place.home / "plot.svg")
    assert (done.exit_code, "VARIANT is 'dp4', which was not measured" in done.stderr) == (1, True)
    assert not (place.home / "plot.svg").exists()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"evaluators": {"tfidf_lr": {}}}'])
def test_a_file_of_results_that_is_not_whole_is_named(place: Place, content: str) -> None:
    for path, arguments in ((METRICS / "dp3" / "utility.json", [place.workspace]), (SUMMARY, [])):
        write_text(place.workspace / path, content)
        done = place.call("compare", *arguments)
        assert (done.exit_code, f"{path}' is not what this version writes" in done.stderr) == (1, True)


def test_a_terminal_of_few_signs_gets_what_it_has(place: Place) -> None:
    scored(place.workspace, "dp3", 0.8)
    done = CliRunner(charset="ascii").invoke(app, ["compare", str(place.workspace)])
    assert (done.exit_code, "? names rows of the same workspace" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dp3", "."], "is no workspace, and others are"),
        (["--plot", "plot.png"], "ends with .svg"),
        (["--plot", "plot.svg"], "Nothing was scored there yet"),
    ],
)
def test_what_cannot_be_compared_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(place.workspace)
    done = place.call("compare", *arguments)
    assert (done.exit_code, said in done.stderr) == (1, True)
