"""A workspace of before the short params.yaml moves to it: what spent is up to date, and nothing else is vouched for.

`tests/data` has params.yaml and dvc.yaml as `palimpsest init` wrote them then, with more variants named in `run`.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import dp_accounting as dpa
import pytest
from cli_place import Place
from dvc.repo import Repo, lock_repo
from ruamel.yaml import YAML

from palimpsest.cli import migrate
from palimpsest.cli.context import asset_of, opened
from palimpsest.cli.graph import stale
from palimpsest.cli.plan import balance_after, priced
from palimpsest.errors import DataError
from palimpsest.graph.expand import Repetition, expand
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import LEDGER_VARIABLE, listed, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.workspace import READING
from stages import inputs

DATA = Path(__file__).parents[1] / "data"
OLD = ("params.yaml", "dvc.yaml")
SPENT = {
    "dp_train@dp3", "dp_train@inf", "discriminator@judge3", "private_predict@predict3", "select@select3",
    "private_evolve@evolve3", "vote_select@voted3", "eda_evolve@embed3",
}  # fmt: skip
CARRIED = SPENT | {
    "preprocess", "encode_public", "pretrain", "teach_similar@similar", "decoder_pretrain@small", "pplm_generate@dp3",
    "pplm_generate@inf",
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old workspace in which all that spends has run, as DVC notes it; the files hold their own names."""
    home = shutil.copytree(made, tmp_path_factory.mktemp("old") / "home")
    workspace = home / "work"
    (workspace / RESOLVED).unlink()
    for name in OLD:
        shutil.copy(DATA / f"{name}.before", workspace / name)
    params = old_params(workspace)
    Ledger.open(f"sqlite:///{home / 'ledger.db'}").register(asset_of(params))
    facts = inputs.facts(params, workspace)
    for one in repetitions(workspace):
        if one.name in CARRIED:
            for path in one.paths("deps", "outs", "metrics"):
                write(workspace / path, facts.get(path) if "sources" in path else None, path)
    with contextlib.chdir(workspace), Repo() as repo, lock_repo(repo):
        found = [stage for stage in repo.index.stages if stage.name in CARRIED]
        for stage in found:
            stage.save()
            stage.commit()
        found[0].dvcfile.dump_stages(found, update_pipeline=False)  # at once: `commit` reads the graph for each anew
    return home


@pytest.fixture
def old(ran: Path, tmp_path: Path) -> Place:
    """One test's own copy of it."""
    shutil.copytree(ran, tmp_path / "old")
    return Place(tmp_path / "old")


def repetitions(workspace: Path) -> list[Repetition]:
    params, graph = (YAML(typ="safe").load((workspace / name).read_text(encoding="utf-8")) for name in OLD)
    return expand(graph["stages"], params)


def write(path: Path, content: bytes | None, name: str) -> None:
    """A made-up file, or a folder for a name without an ending; a receipt is another data set's."""
    file = path if path.suffix else path / "weights.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    made = json.dumps({"asset": "another", "ledger_head": name}).encode() if "receipts" in name else name.encode()
    file.write_bytes(made if content is None else content)


def old_params(workspace: Path) -> Params:
    found = listed(workspace)
    assert found is not None
    return found


def held(workspace: Path) -> dict[str, bytes]:
    """Every file of the workspace but DVC's own, among them the locks of who reads meanwhile."""
    paths = (path for path in workspace.rglob("*") if path.is_file() and ".dvc" not in path.parts)
    own = (path for path in paths if workspace / READING not in path.parents)
    return {path.relative_to(workspace).as_posix(): path.read_bytes() for path in own}


