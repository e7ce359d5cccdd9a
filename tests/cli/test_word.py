"""The owner's word: asked at every release in the same words, and given to the stage that releases alone."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_place import Place
from click.testing import Result
from dp_accounting import GaussianDpEvent
from dvc.repo import Repo
from typer.testing import CliRunner

import palimpsest.work.run
from palimpsest.cli.main import app
from palimpsest.errors import ConsentNeeded, DataError
from palimpsest.files import write_json
from palimpsest.graph.state import Standing, State
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.report.release.word import VARIABLE
from palimpsest.work.context import Context, find_stale, open_workspace, stage_names, standings
from palimpsest.work.run import HELD_BACK, _run_repro, hold_unattended
from palimpsest.workspace import MANIFEST, RELEASES
from stages.warm import VARIABLE as WARM

Runs = list[tuple[list[str], dict[str, str]]]


@pytest.fixture
def runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What would have run in a workspace that releases: targets and variables; the shell has exported a word."""
    place.edit("release", variants=["dp3"])
    monkeypatch.setenv(VARIABLE, "yes")
    monkeypatch.setenv(WARM, "")  # stages start as they are
    found: Runs = []

    def noted(*given: Any) -> int:
        *_, courses, variables = given

        def bring(targets: Sequence[str]) -> int:
            found.append((list(targets), {VARIABLE: variables[VARIABLE]}))
            return 0

        return int(courses(variables, bring))

    monkeypatch.setattr(palimpsest.work.run, "first_course", lambda *_: None)  # all comes in one course
    monkeypatch.setattr(palimpsest.work.run, "_run_repro", noted)
    monkeypatch.setattr(palimpsest.work.run, "_run_flow", noted)
    monkeypatch.setattr(palimpsest.work.run, "show_report", lambda workspace: None)
    return found


def run(place: Place, *arguments: str, typed: str | None = None) -> Result:
    command = ["run", *arguments, "--workspace", str(place.workspace)]
    return CliRunner().invoke(app, command, input=typed, env={LEDGER_VARIABLE: str(place.ledger)})


def recorded(place: Place) -> list[dict[str, Any]]:
    path = place.workspace / RELEASES
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.parametrize("arguments", [[], ["release"], ["report", "release"], ["--ui"]])
def test_a_yes_is_handed_to_the_stages(place: Place, runs: Runs, arguments: list[str]) -> None:
    done = run(place, *arguments, typed="y\n")
    targets = [name for name in arguments if name != "--ui"]
    assert (done.exit_code, runs) == (0, [(targets, {VARIABLE: "yes"})])
    (line,) = recorded(place)
    assert (line["variants"], line["given"], line["reason"]) == (["dp3"], True, None)


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "maybe\n"])
def test_after_a_no_all_runs_but_the_release(place: Place, runs: Runs, typed: str) -> None:
    done = run(place, "--reason", "not today", typed=typed)
    ((targets, variables),) = runs
    assert (done.exit_code, variables) == (HELD_BACK, {VARIABLE: ""})
    assert set(targets) == set(stage_names(place.workspace)) - {"release"}
    assert "Nothing was released" in done.stdout
    assert [(line["given"], line["reason"]) for line in recorded(place)] == [(False, "not today")]


def test_after_a_no_to_the_release_alone_nothing_runs(place: Place, runs: Runs) -> None:
    assert run(place, "release", typed="n\n").exit_code == HELD_BACK
    assert runs == []
    assert run(place, "release", "report", typed="n\n").exit_code == HELD_BACK
    assert [targets for targets, _ in runs] == [["report"]]


def test_the_question_is_always_the_same(place: Place, runs: Runs) -> None:
    plain = run(place, typed="n\n").stdout.partition("[y/N]")[0]
    for verdict in ("refuted", "not refuted"):
        folder = place.workspace / "reports/metrics/dp3"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "membership.json").write_text(json.dumps({"verdict": verdict}))
        assert run(place, typed="n\n").stdout.partition("[y/N]")[0] == plain
    told = " ".join(plain.split())
    assert "dp3" in told
    assert "reports/internal.html" in told
    assert "by default the release does not depend on them" in told


def test_a_script_answers_by_an_option(place: Place, runs: Runs) -> None:
    done = run(place, "--yes", "--reason", "the audits were read")
    assert (done.exit_code, runs) == (0, [([], {VARIABLE: "yes"})])
    assert "[y/N]" not in done.stdout
    assert [(line["given"], line["reason"]) for line in recorded(place)] == [(True, "the audits were read")]


