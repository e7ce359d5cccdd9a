"""`palimpsest reproduce`: what it plans on a tiny data set, why cells do not run, and what comes of those that do."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from dp_accounting.dp_event import GaussianDpEvent
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.errors import ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.work import run
from palimpsest.workspace import SECONDS
from palimpsest_lab.commands import reproduce
from palimpsest_lab.commands.reproduction import Asked, add_cells, make, params_of, place_of
from palimpsest_lab.reproduce.cells import cells_of, select_cells
from palimpsest_lab.reproduce.grid import grid
from palimpsest_lab.reproduce.measures import Value, target
from palimpsest_lab.reproduce.measures import read as measured
from palimpsest_lab.reproduce.table import Epsilons, document, draw_table, page
from palimpsest_lab.reproduce.table import Result as Found
from tests.pipeline.place import warm
from tests.settings_file import edit_settings

Body = dict[str, Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small data sets in our own form, and public text beside them."""
    files = tmp_path / "published"
    files.mkdir()
    for name, labels in (("trec", ("human", "location", "number")), ("sst2", ("negative", "positive"))):
        for part, count in (("train", 120), ("test", 40)):
            rows = [
                {"text": f"{labels[n % len(labels)]} case {n}", "label": labels[n % len(labels)]} for n in range(count)
            ]
            (files / f"{name}_{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    public = "".join(f'{{"text": "a location and a positive number {n}"}}\n' for n in range(60))
    (files / "public_reviews.jsonl").write_text(public)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    return tmp_path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def asked(home: Path, **more: Any) -> Asked:
    return replace(Asked(home / "work", home / "published", records={"trec": 120, "sst2": 120}), **more)


def test_without_a_table_all_are_listed(home: Path) -> None:
    assert "accuracy in context behind 6 demonstrations" in call("004").stdout
    assert len(call().stdout.splitlines()) > 20
    assert "Name one of 000" in call("001").stderr


def test_a_plan_reads_no_row_and_writes_nothing(home: Path) -> None:
    options = ("--data", "published", "--records", "trec=120", "--cells", "trec", "--workspace", "work")
    done = call("004", "table1", "--plan", *options)
    assert done.exit_code == 0, done.output
    lines = {line.partition("  ")[0]: line for line in done.stdout.splitlines()}
    assert "will run" in lines["trec/sentdp5/davinci"]
    assert "published 54.9" in lines["trec/sentdp5/davinci"]
    assert "infeasible: LimitedDomain" in lines["trec/embed5/davinci"]
    assert "trec: all of this comes to epsilon" in done.stdout
    assert not (home / "work").exists()
    assert not (home / "ledger.db").exists()


def test_what_is_not_here_is_said_of_the_cell(home: Path) -> None:
    found = grid("003", "table6")
    lot = reproduce._lot(found, "dbpedia", cells_of(found), asked(home))  # noqa: SLF001
    assert set(lot.now.values()) == {"needs file: train.csv, test.csv"}
    found = grid("002", "figure5")
    lot = reproduce._lot(found, "yelp", cells_of(found), asked(home))  # noqa: SLF001
    assert lot.never["yelp/gpt1/fid"] == "needs API: gpt-3.5-turbo as the author"


@pytest.mark.parametrize(("picked", "why"), [((), "needs GPU: "), (("sst2/multitask3/accuracy",), "")])
def test_a_gpu_is_needed_for_a_named_model_unless_the_cell_is_named_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, picked: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr(reproduce, "resolve_device", lambda _: "cpu")
    cell = next(cell for cell in cells_of(grid("000", "table1")) if cell.name == "sst2/multitask3/accuracy")
    place = place_of(cell.grid, "sst2", asked(home))
    found = reproduce._reason_now(cell, place, asked(home, model=home, cells=picked))  # noqa: SLF001
    assert found.startswith(why)
    assert bool(found) == bool(why)
    assert reproduce._reason_now(cell, place, asked(home)) == ""  # noqa: SLF001


def made(home: Path, table: str, *patterns: str, **more: Any) -> Path:
    """The workspace for some cells of a table of paper 004, in which nothing has run."""
    found, wanted = grid("004", table), asked(home, **more)
    place = place_of(found, "trec", wanted)
    make(place, found, params_of(place, found, select_cells(cells_of(found), patterns), wanted))
    return place.workspace


def test_a_later_table_adds_to_the_workspace_and_changes_no_charge(home: Path) -> None:
    workspace = made(home, "table1", "trec/sentdp5")
    first = read(workspace)
    made(home, "table2", "trec/sentdp1", "trec/custext3")
    both = read(workspace)
    assert set(both.variants) == {"sentdp5", "sentdp1", "custext3"}
    assert both.variants["sentdp5"] == first.variants["sentdp5"]
    assert both.run.in_context == ("sentdp5", "custext3", "sentdp1")
    assert Ledger.open(f"sqlite:///{home / 'ledger.db'}").balance("trec").spent == 0


@pytest.mark.parametrize(("records", "read_of_them"), [(500, 50_000), (90_000, 90_000)])
def test_judges_learn_from_all_rows_as_in_the_paper(home: Path, records: int, read_of_them: int) -> None:
    workspace = made(home, "table1", "trec/sentdp5", records={"trec": records})
    assert read(workspace).utility.most_rows == read_of_them


def test_another_model_in_a_workspace_that_is_there_is_refused(home: Path) -> None:
    made(home, "table1", "trec/sentdp5")
    (home / "model").mkdir()
    with pytest.raises(ParamsError, match=r"models\.lm"):
        made(home, "table2", "trec/sentdp1", model=home / "model")


def test_what_spends_is_never_given_other_settings() -> None:
    there: Body = {"models": {"lm": "embedded"}, "variants": {"a": {"rows": 1}}, "runs": {}}
    with pytest.raises(ParamsError, match=r"variants\.a"):
        add_cells(there, {**there, "variants": {"a": {"rows": 2}}})
    assert add_cells(there, {**there, "variants": {"b": {}}})["variants"] == {"a": {"rows": 1}, "b": {}}


@pytest.mark.parametrize("section", ["authors", "decoders", "taught"])
def test_what_charged_rows_are_written_with_stays_as_it_is(section: str) -> None:
    there: Body = {"models": {"lm": "embedded"}, section: {"a": {"precision": "bf16"}}, "runs": {}}
    with pytest.raises(ParamsError, match=rf"{section}\.a"):
        add_cells(there, {**there, section: {"a": {"precision": "float32"}}})


def test_a_workspace_keeps_the_cap_that_it_has() -> None:
    budget = {"delta": 1e-5, "filter": "gdp"}
    there: Body = {"models": {"lm": "embedded"}, "privacy": {"budget": {**budget, "epsilon": 200.0}}, "runs": {}}
    assert add_cells(there, {**there, "privacy": {"budget": {**budget, "epsilon": 100.0}}}) == there
    with pytest.raises(ParamsError, match="privacy"):
        add_cells(there, {**there, "privacy": {"budget": {"epsilon": 200.0, "delta": 1e-6, "filter": "gdp"}}})


def test_what_a_data_set_was_charged_before_is_in_its_total(home: Path) -> None:
    """Whoever asked, and by whatever table: the budget is the data set's."""
    found = grid("004", "table1")

    def total(*parts: str) -> float:
        lot = reproduce._lot(found, "trec", select_cells(cells_of(found), ("trec/sentdp5",)), asked(home))  # noqa: SLF001
        (one,) = reproduce.totals([replace(lot, place=replace(lot.place, name=name)) for name in parts or ("trec",)])
        return one.epsilon

    alone = total()
    assert total("one part", "another") > alone + 1.0  # of one data set, so of one budget
    made(home, "table1", "trec/sentdp5")
    run = Run("fit@other", "other", "release", "data", "plan")
    Ledger.open(f"sqlite:///{home / 'ledger.db'}").reserve("trec", run, [PlannedQuery("walk", GaussianDpEvent(1.0))])
    assert total() > alone + 1.0


@pytest.mark.parametrize("patterns", [("trec/custext5",), ("agnews/custext5",)])
def test_what_was_finished_stays_in_the_table_whatever_is_asked_for_next(
    home: Path, monkeypatch: pytest.MonkeyPatch, patterns: tuple[str, ...]
) -> None:
    """Nor does a cell lose its value because what it was made with is not named again, or another number of records."""
    monkeypatch.setattr(reproduce, "_run", lambda lots, yes: ({}, 0))
    done = {"trec": frozenset({"incontext_eval@sentdp5"})}
    monkeypatch.setattr(reproduce, "_finished_stages", lambda workspace: done.get(workspace.name, frozenset()))
    monkeypatch.setattr(reproduce, "_reason_now", lambda cell, place, asked: "needs file: anything")
    monkeypatch.setattr(reproduce, "read", lambda cell, workspace, models: Value(0.5))
    made(home, "table1", "trec/sentdp5")
    other = asked(home, cells=patterns, records={"trec": 120 if patterns[0].startswith("trec") else 900})
    assert reproduce.reproduce("004", "table1", other, plan=False, yes=True) == 0
    cells = read_json(home / "work" / "reports" / "004-table1.json")["cells"]
    kept = {cell["cell"]: cell["ours"] for cell in cells if cell["ours"] is not None}
    assert kept
    assert all(name.startswith("trec/sentdp5") for name in kept)


def test_what_is_not_built_is_finished_by_no_stage_that_it_would_share(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = grid("004", "table4")
    monkeypatch.setattr(
        reproduce, "_finished_stages", lambda workspace: frozenset(map(str, range(3))) | {"fidelity_audit@embed3"}
    )
    lot = reproduce._lot(found, "agnews", select_cells(cells_of(found), ("agnews",)), asked(home))  # noqa: SLF001
    cells = [cell for cell in lot.cells if cell.missing]
    assert cells
    for cell in cells:
        assert reproduce._state(lot, cell).startswith("missing: ")  # noqa: SLF001
        done = frozenset({target(cell, lot.models)})
        assert reproduce._read_measured(lot, cell, done, {}) == (None, lot.never[cell.name])  # noqa: SLF001


def test_what_is_declined_leaves_nothing_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "_may_charge", lambda lots, yes: False)
    assert reproduce.reproduce("004", "table1", asked(home, cells=("trec/sentdp5",)), plan=False, yes=False) == 1
    assert not (home / "work").exists()
    assert not (home / "ledger.db").exists()


def test_a_judge_is_a_classifier_or_answers_in_context_as_the_table_asks(home: Path) -> None:
    (home / "judge").mkdir()
    body = read(made(home, "table1", "trec/sentdp5", judge=home / "judge"))
    assert body.models.judge is not None
    assert body.models.judge.model == str(home / "judge")
    assert body.models.classifier is None


SHOTS = {"shots": 6, "lacks": None, "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}}


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, Value(0.5, 0.4, 0.6)),
        ({"judges": False}, Value(0.5, 0.4, 0.6, "the judge fails its control: real demonstrations do not help it")),
        ({"accuracy": None, "lacks": "context"}, Value(None, note="the judge's context holds no 6 demonstrations")),
        ({"accuracy": None, "lacks": "demonstrations"}, Value(None, note="there are fewer than 6 demonstrations")),
    ],
)
def test_what_a_judge_could_not_answer_is_no_number(tmp_path: Path, changes: Mapping[str, Any], value: Value) -> None:
    cell = next(cell for cell in cells_of(grid("004", "table2")) if cell.name == "trec/sentdp5/shots6")
    path = tmp_path / "reports" / "metrics" / "sentdp5" / "incontext.json"
    assert measured(cell, tmp_path, {}) is None
    judges = {"judges": changes.get("judges")}
    shots = [{key: value for key, value in {**SHOTS, **changes}.items() if key != "judges"}]
    write_json(path, judges | {"zero_shot": {"shots": 0, "lacks": None, "accuracy": None}, "shots": shots})
    assert measured(cell, tmp_path, {}) == value


