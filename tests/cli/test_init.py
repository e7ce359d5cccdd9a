"""`palimpsest init` writes what it was told, nothing where it fails, and never over what is there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_place import Place, call, init, write_files
from dp_accounting import GaussianDpEvent
from dvc.repo import Repo
from ruamel.yaml import YAML

import palimpsest
from palimpsest.errors import DataError, ModelError, ParamsError
from palimpsest.params.load import LEDGER_VARIABLE, load, loads
from palimpsest.params.schema import Params
from palimpsest.params.text import scalar
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.schema import default_delta
from palimpsest.work.begin import read_label, read_labels, read_schema, render_settings
from palimpsest.work.check import check_source
from palimpsest.work.context import asset_of, environment
from palimpsest.work.decisions import DataSource
from palimpsest_lab.twins.attacks import save_base
from stages import inputs, preprocess
from stages.spenders import Prices, spenders


def source(**changes: object) -> DataSource:
    values = {
        "data": Path("/data/own.csv"), "text": "body", "public": Path("/data/public.csv"), "n_public": 600,
        "asset": "notes", "label": "team", "labels": {"a": "A", "b": "B"}, "test": None, "public_test": None,
        "public_labels": False, "unit": None, "max_rows": 1, "persons": None, "max_length": 1000, "epsilon": 3.0,
        "budget": 10.0, "delta": None, "lm": "embedded", "wanted": "dp_lm",
    }  # fmt: skip
    return DataSource(**(values | changes))  # type: ignore[arg-type]


def settings(**changes: object) -> Params:
    return loads(render_settings(source(**changes))["params.yaml"])


def test_a_workspace_is_made_and_registered(place: Place) -> None:
    params = load(place.workspace)
    assert dict(params.dataset.labels) == {"a": "The first", "b": "The second"}
    assert params.run.evaluate == ("dp3",)
    assert Ledger.open(f"sqlite:///{place.ledger}").asset("notes").epsilon == 9
    assert (place.workspace / ".dvc" / "config").is_file()
    assert "/data/" in (place.workspace / ".gitignore").read_text().splitlines()


def test_labels_that_look_like_something_else_stay_text() -> None:
    odd = {
        "yes": "no", "null": "~", "1": "2.0", "ünïcödé 🦉": "日本", "it's": 'a "quoted" one', "a: b": "# no comment",
        "- x": "*alias", "tab\there": "line\nbreak", "<<": "&x", "\x7f\u2028": "back\\slash", "true": "0x1f",
    }  # fmt: skip
    assert dict(settings(labels=odd).dataset.labels) == odd


@pytest.mark.parametrize("name", ["yes", "null", "1", 'co"l', "naïve", "a: b", " x "])
def test_columns_that_look_like_something_else_stay_text(name: str) -> None:
    data = settings(text=name, label="the label", unit=f"{name}2", persons=100).dataset
    assert (data.text, data.unit.column) == (name, f"{name}2")


def test_an_asset_that_looks_like_something_else_stays_text() -> None:
    assert settings(asset="null").dataset.asset == "null"


@pytest.mark.parametrize("value", ["", "\x85", "\ufeff", "é", "\\", "\U0001f989", 1e-07, None, True])
def test_a_scalar_reads_back(value: object) -> None:
    assert YAML(typ="safe", pure=True).load(f"key: {scalar(value)}\n")["key"] == value


@pytest.mark.parametrize(("epsilon", "name"), [(3.0, "dp3"), (0.5, "dp0_5"), (1e-7, "dp1e_07"), (1e20, "dp1e_20")])
def test_the_first_variant_is_named_by_its_epsilon(epsilon: float, name: str) -> None:
    params = settings(epsilon=epsilon)
    assert params.run.dp_train == (name,)
    assert params.run.dp_lm == {name: name}
    assert params.lms[name].epsilon == epsilon


@pytest.mark.parametrize(("rows", "rank"), [(100, 0), (101, 16)])
def test_a_large_named_model_trains_adapters(tmp_path: Path, rows: int, rank: int) -> None:
    """The embedded one does not, and no workspace that is there changes: the rank is written down."""
    size = 2 * rows * 1_000_000  # of zeros that take no room on the disk
    head = json.dumps({"table": {"dtype": "BF16", "shape": [rows, 1_000_000], "data_offsets": [0, size]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    os.truncate(tmp_path / "model.safetensors", 8 + len(head) + size)
    assert settings(lm=str(tmp_path)).lms["dp3"].train.lora_rank == rank
    published = settings(lm=str(tmp_path), preset="paper-000", wanted=None)
    assert {model.train.lora_rank for model in published.lms.values()} == {0}
    assert ("lora_rank" in render_settings(source(lm=str(tmp_path), wanted=None))["params.yaml"]) == (rank > 0)


def test_a_fault_of_a_model_is_told_before_anything_is_written_and_by_a_run_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_files(tmp_path / "home")
    save_base(("lamp", "hums"), 0.5, 1, home / "model")
    short = init(home, home / "work", lm=home / "model")
    assert "has 24 positions, too few for a prompt and a text of 64 tokens" in short.stderr
    (home / "model" / "tokenizer.json").unlink()
    done = init(home, home / "work", lm=home / "model")
    assert done.exit_code == 1
    assert f"The model in '{home / 'model'}' has no tokenizer.\n  what to do: Save" in done.stderr
    assert sorted(path.name for path in home.iterdir()) == ["model", "own.csv", "public.csv"]
    assert init(home, home / "work", "--no-check", lm=home / "model").exit_code == 0
    monkeypatch.chdir(home / "work")
    with pytest.raises(ModelError) as caught:
        inputs.run()
    assert caught.value.lines == done.stderr.strip()


def test_a_model_that_does_not_run_is_not_looked_at(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    (home / "model").mkdir()
    assert init(home, home / "work", lm=home / "model", method="select").exit_code == 0


def test_the_licence_of_the_public_file_is_a_decision(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    assert init(home, home / "work", public_license="CC-BY-4.0").exit_code == 0
    assert load(home / "work").dataset.public_license == "CC-BY-4.0"
    assert settings().dataset.public_license is None


def test_the_folder_of_a_model_counts_from_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_files(tmp_path / "home")
    save_base(("lamp", "hums"), 0.5, 1, home / "model")
    monkeypatch.chdir(home)
    done = init(home, Path("work"), "--no-check", lm="model")
    assert done.exit_code == 0, done.output
    assert load(home / "work").models.lm == str(home / "model")


@pytest.mark.parametrize("n_public", [20, 21, 100, 191, 192, 12_288, 10**9])
def test_sizes_fit_any_number_of_records(n_public: int) -> None:
    params = settings(n_public=n_public)
    batch = params.lms["dp3"].train.batch
    assert min(16, n_public) <= batch <= min(1024, n_public)
    assert 20 <= params.audit.size <= n_public


@pytest.mark.parametrize("persons", [20, 100, 191, 600])
@pytest.mark.parametrize("preset", ["modern", "paper-000"])
def test_with_a_unit_every_size_and_delta_follow_from_persons(persons: int, preset: str) -> None:
    asked = {"preset": preset, "wanted": None if preset != "modern" else "dp_lm"}
    bounded, alike = (
        settings(**asked, n_public=600, unit="who", max_rows=3, persons=persons),
        settings(**asked, n_public=persons),
    )
    unit = bounded.dataset.unit
    assert (unit.column, unit.max_rows, unit.persons, unit.missing) == ("who", 3, persons, "drop")
    assert bounded.delta == alike.delta == (default_delta(persons) if preset == "modern" else 1 / persons)
    assert bounded.schema_of_data.n_units == persons
    assert bounded.fitted == alike.fitted
    assert {model.train.batch <= persons for model in bounded.fitted.values()} == {True}
    assert bounded.audit.size == alike.audit.size <= persons


def test_descriptions_are_optional_and_may_come_from_a_file(tmp_path: Path) -> None:
    assert read_labels("a = The first one, b, c=x=y", None) == {"a": "The first one", "b": "b", "c": "x=y"}
    assert read_labels(None, None) == {}
    path = tmp_path / "labels.yaml"
    path.write_text("1: One, with a comma\nyes: Agreed\nnull: ''\n", encoding="utf-8")
    assert read_labels(None, path) == {"1": "One, with a comma", "yes": "Agreed", "null": "null"}


def test_lists_of_several_columns_are_combined_in_the_order_of_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "labels.yaml"
    path.write_text("stars: {1: bad, 2: ''}\nkind: {bar: a bar}\n", encoding="utf-8")
    assert read_label(" kind ") == " kind ", "a file may name its column so"
    column = read_label("kind, stars")
    assert column == "kind; stars"
    assert read_labels(None, path, column) == {"bar; 1": "a bar; bad", "bar; 2": "a bar; 2"}
    with pytest.raises(ParamsError, match="no mapping of labels"):
        read_labels(None, path, "kind; mood")


def test_a_column_that_is_missing_among_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text("team: {a: ''}\nmood: {x: '', y: ''}\n")
    write_files(tmp_path)
    done = init(tmp_path, tmp_path / "work", label="team,mood", labels=None, labels_file=tmp_path / "labels.yaml")
    assert done.exit_code == 1
    assert "--label is 'mood'" in done.output


@pytest.mark.parametrize("listed", ["a,a", "a,=x", "a=1, a=2"])
def test_a_label_is_named_once(listed: str) -> None:
    with pytest.raises(ParamsError, match="--labels is"):
        read_labels(listed, None)


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: {b: c}\n", "a: [\n", None])
def test_a_labels_file_is_a_mapping_of_texts(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "labels.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ParamsError, match="--labels-file"):
        read_labels(None, path)
    with pytest.raises(ParamsError, match="both"):
        read_labels("a,b", path)


def test_files_of_json_are_read_as_json_and_hold_whole_signs(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    labels = {"a": "sad \N{CRYING FACE} tickets", "b": "happy"}
    path.write_text(json.dumps(labels), encoding="utf-8-sig")
    assert read_labels(None, path) == labels
    path.write_text('{"1": 2}')
    assert read_labels(None, path) == {"1": "2"}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "\N{CRYING FACE}", "maxLength": 9}},
    }
    path.write_text(json.dumps(schema))
    assert read_schema(path) == schema
    for odd in ("\\ud83d", "\\u0000"):
        path.write_text(json.dumps(labels).replace("happy", odd))
        with pytest.raises(ParamsError, match="--labels-file holds a NUL character or half of a sign"):
            read_labels(None, path)


def test_a_person_column_that_names_nobody_is_refused_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    (tmp_path / "own.csv").write_text("body,team,who\nsome text,a, \nmore,b,\n", encoding="utf-8")
    said = "No row of 'own.csv' names a person in column 'who'."
    done = init(tmp_path, tmp_path / "work", unit="who", persons=600)
    assert (done.exit_code, said in done.output) == (1, True)
    assert not (tmp_path / "work" / "params.yaml").exists()
    assert init(tmp_path, tmp_path / "work", "--no-check", unit="who", persons=600).exit_code == 0
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(DataError, match=said):
        preprocess.run()


def test_paths_with_spaces_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_files(tmp_path / "my files: é #1")
    monkeypatch.chdir(home)
    data = loads(
        render_settings(source(data=Path("own.csv"), public=Path("../my files: é #1/public.csv")))["params.yaml"]
    ).dataset
    assert (data.private, data.public) == (str(home / "own.csv"), str(home / "public.csv"))


FAILING = {
    "no such column": ({"text": "words"}, "words"),
    "no such file": ({"public": "absent.csv"}, "absent.csv"),
    "labels without label": ({"label": None}, "--label and --labels"),
    "one label": ({"labels": "a"}, "at least two"),
    "no epsilon": ({"epsilon": 0}, "--epsilon is 0; allowed is at least 0.05"),
    "no number": ({"epsilon": "nan"}, "--epsilon is nan"),
    "epsilon of no meaning": ({"epsilon": 1000}, "--epsilon is 1000; allowed is at most 20"),
    "budget below epsilon": ({"budget": 2}, "--budget is 2; the first variant, at --epsilon 3, takes"),
    "budget that a release passes": ({"budget": 3.01, "method": "select"}, "takes 3.02 of it"),
    "endless budget": ({"budget": "inf"}, "--budget is inf"),
    "nothing kept": ({"max_length": 0}, "--max-length is 0"),
    "one column for both": ({"text": "team"}, "--text and --label are both 'team'"),
    "a text for a person": ({"unit": "body", "persons": 100}, "--unit and --text are both 'body'"),
    "what is bad": ({"bad_rows": "skip"}, "--bad-rows is 'skip'"),
    "too few": ({"n_public": 19}, "--rows-about is 19"),
    "delta above 1/n": ({"delta": 0.1}, "--delta is 0.1; allowed is 1e-12 to 1 / n for 600 records"),
    "no budget": ({"budget": -1}, "--budget is -1"),
    "infinite epsilon": ({"epsilon": "inf"}, "--epsilon"),
    "asset": ({"asset": "My Notes"}, "--asset"),
    "unit without persons": ({"unit": "team"}, "--unit and --persons come together"),
    "persons without unit": ({"persons": 100}, "--unit and --persons come together"),
    "cap without unit": ({"max_rows": 3}, "--max-rows is given without --unit"),
    "no row of a person": ({"unit": "team", "persons": 100, "max_rows": 0}, "--max-rows is 0"),
    "too few persons": ({"unit": "team", "persons": 19}, "--persons is 19"),
    "more persons than records": ({"unit": "team", "persons": 601}, "--persons is 601"),
    "unnamed unit": ({"unit": "", "persons": 100}, "--unit is empty"),
    "no such unit": ({"unit": "who", "persons": 100}, "'who'"),
    "delta above 1/persons": ({"unit": "team", "persons": 100, "delta": 0.011}, "100 persons"),
}


@pytest.mark.parametrize(("options", "word"), FAILING.values(), ids=FAILING.keys())
def test_what_fails_early_leaves_nothing_behind(tmp_path: Path, options: dict[str, object], word: str) -> None:
    home = write_files(tmp_path / "home")
    before = sorted(home.rglob("*"))
    done = init(home, home / "work", **options)
    assert done.exit_code == 1
    assert word in done.stderr
    assert "what to do" in done.stderr
    assert sorted(home.rglob("*")) == before


def test_what_is_registered_is_said_with_its_unit(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work", unit="team", persons=100, max_rows=2)
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert "for adding or removing one person of about 100, each a value of column 'team' with all its rows" in words
    known = Ledger.open(f"sqlite:///{home / 'ledger.db'}").asset("notes")
    assert (known.unit, known.unit_column, known.n_public) == ("person", "team", 100)


def test_a_ledger_inside_the_workspace_is_refused(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home)
    assert done.exit_code == 1
    assert "inside the workspace" in done.stderr
    assert {path.name for path in home.iterdir()} == {"own.csv", "public.csv"}


def test_a_field_without_a_column_is_named_and_one_that_is_read_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work", fields="age:number(0..9, 1)")
    assert (done.exit_code, "--fields is 'age': 'own.csv' has no such column" in done.output) == (1, True)
    (home / "own.csv").write_text("body,team,tone\nsome text,a,ZANZIBAR\n")
    monkeypatch.setattr("palimpsest.work.check.owners_terminal", lambda: True)
    monkeypatch.setattr("palimpsest.work.console.owners_terminal", lambda: True)
    done = init(home, home / "work", fields="tone:read(angry|calm)")
    assert done.exit_code == 0, done.output
    assert "nothing reads: 'tone'." in done.stderr, "its owner might take the column for the field"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("header", "named"),
    [("id,body,team,who wrote", "nothing reads: 'id', 'who wrote'."), ("7,body,team,who", "nothing reads. (")],
)
def test_columns_that_nothing_reads_are_named_once_on_the_owners_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, named: str, terminal: bool
) -> None:
    """Not where one looks like a value: the header may be a row."""
    home = write_files(tmp_path / "home")
    (home / "own.csv").write_text(f"{header}\n1,some text,a,me\n")
    for module in ("console", "check"):
        monkeypatch.setattr(f"palimpsest.work.{module}.owners_terminal", lambda: terminal)
    done = init(home, home / "work")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("nothing reads") == terminal
    assert (named in done.stderr) == terminal
    assert "nothing reads" not in done.stdout
    assert "who" not in done.stdout
    files = [path for path in (home / "work").rglob("*") if path.is_file()]
    assert not [path for path in files if b"who wrote" in path.read_bytes()]


def reserve(home: Path) -> None:
    """Let a run of the data set reserve one query."""
    run, asked = Run("fit", "a", "release", "rows", "plan"), PlannedQuery("votes", GaussianDpEvent(20.0))
    Ledger.open(f"sqlite:///{home / 'ledger.db'}").reserve("notes", run, [asked])


def test_what_was_declared_wrongly_is_corrected_while_nothing_was_charged(place: Place) -> None:
    done = init(place.home, place.workspace, "--force", n_public=700)
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert "notes: nothing was charged under its earlier terms, which are corrected: delta " in words
    assert "n_public 700, not 600" in words
    assert place.call("plan").exit_code == 0


def test_other_terms_than_the_ledgers_are_refused_before_anything_is_written(place: Place) -> None:
    reserve(place.home)
    done = init(place.home, place.home / "second", n_public=700)
    assert done.exit_code == 1
    assert "other terms" in done.stderr
    assert not (place.home / "second").exists()


@pytest.mark.parametrize("kept", ["params.yaml", "dvc.yaml"])
def test_settings_are_only_overwritten_by_force(place: Place, kept: str) -> None:
    other = place.home / "other"
    other.mkdir()
    (other / kept).write_text("mine", encoding="utf-8")
    done = init(place.home, other)
    assert (done.exit_code, f"{kept} exists" in done.stderr) == (1, True)
    assert [(path.name, path.read_text()) for path in other.iterdir()] == [(kept, "mine")]


def test_force_overwrites_settings_and_keeps_ignore_files(place: Place) -> None:
    place.edit("audit", size=21)
    ignored = place.workspace / ".gitignore"
    ignored.write_text("mine\n" + ignored.read_text())
    before = ignored.read_text()
    options = [
        "--text", "body", "--label", "team", "--labels", "a=The first, b=The second",
        "--public", place.home / "public.csv",
        "--rows-about", 600, "--asset", "notes", "--budget", 9, "--method", "dp_lm", "--force",
    ]  # fmt: skip
    done = place.call("init", place.home / "own.csv", *options)
    assert done.exit_code == 0, done.output
    assert load(place.workspace).audit.size == 120
    assert ignored.read_text() == before


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def create(home: Path, *, force: bool = False) -> None:
    """The same from Python."""
    decisions = {"text": "body", "label": "team", "labels": ["a", "b"], "n_public": 600, "asset": "notes"}
    palimpsest.create(home, home / "own.csv", home / "public.csv", force=force, **decisions)


@pytest.mark.parametrize("settings_there", [False, True])
def test_a_dvc_project_of_somebodys_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings_there: bool
) -> None:
    home = write_files(tmp_path / "home")
    Repo.init(str(home), no_scm=True).close()
    (home / ".gitignore").write_text("*.pyc\n")
    if settings_there:
        (home / "params.yaml").write_text("train: {epochs: 3}\n")
    before, ledger = files_in(home), tmp_path / "ledger.db"
    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger))
    asked = ["--text", "body", "--label", "team", "--labels", "a,b", "--rows-about", 600, "--asset", "notes"]
    asked += ["--public", home / "public.csv"]
    commands = [["init", home / "own.csv", *asked, "--workspace", home]]
    commands += [[*commands[0], "--force"]]
    if not settings_there:  # else another error comes first: that is no workspace of theirs
        commands += [["synth", home / "own.csv", *asked, "--dir", home], ["demo", "--dir", home]]
    for command in commands:
        done = call(*command, ledger=ledger)
        assert (done.exit_code, "--workspace work" in done.stderr) == (1, True), done.output
    for force in (False, True):
        with pytest.raises(ParamsError, match="A DVC project is in this folder"):
            create(home, force=force)
    assert files_in(home) == before
    assert not ledger.exists()


@pytest.mark.parametrize("command", ["synth", "demo"])
def test_a_project_with_settings_of_its_own_is_left_as_it_is_too(tmp_path: Path, command: str) -> None:
    home = write_files(tmp_path / "home")
    Repo.init(str(home), no_scm=True).close()
    (home / "params.yaml").write_text("train: {epochs: 3}\n")
    before = files_in(home)
    asked = ["--text", "body", "--rows-about", 600, "--public", home / "public.csv", "--asset", "notes"]
    words = [home / "own.csv", *asked] if command == "synth" else []
    done = call(command, *words, "--dir", home, ledger=tmp_path / "ledger.db")
    assert done.exit_code == 1, done.output
    assert files_in(home) == before


@pytest.mark.parametrize("inside", [False, True])
def test_git_never_holds_what_tells_of_private_files(tmp_path: Path, inside: bool) -> None:
    """With DVC and git themselves; `dvc repro` is refused where DVC knows that git ignores dvc.lock.

    The repository is the workspace's own, or a DVC project's in which the workspace lies, and of which nothing changes.
    """
    home, work = write_files(tmp_path / "home"), tmp_path / "home" / "work"
    work.mkdir()
    project = home if inside else work

    def ran(*command: str, folder: Path = work) -> str:
        identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        program = [sys.executable, "-m", "dvc"] if command[0] == "dvc" else ["git"]
        own = environment() | identity
        done = subprocess.run([*program, *command[1:]], cwd=folder, env=own, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ran("git", "init", "-q", folder=project)
    if inside:
        ran("dvc", "init", "-q", folder=project)
        ran("git", "commit", "-q", "-m", "theirs", folder=project)
    before = ran("git", "status", "--porcelain", folder=home).splitlines() if inside else []
    done = init(home, work)
    if inside:
        now = ran("git", "status", "--porcelain", folder=home).splitlines()
        assert {line for line in set(now) ^ set(before) if "ledger" not in line} == {"?? work/"}
    assert "dvc.lock is left out by .gitignore" in done.stdout
    step = {"cmd": "mkdir -p data && cp ../own.csv data/own.csv", "deps": ["../own.csv"], "outs": ["data/own.csv"]}
    (work / "dvc.yaml").write_text(json.dumps({"stages": {"step": step}}))
    assert "Running stage" in ran("dvc", "repro")
    assert "up to date" in ran("dvc", "repro")
    ran("git", "add", "-A")
    held = ran("git", "ls-files").split()
    assert {"params.yaml", "dvc.yaml", ".gitignore", ".dvc/config"} <= set(held)
    assert not [name for name in held if name.startswith(("data/", ".dvc/cache", ".dvc/tmp", "dvc.lock"))]
    ignored = work / ".gitignore"
    ignored.write_text(ignored.read_text().replace("/dvc.lock\n", ""))  # as in a private repository
    ran("dvc", "config", "core.no_scm", "false")
    assert "up to date" in ran("dvc", "repro")
    ran("git", "add", "-A")
    assert "dvc.lock" in ran("git", "ls-files").split()
    ran("git", "commit", "-q", "-m", "all")
    ran("dvc", "metrics", "diff", "HEAD")


@pytest.mark.parametrize("python", [None, "echo No module named stages >&2; exit 1"], ids=["none", "another"])
def test_dvc_without_the_environment_says_to_activate_it(python: str | None, tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    assert init(home, home / "work", method="select").exit_code == 0
    if python is not None:
        (home / "python").write_text(f"#!/bin/sh\n{python}\n")
        (home / "python").chmod(0o700)
    own = environment() | {"PATH": str(home), "SHELL": "/bin/sh"}
    command = [sys.executable, "-m", "dvc", "repro", "preprocess"]
    done = subprocess.run(command, cwd=home / "work", env=own, capture_output=True, text=True)
    assert done.returncode != 0
    assert "failed to run: python -P -m stages.inputs # not found? Activate the environment that has" in done.stderr


def test_no_row_is_quoted(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    (home / "own.csv").write_text('body,team\n"unclosed secret,a\n', encoding="utf-8")
    done = init(home, home / "work")
    assert "secret" not in json.dumps([done.stdout, done.stderr, str(done.exception)])


@pytest.mark.parametrize("preset", ["modern", "paper-000"])
def test_text_without_labels_is_drawn_from_the_prompt_alone(preset: str) -> None:
    params = settings(preset=preset, label=None, labels={}, wanted=None)
    (row,), (model,) = params.variants.values(), params.lms.values()
    assert (row.variant, model.train.discriminator_weight) == ("plain", 0)
    assert params.run.embedding_audit == ()


ODD_SCHEMA = {
    "type": "object",
    "description": "line\nbreak \x85 \u2028 ${item} {{ x }} # ~",
    "properties": {"yes": {"enum": [None, True, 1e-07, "null", "*a", "1"]}, "ünï: x": {"pattern": "^\\w+$"}, "*": {}},
    "required": ["yes"],
}


def stages(**changes: object) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(render_settings(source(**changes))["dvc.yaml"])["stages"]


@pytest.mark.parametrize(("preset", "row"), [("modern", "dp3"), ("paper-000", "plain3")])
def test_records_of_json_keep_their_schema(preset: str, row: str) -> None:
    task = {"chosen": "json", "json_schema": ODD_SCHEMA, "text": "*", "label": None, "labels": {}, "wanted": None}
    params = settings(preset=preset, **task)
    assert params.dataset.json_schema == ODD_SCHEMA
    assert params.schema_of_data.keys == ("yes", "ünï: x", "*")
    assert (params.dataset.task, params.dataset.text, params.run.evaluate) == ("json", "*", (row,))
    assert params.variants[row].variant == "plain"
    assert stages(**task)["structure_audit"]["matrix"] == {"variant": "${run.evaluate}"}


def test_span_names_a_column_and_no_model_that_would_lose_it() -> None:
    params = settings(chosen="span", labels={}, wanted=None)
    data = params.dataset
    assert (data.task, data.label, dict(data.labels), data.json_schema) == ("span", "team", {}, None)
    assert (params.run.dp_train, params.run.dp_lm, params.run.evaluate) == ((), {}, ("predict3",))


TEXT = {"label": None, "labels": {}}
JSON = {"chosen": "json", "json_schema": ODD_SCHEMA, **TEXT}
FIRST = {  # method -> what runs for its first variant, besides that it is evaluated
    "predict": {"teach_similar": ("similar",), "private_predict": {"predict3": "taught/similar"}},
    "evolve": {"private_evolve": {"evolve3": "base"}},
    "embed": {"decoder_pretrain": ("small",), "eda_evolve": {"embed3": "small"}},
}


@pytest.mark.parametrize(
    ("wanted", "task"), [*((wanted, task) for wanted in FIRST for task in ({}, TEXT)), ("evolve", JSON)]
)
def test_the_first_variant_is_of_the_method_that_is_wanted(wanted: str, task: dict[str, Any]) -> None:
    params = settings(wanted=wanted, **task)
    assert (params.run.dp_train, params.run.dp_lm, params.run.evaluate) == ((), {}, (f"{wanted}3",))
    assert {key: getattr(params.run, key) for key in FIRST[wanted]} == FIRST[wanted]
    row = params.variants[f"{wanted}3"]
    assert row.method == wanted
    assert wanted == "predict" or (row.settings.class_means is None) == bool(task)


@pytest.mark.parametrize("wanted", [*FIRST, "select"])
def test_the_first_variant_has_as_many_rows_as_are_wanted(wanted: str) -> None:
    assert settings(wanted=wanted, rows=321).variants[f"{wanted}3"].settings.rows == 321


@pytest.mark.parametrize("wanted", ["select", None])
def test_the_first_variant_is_selected_where_there_are_labels(wanted: str | None) -> None:
    params = settings(wanted=wanted)
    assert (params.run.select, params.run.evaluate, params.run.teach_similar) == (("select3",), ("select3",), ())


def test_where_nothing_is_selected_a_model_is_trained() -> None:
    assert settings(wanted=None, label=None, labels={}).run.evaluate == ("dp3",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"wanted": "select", "label": None, "labels": {}}, "--method select is for task classify; the task is text"),
        ({"wanted": "evolve", "chosen": "span", "labels": {}}, "--method evolve is for task .*; the task is span"),
        ({"wanted": "embed", "chosen": "span", "labels": {}}, "--method embed is for task .*; the task is span"),
    ],
)
def test_a_method_fits_the_task(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParamsError, match=problem):
        check_source(source(**changes))


def test_a_method_that_there_is_not_is_named() -> None:
    with pytest.raises(ParamsError, match="--method is 'magic'"):
        check_source(source(wanted="magic"))


@pytest.mark.parametrize("task", [{"chosen": "span", "labels": {}, "wanted": None}, JSON], ids=["span", "json"])
def test_without_classes_nothing_is_classified(task: dict[str, object]) -> None:
    classified, measured = {"encode_public", "embedding_audit"}, {"public_only", "baseline_eval", "downstream_eval"}
    assert classified | measured <= stages().keys()
    assert classified.isdisjoint(stages(**task))
    assert measured | {"next_token_base"} <= stages(**task).keys()
    assert "next_token_base" not in stages()
    assert ("structure_audit" in stages(**task)) == (task["chosen"] == "json")
    assert "structure_audit" not in stages()


MISFITS = {
    "unknown": ({"chosen": "guess"}, "--task is 'guess'"),
    "span of classes": ({"chosen": "span"}, "no --labels"),
    "span of nothing": ({"chosen": "span", "label": None, "labels": {}}, "--task span takes --label"),
    "json of no schema": ({"chosen": "json", "label": None, "labels": {}}, "--json-schema come together"),
    "schema of no json": ({"json_schema": ODD_SCHEMA}, "--json-schema come together"),
    "json of classes": ({"chosen": "json", "json_schema": ODD_SCHEMA}, "--task json has no labels"),
    "classes of nothing": ({"chosen": "classify", "label": None}, "--label and --labels come together"),
    "rows of text": ({"text": "*"}, "only for --task json"),
}


@pytest.mark.parametrize(("changes", "problem"), MISFITS.values(), ids=MISFITS.keys())
def test_options_fit_the_task(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ParamsError, match=problem):
        check_source(source(**changes))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1]", "no mapping"),
        ("{", "cannot be read"),
        ('{"type": "array"}', "needs `type: object`"),
        ('{"type": "object", "properties": {"a": {"$ref": "x.json"}}}', "refers to 'x.json'"),
        (None, "cannot be read"),
    ],
)
def test_a_schema_is_read_from_json_or_yaml(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "schema.yaml"
    for good in (json.dumps(ODD_SCHEMA), "type: object\nproperties: {yes: {type: integer}}"):
        path.write_text(good, encoding="utf-8")
        found = read_schema(path)
        assert found is not None
        assert next(iter(found["properties"])) == "yes"
    path.unlink() if content is None else path.write_text(content, encoding="utf-8")
    with pytest.raises(ParamsError, match=f"--json-schema .*{problem}"):
        read_schema(path)


def test_a_workspace_for_records_in_lines(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    (home / "films.jsonl").write_text('{"year": 1998, "title": "A"}\n', encoding="utf-8")
    (home / "public.jsonl").write_text('{"text": "plain"}\n', encoding="utf-8")
    (home / "film.json").write_text('{"type": "object", "properties": {"title": {}}}', encoding="utf-8")
    options = [
        "--task", "json", "--json-schema", home / "film.json", "--text", "*", "--public", home / "public.jsonl",
        "--rows-about", 600, "--asset", "films", "--workspace", home / "work",
    ]  # fmt: skip
    done = call("init", home / "films.jsonl", *options, ledger=home / "ledger.db")
    assert done.exit_code == 0, done.output
    assert load(home / "work").schema_of_data.keys == ("title",)


def test_prompts_are_in_the_words_that_were_asked_for() -> None:
    assert settings(lm="someone/model", words="reviews").models.words == "reviews"
    assert settings(lm="someone/model").models.words == "texts"
    assert settings().models.words is None
    named = {"lm": "someone/model", "words": "news"}
    refused = {
        "Choose one of texts": named | {"words": "poems"},
        "Name a language": named | {"preset": "paper-000", "wanted": None},
    }
    for remedy, changes in (refused | {"or leave --words out": {"words": "news"}}).items():
        with pytest.raises(ParamsError, match=remedy):
            check_source(source(**changes))


@pytest.mark.parametrize(
    ("changes", "problem", "remedy"),
    [
        ({"preset": "best"}, "--preset is 'best'", "Choose one of modern, paper-000"),
        ({"preset": "paper-000", "wanted": None, "rows": 5}, "--rows is below 1, or beside a preset", "leave it out"),
        ({"preset": "paper-002", "wanted": "evolve"}, "--method and --preset paper-002 are both given", "Leave one"),
        (
            {"preset": "paper-004", "wanted": None, "label": None, "labels": {}},
            "--preset paper-004 is for task classify; the task is text",
            "Choose one of paper-000, paper-002, paper-003;",
        ),
    ],
)
def test_a_preset_that_cannot_be_is_refused(changes: dict[str, Any], problem: str, remedy: str) -> None:
    with pytest.raises(ParamsError) as refused:
        check_source(source(**changes))
    assert problem in refused.value.problem
    assert remedy in refused.value.remedy


def test_a_preset_is_written_with_its_own_epsilon_and_its_flags_are_in_the_plan(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work", "--preset", "paper-002", method=None)
    assert done.exit_code == 0, done.output
    params = load(home / "work")
    assert (params.preset, params.variants["evolve1"].epsilon) == ("paper-002", 1.0)
    planned = call("plan", "--workspace", home / "work", ledger=home / "ledger.db")
    assert "flag: paper-002: Its noise of 15.34" in planned.output


@pytest.mark.parametrize("wanted", ["select", "dp_lm", "predict", "evolve", "embed", "steer", "phrases"])
def test_what_init_writes_costs_the_total_little_more_than_its_epsilon(wanted: str) -> None:
    """A delta that no event carries, and a cover's, have a tenth of an asset's together."""
    params = settings(wanted=wanted, n_public=10_000)
    prices = Prices(params)
    (name,) = (each.name for each in spenders(params) if each.target.purpose == "release")
    balance = preview(asset_of(params), [], {(name, 1): prices.plan_of(name).queries})
    assert 3.0 <= balance.spent <= 3.2
    assert balance.beside < balance.most_beside


def test_all_rows_of_a_preset_must_fit_the_budget(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work", "--preset", "paper-002", epsilon=1.0, budget=1.0, method=None)
    assert done.exit_code == 1
    assert re.search(r"all that paper-002 fits and writes, at --epsilon 1, takes 1\.\d+ of it", done.output)


def budget(folder: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load((folder / "params.yaml").read_text())["privacy"]["budget"])


def test_init_proposes_milestones_that_its_first_plan_does_not_pass(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work")
    assert done.exit_code == 0, done.output
    first, second = budget(home / "work")["milestones"]
    assert 3.0 < first < 3.6 < second < 10.0
    assert f"releases will state epsilon {first:g} or {second:g}, whichever is not passed, or the cap" in done.output
    plan = " ".join(call("plan", "--workspace", home / "work", ledger=home / "ledger.db").output.split())
    assert f"what is released will say: All releases together: epsilon {first:g} at delta" in plan
    books = " ".join(call("ledger", "--workspace", home / "work", ledger=home / "ledger.db").output.split())
    assert f"All releases together: epsilon {first:g} at delta" in books, "nothing is passed by nothing"


def test_milestones_that_are_said_are_those_of_every_workspace_of_the_data_set(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    assert init(home, home / "work", "--milestones", "4,8").exit_code == 0
    assert budget(home / "work")["milestones"] == [4.0, 8.0]
    again = init(home, home / "second")
    assert again.exit_code == 0, again.output
    assert budget(home / "second")["milestones"] == [4.0, 8.0]
    reserve(home)
    other = init(home, home / "third", "--milestones", 5)
    assert other.exit_code == 1
    assert "registered with other terms: milestones (4.0, 8.0), not (5.0,)" in " ".join(other.output.split())


def test_another_filter_than_the_registered_one_is_named(tmp_path: Path) -> None:
    home = write_files(tmp_path / "home")
    assert init(home, home / "work", "--milestones", 4).exit_code == 0
    reserve(home)
    other = init(home, home / "second", "--filter", "renyi")
    assert other.exit_code == 1
    assert "filter gdp, not renyi" in " ".join(other.output.split())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("--milestones", "8,4"), "at most 3 epsilons below the cap"),
        (("--milestones", 10), "at most 3 epsilons below the cap"),
        (("--milestones", "one"), "--milestones is 'one'"),
        (("--milestones", 4, "--filter", "renyi"), "with renyi the total is proved where it stands"),
    ],
)
def test_milestones_that_cannot_be_are_refused_before_anything_is_written(
    said: tuple[object, ...], words: str, tmp_path: Path
) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work", *said)
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())
    assert not (home / "work").exists()