def test_afterwards_nothing_that_spent_is_stale_and_the_plan_asks_nothing(
    old: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, before = old_params(old.workspace), held(old.workspace)
    done = old.call("migrate")
    assert (done.exit_code, f"{len(CARRIED)} stages" in done.stdout) == (0, True), done.output
    assert load(old.workspace) == params
    assert not stale(old.workspace) & CARRIED
    after = held(old.workspace)
    assert {path for path in before if after[path] != before[path]} == {*OLD, "dvc.lock"}
    kept = {f".palimpsest/{name}.before": before[name] for name in (*OLD, "dvc.lock")}
    assert {path: after[path] for path in after.keys() - before.keys() - {RESOLVED}} == kept
    assert (old.workspace / "dvc.lock").stat().st_mode & 0o077 == 0
    monkeypatch.setenv(LEDGER_VARIABLE, str(old.ledger))
    context = opened(old.workspace)
    assert (priced(context, only_pending=True), balance_after(context, []).spent) == ([], 0.0)


def test_what_changes_afterwards_is_stale_as_ever(old: Place) -> None:
    assert old.call("migrate").exit_code == 0
    old.edit("variants", "evolve3", rounds=2)
    assert stale(old.workspace) & SPENT == {"private_evolve@evolve3", "vote_select@voted3"}


def a_value(workspace: Path) -> None:
    path = workspace / "params.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("neighbours: 10, threshold: 0.0", "neighbours: 9, threshold: 0.0")
    )


def a_file(name: str) -> Callable[[Path], None]:
    return lambda workspace: (workspace / name).write_text("other", encoding="utf-8") and None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (a_value, "vote_select@voted3"),
        (a_file("data/synthetic/select3.jsonl"), "select@select3"),
        (a_file("public.csv"), "preprocess"),
        (a_file("data/inputs/code/dp_train.json"), "dp_train@dp3"),
        (a_file("models/base/weights.bin"), "discriminator@judge3"),
    ],
)
def test_what_is_stale_is_not_carried_over(old: Place, change: Callable[[Path], None], named: str) -> None:
    change(old.workspace)
    before = held(old.workspace)
    done = old.call("migrate")
    assert (done.exit_code, named in done.stderr, "version that made" in done.stderr) == (1, True, True), done.output
    assert held(old.workspace) == before