@pytest.mark.parametrize(
    ("variants", "targets", "changed"), [([], [], True), (["dp3"], ["report"], True), (["dp3"], ["release"], False)]
)
def test_who_releases_nothing_is_not_asked(
    place: Place, runs: Runs, monkeypatch: pytest.MonkeyPatch, variants: list[str], targets: list[str], changed: bool
) -> None:
    place.edit("release", variants=variants)
    if not changed:
        monkeypatch.setattr("palimpsest.work.run.find_stale", lambda workspace: find_stale(workspace) - {"release"})
    done = run(place, *targets, typed="y\n")
    assert (done.exit_code, runs, recorded(place)) == (0, [(targets, {VARIABLE: ""})], [])


@pytest.mark.parametrize(("targets", "started"), [([], []), (["report"], [["report"]]), (["no_stage"], [["no_stage"]])])
def test_where_nothing_is_stale_nothing_is_started_and_of_targets_dvc_tells(
    place: Place, runs: Runs, monkeypatch: pytest.MonkeyPatch, targets: list[str], started: list[list[str]]
) -> None:
    def cached(context: Context, *, fresh: bool) -> list[Standing]:
        assert fresh, "nothing that was kept for the eye decides what runs"
        return [replace(one, state=State.CACHED) for one in standings(context, fresh=fresh)]

    monkeypatch.setattr("palimpsest.work.run.standings", cached)
    monkeypatch.setattr("palimpsest.work.run.find_stale", lambda workspace: set())
    done = run(place, *targets)
    assert (done.exit_code, [own for own, _ in runs]) == (0, started)
    assert ("nothing was charged" in done.stdout) == (not started)


@pytest.mark.parametrize(("rows", "held"), [("data", True), ("other data", False)])
def test_what_was_charged_on_the_same_rows_waits_for_a_person(
    place: Place, monkeypatch: pytest.MonkeyPatch, rows: str, held: bool
) -> None:
    """Whatever settings or version it had."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    before = Run("dp_train", "dp3", "release", rows, "other settings")
    ledger.begin(ledger.reserve("notes", before, [PlannedQuery("train", GaussianDpEvent(50.0))]).charges[0])
    write_json(place.workspace / MANIFEST, {"fingerprint": "data"})
    context = open_workspace(place.workspace)
    found = {one.name: replace(one, state=State.CACHED) for one in standings(context) if one.name == "preprocess"}
    monkeypatch.setattr("palimpsest.work.plan.standings", lambda *_, **__: [*found.values()])
    monkeypatch.setattr(palimpsest.work.run, "find_stale", lambda workspace: set(stage_names(workspace)))
    refused = pytest.raises(ConsentNeeded, match="dp_train@dp3 would be charged again on these data")
    with refused if held else nullcontext(), hold_unattended(place.workspace, ["dp_train"]):
        assert not held
    assert [charge.state for charge in ledger.charges("notes")] == ["begun"]


def test_what_is_written_into_the_settings_beside_a_plan_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    path = place.workspace / "params.yaml"

    def edited(*_: Any) -> None:
        path.write_text(path.read_text() + "# a word of the owner's\n")

    before = path.read_text()
    palimpsest.work.run.plan_unattended(place.workspace, (), {"lms.dp3.epsilon": 2.5})
    assert path.read_text() == before
    monkeypatch.setattr("palimpsest.work.plan.summarise_plan", edited)
    palimpsest.work.run.plan_unattended(place.workspace, (), {"lms.dp3.epsilon": 2.5})
    assert path.read_text().endswith("# a word of the owner's\n")


@pytest.mark.parametrize("given", ["yes", ""])
def test_a_stage_finds_the_answer_and_not_what_the_shell_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    Repo.init(str(tmp_path), no_scm=True).close()
    (tmp_path / "dvc.yaml").write_text("stages: {release: {cmd: 'echo \"$PALIMPSEST_RELEASE\" > out', outs: [out]}}\n")
    monkeypatch.setenv(VARIABLE, "yes")
    assert _run_repro(None, tmp_path, [], lambda variables, bring: bring(["release"]), {VARIABLE: given}) == 0
    assert (tmp_path / "out").read_text().strip() == given


def test_a_schedule_asks_nobody_and_leaves_out_what_has_no_word(
    place: Place, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(palimpsest.work.run, "find_stale", lambda workspace: {"release"})
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    with hold_unattended(place.workspace, ()) as run:
        assert (run.targets, run.held_back) == ((), "")  # the shell exported the word
    monkeypatch.delenv(VARIABLE)
    with hold_unattended(place.workspace, ()) as run:
        assert set(run.targets) == set(stage_names(place.workspace)) - {"release"}
        assert "Nothing was released" in run.held_back
    with pytest.raises(DataError, match="Nothing was released"), hold_unattended(place.workspace, ["release"]):
        pytest.fail("it would run")
    assert recorded(place) == []