def test_the_table_sets_ours_beside_what_was_published(tmp_path: Path) -> None:
    found = grid("004", "table2")
    cell = next(cell for cell in cells_of(found) if cell.name == "trec/sentdp5/shots6")
    results = [
        Found(cell, Epsilons(5.0, 5.0, 4.99, 4.99), Value(0.5, 0.4, 0.6), ""),
        Found(cell, Epsilons(5.0, 5.0, None, 5.0), None, "needs GPU: a | b"),
    ]
    lines = page(found, results, ["trec: written by gpt2"]).splitlines()
    assert "Ours, trec: written by gpt2." in lines
    assert lines[-2] == "| trec | SentDP | 5 | 5 | 4.99 | 4.99 | 6 shots | 54.9 | 50 (40 to 60) |  |"
    assert lines[-1] == "| trec | SentDP | 5 | 5 | – | 5 | 6 shots | 54.9 | – | needs GPU: a / b |"
    first, second = document(found, results, [])["cells"]
    assert first["ours"] == {"value": 50.0, "low": 40.0, "high": 60.0}
    assert (second["ours"], second["why"]) == (None, "needs GPU: a | b")
    assert draw_table(found, results).startswith("<svg")
    assert draw_table(found, [replace(results[1], cell=replace(cell, published=None))]) == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("pipeline")