def test_an_encoder_that_is_another_now_is_not_vouched_for(old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = inputs.facts
    key = "data/inputs/sources/models.encoder.json"
    monkeypatch.setattr(inputs, "facts", lambda *given: {**facts(*given), key: b"other weights"})
    done = old.call("migrate")
    assert (done.exit_code, "encode_public" in done.stderr) == (1, True)


def test_a_stopped_run_must_be_finished_first(old: Place) -> None:
    reserve(Ledger.open(f"sqlite:///{old.ledger}"), "tickets", "first")
    before = held(old.workspace)
    done = old.call("migrate")
    assert (done.exit_code, "select@select3 (reserved)" in done.stderr) == (1, True), done.output
    assert held(old.workspace) == before


def test_a_charge_is_unfinished_until_a_later_run_of_its_stage_is_committed(old: Place) -> None:
    ledger = Ledger.open(f"sqlite:///{old.ledger}")

    def waiting() -> list[str]:
        return [charge.id for charge in migrate.unfinished(ledger.charges("tickets"), {"select@select3"})]

    (lost,) = reserve(ledger, "tickets", "first")
    assert waiting() == [lost.id]
    ledger.begin(lost)
    assert waiting() == [lost.id]
    reservation = ledger.reserve("tickets", a_run("second"), [QUERY])
    ledger.begin(reservation.charges[0])
    ledger.answer(reservation.charges[0], [1.0])
    assert waiting() == [lost.id, reservation.charges[0].id]
    ledger.commit(reservation)
    assert not waiting()
    (given_back,) = reserve(ledger, "tickets", "third")
    assert waiting() == [given_back.id]
    ledger.refund([given_back])
    assert not waiting()
    reserve(ledger, "tickets", "fourth")
    assert not migrate.unfinished(ledger.charges("tickets"), {"select@other"})


QUERY = PlannedQuery("class_means", dpa.GaussianDpEvent(8.0))


def a_run(code: str) -> Run:
    return Run("select", "select3", "release", "rows", "plan", code)


def reserve(ledger: Ledger, asset: str, code: str) -> tuple[Charge, ...]:
    return ledger.reserve(asset, a_run(code), [QUERY]).charges


def test_what_was_stopped_between_two_files_goes_on(old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, params = migrate.write_text, old_params(old.workspace)

    def stopped(path: Path, text: str) -> None:
        if path.name == "params.yaml":
            raise OSError
        replace(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "write_text", stopped)
        done = old.call("migrate")
    assert (done.exit_code, "cannot be written" in done.stderr) == (1, True)
    assert old_params(old.workspace) == params
    assert old.call("migrate").exit_code == 0
    assert load(old.workspace) == params
    assert not stale(old.workspace) & CARRIED


def test_what_was_kept_replaces_no_file_of_an_old_workspace(old: Place) -> None:
    (old.workspace / ".palimpsest").mkdir()
    for name in (*OLD, "dvc.lock"):
        (old.workspace / ".palimpsest" / f"{name}.before").write_text("of an earlier move", encoding="utf-8")
    before = (old.workspace / "dvc.lock").read_bytes()
    assert old.call("migrate").exit_code == 0
    assert (old.workspace / ".palimpsest" / "dvc.lock.before").read_bytes() == before


def test_a_graph_of_today_beside_old_settings_is_refused(old: Place, place: Place) -> None:
    shutil.copy(place.workspace / "dvc.yaml", old.workspace / "dvc.yaml")
    before = held(old.workspace)
    done = old.call("migrate")
    assert (done.exit_code, "Restore the dvc.yaml" in done.stderr) == (1, True)
    assert held(old.workspace) == before


def test_a_workspace_of_today_is_left_alone(place: Place) -> None:
    before = held(place.workspace)
    done = place.call("migrate")
    assert (done.exit_code, "nothing to migrate" in done.stderr) == (1, True)
    assert held(place.workspace) == before


def test_a_model_that_nothing_is_drawn_from_is_named(old: Place) -> None:
    path = old.workspace / "params.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("predict3: taught/similar", "predict3: base"), encoding="utf-8")
    done = old.call("migrate")
    assert (done.exit_code, "run.teach_similar" in done.stderr) == (1, True)


ONE = Repetition(
    "select", "select@a",
    {
        "cmd": "python -P -m stages.fit ${item.variant}",
        "params": [{RESOLVED: ["seed", "variants.${item.variant}"]}],
        "deps": ["./own.csv", "data/inputs/code/select.json"],
        "outs": [{"data/${item.variant}.jsonl": {"push": False}}],
    },
    {"seed": 7, "variants": {"a": {"rows": 3}, "b": {}}, "item": {"variant": "a"}},
)  # fmt: skip


def test_a_lock_names_todays_command_keys_and_code_and_the_files_as_they_were() -> None:
    own = {"path": "own.csv", "md5": "1"}
    rows = {"path": "data/a.jsonl", "hash": "md5", "md5": "2", "size": 3}
    old_code = {"path": "data/inputs/code/select.json", "md5": "3"}
    entry = {"cmd": "old", "deps": [own, old_code], "params": {"params.yaml": {"seed": 7}}, "outs": [rows]}
    lock = {"schema": "2.0", "stages": {"select@a": entry, "report": {"cmd": "old"}}}
    found = migrate.relocked(lock, [ONE], {"data/inputs/code/select.json": b"code"})
    code = {"path": "data/inputs/code/select.json", "hash": "md5", "md5": "c13367945d5d4c91047b3b50234aa7ab", "size": 4}
    wanted = {
        "cmd": "python -P -m stages.fit a",
        "deps": [own, code],
        "params": {RESOLVED: {"seed": 7, "variants.a": {"rows": 3}}},
        "outs": [rows],
    }
    assert found == {"schema": "2.0", "stages": {"select@a": wanted}}


def test_a_file_that_the_old_lock_does_not_know_is_an_error() -> None:
    with pytest.raises(DataError, match=r"own\.csv"):
        migrate.relocked({"stages": {"select@a": {"cmd": "old"}}}, [ONE], {})