def test_a_cell_runs_and_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The private rows of SST-2 under a classifier; beside it a cell that is refused, which stops nothing."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # which the process that has the libraries does not know
    monkeypatch.setattr(run, "serve_stages", lambda _: nullcontext(warm()))
    options = ("--data", "published", "--records", "sst2=120", "--cells", "sst2/real,sst2/multitask256", "--yes")
    done = call("000", "table1", *options)
    assert done.exit_code == 0, done.output
    path = home / "reproduction-000" / "reports" / "000-table1.json"
    real, refused = read_json(path)["cells"]
    assert 0.0 <= real["ours"]["low"] <= real["ours"]["value"] <= real["ours"]["high"] <= 1.0
    assert refused["why"].startswith("refused: epsilon 256")
    assert path.stat().st_mode & 0o077 == 0
    assert "finished" in call("000", "table1", "--plan", *options[:-1]).stdout
    edit_settings(home / "reproduction-000" / "sst2", "utility", seeds=4)
    assert "will run" in call("000", "table1", "--plan", *options[:-1]).stdout


def test_hours_are_those_of_the_rows_and_of_the_model_below_them(tmp_path: Path) -> None:
    """Not those of audits; and none where the rows came from a cache."""
    cell = next(cell for cell in cells_of(grid("002", "figure3")) if cell.row == "finetuned")
    nothing = measured(cell, tmp_path, {"finetuned1": "finetuned1"})
    assert nothing is not None
    assert nothing.value is None
    assert "ran elsewhere" in nothing.note
    for stage, seconds in (("dp_train@finetuned1", 5400), ("pplm_generate@finetuned1", 1800), ("mia@finetuned1", 99)):
        write_json(tmp_path / SECONDS / f"{stage}.json", {"seconds": seconds, "cores": 2, "sizes": {}})
    found = measured(cell, tmp_path, {"finetuned1": "finetuned1"})
    assert found is not None
    assert (found.value, found.note) == (2.0, "on 2 cores, of the last attempts alone")
