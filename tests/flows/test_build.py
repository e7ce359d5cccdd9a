"""The flow against `dvc repro`, on real pipelines and a real Prefect server."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ruamel.yaml import YAML

from palimpsest.errors import DataError
from palimpsest.params.file import FILE, RESOLVED
from stages.warm import VARIABLE as WARM
from tests.artifacts import read_artifacts
from tests.receipts import a_receipt
from tests.running import at_work, wait_until

pytestmark = pytest.mark.usefixtures("api")

ROOT = Path(__file__).parents[2]

Make = Callable[..., Path]
Dvc = Callable[..., str]

PIPELINE = """
stages:
  prepare:
    cmd: python step.py prepare.txt raw.csv
    deps: [raw.csv, step.py]
    outs: [prepare.txt]
  train:
    foreach: ${variants}
    do:
      cmd: python step.py train-${key}.txt prepare.txt ${item.epochs} --receipt receipt-${key}.json
      deps: [prepare.txt, step.py]
      params: ["variants.${key}"]
      outs: ["train-${key}.txt", "receipt-${key}.json": {cache: true}]
      meta: {zone: dp, receipt: "receipt-${key}.json"}
  report:
    cmd: mkdir -p reports && python step.py reports/internal.html train-a.txt train-b.txt
    deps: [train-a.txt, train-b.txt, step.py]
    outs: [reports/internal.html]
"""
STEP = """
import pathlib, sys
from palimpsest.progress import track
out, *rest = sys.argv[1:]
if "--receipt" in rest:
    receipt = rest[rest.index("--receipt") + 1]
    pathlib.Path(receipt).write_text(RECEIPT)
list(track(range(4), name="rows", total=4, private=False, unit="row"))
pathlib.Path(out).write_text(" ".join(rest))
""".replace("RECEIPT", repr(json.dumps(a_receipt(epsilon=1.5).to_json())))
PARAMS = "variants: {a: {epochs: 1}, b: {epochs: 2}}\n"


@pytest.fixture
def pipeline(make_workspace: Make, dvc: Dvc) -> Callable[[], Path]:
    def make() -> Path:
        folder = make_workspace(PIPELINE, params_yaml=PARAMS, step_py=STEP, raw_csv="1\n")
        dvc(folder, "add", "-q", "raw.csv")
        return folder

    return make


def run_flow(folder: Path, **settings: Any) -> Any:
    """The flow's final state, what each stage ended in, and the flow run's id."""
    from flows.build import build

    state = build(folder, return_state=True, **settings)
    run_id = state.state_details.flow_run_id
    return SimpleNamespace(state=state, run_id=run_id, table=read_table(run_id))


def read_table(run_id: Any) -> dict[str, dict[str, Any]]:
    return {line["stage"]: line for line in json.loads(read_artifacts(run_id)["stages"].data)}


def states(run: Any) -> dict[str, str]:
    return {name: line["state"] for name, line in run.table.items()}


def reproduced_by(output: str) -> dict[str, str]:
    """What DVC says it did, in the flow's words."""
    ran = {name: "Completed" for name in re.findall(r"^Running stage '(.+)':$", output, re.M)}
    same = {name: "Cached" for name in re.findall(r"^(?:Stage )?'(.+)' didn't change, skipping$", output, re.M)}
    restored = {name: "Restored" for name in re.findall(r"^Stage '(.+)' is cached - skipping run", output, re.M)}
    return ran | same | restored


def read_lock(folder: Path) -> Any:
    return YAML(typ="safe").load(folder / "dvc.lock")  # the order in which stages ended is no difference


def test_the_flow_and_dvc_repro_do_the_same_stage_by_stage(pipeline: Callable[[], Path], dvc: Dvc) -> None:
    ours, theirs = pipeline(), pipeline()
    changed = PARAMS.replace("2", "3")
    for params in (PARAMS, changed, PARAMS):  # all, one variant, and back: the run cache
        for folder in (ours, theirs):
            (folder / "params.yaml").write_text(params)
        assert states(run_flow(ours)) == reproduced_by(dvc(theirs, "repro"))
        assert read_lock(ours) == read_lock(theirs)
    assert "up to date" in dvc(ours, "status")


def test_artifacts_tell_what_was_done_and_spent(pipeline: Callable[[], Path]) -> None:
    folder = pipeline()
    run = run_flow(folder)
    artifacts = read_artifacts(run.run_id)
    assert {key for key in artifacts if key.startswith("progress-")} == {
        "progress-prepare", "progress-train-a", "progress-train-b", "progress-report"
    }  # fmt: skip
    assert artifacts["progress-train-a"].data == 100
    assert artifacts["progress-train-a"].description.startswith("rows 4/4")
    assert (folder / "reports" / "internal.html").as_uri() in artifacts["report"].data
    assert {line["stage"]: line["epsilon spent"] for line in run.table.values()} == {
        "raw.csv.dvc": "", "prepare": "", "train@a": "1.5", "train@b": "1.5", "report": ""
    }  # fmt: skip
    again = run_flow(folder)
    assert set(states(again).values()) == {"Cached"}
    assert [again.table[name]["epsilon spent"] for name in ("train@a", "train@b")] == ["0 (cached)"] * 2


def test_facts_are_read_anew_only_where_they_differ(make_workspace: Make) -> None:
    folder = make_workspace(
        "stages:\n"
        "  inputs: {cmd: python -m stages.inputs, always_changed: true, outs: [data/inputs: {cache: false}]}\n"
        "  after: {cmd: touch after.txt, deps: [data/inputs/code/select.json], outs: [after.txt]}\n"
    )
    for name in (FILE, RESOLVED):
        copy(ROOT / name, folder)
    for state in ("Completed", "Cached"):
        assert states(run_flow(folder)) == {"inputs": state, "after": state}
    (folder / "data/inputs/code/mia.json").write_text("{}")
    assert states(run_flow(folder)) == {"inputs": "Completed", "after": "Cached"}
    (folder / "data/inputs/more.json").write_text("{}")
    assert states(run_flow(folder))["inputs"] == "Completed"  # nothing else may lie there


def test_a_target_brings_only_what_it_needs(pipeline: Callable[[], Path]) -> None:
    assert set(states(run_flow(pipeline(), targets=["train@a"]))) == {"raw.csv.dvc", "prepare", "train@a"}


MEET = """
import os, pathlib, sys, time
me, number, round = sys.argv[1:]
here = pathlib.Path(f"met-{round}"); here.mkdir(exist_ok=True); (here / me).touch()
deadline = time.monotonic() + 100
while len(list(here.iterdir())) < int(number):
    assert time.monotonic() < deadline, "the others never came"
    time.sleep(0.02)
pathlib.Path(f"{me}.txt").write_text(round + " " + os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
"""


def test_independent_stages_run_at_once_each_on_its_own_device(
    make_workspace: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "first,second")
    folder = make_workspace(
        "stages:\n  meet:\n    matrix: {who: [a, b, c]}\n    cmd: python meet.py ${item.who} 3 ${round}\n"
        "    deps: [meet.py]\n    outs: ['${item.who}.txt']\n"
        "  alone:\n    matrix: {who: [x, y]}\n    cmd: python meet.py ${item.who} 2 gpu${round}\n"
        "    deps: [meet.py]\n    outs: ['${item.who}.txt']\n    meta: {gpus: 1}\n",
        meet_py=MEET,
    )
    for number in range(2):  # each stage waits for all the others: it ends only if they run at once
        (folder / "params.yaml").write_text(f"round: {number}\n")
        run = run_flow(folder, workers=5)
        assert set(states(run).values()) == {"Completed"}
        devices = {(folder / f"{who}.txt").read_text().split()[1] for who in "xy"}
        assert devices == {"first", "second"}


def test_a_failure_stops_what_follows_and_nothing_else(make_workspace: Make) -> None:
    folder = make_workspace(
        "stages:\n"
        "  bad: {cmd: 'echo a private row; exit 3', outs: [bad.txt], meta: {receipt: none.json}}\n"
        "  after: {cmd: cp bad.txt after.txt, deps: [bad.txt], outs: [after.txt]}\n"
        "  good: {cmd: echo > good.txt, outs: [good.txt]}\n"
        "  also: {cmd: cp good.txt also.txt, deps: [good.txt], outs: [also.txt]}\n"
        "  flaky:\n    cmd: test -e tried || { touch tried; exit 1; }\n    outs: [tried: {persist: true}]\n"
        "    meta: {zone: public, retries: 1}\n"
    )
    run = run_flow(folder)
    assert run.state.is_failed()
    assert run.state.message == "failed: bad; not run: after"
    expected = {"bad": "Failed", "after": "NotReady", "good": "Completed", "also": "Completed", "flaky": "Completed"}
    assert states(run) == expected
    assert run.table["bad"]["epsilon spent"] == "see the ledger"


def test_a_lock_file_that_a_killed_dvc_left_half_written_does_no_harm(make_workspace: Make) -> None:
    folder = make_workspace("stages:\n  a: {cmd: echo > a.txt, outs: [a.txt]}\n")
    (folder / ".dvc" / "tmp").mkdir(exist_ok=True)
    (folder / ".dvc" / "tmp" / "rwlock").write_text('{"write": {')
    assert states(run_flow(folder)) == {"a": "Completed"}


def test_too_few_devices_is_an_error_at_the_start(make_workspace: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.build import build
    from flows.graph import DeviceError
    from stages.common import PROCESSES

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "one")
    monkeypatch.setenv(PROCESSES, "2")
    folder = make_workspace(
        "stages:\n  cpu: {cmd: touch cpu.txt, outs: [cpu.txt]}\n"
        "  gpu: {cmd: touch gpu.txt, outs: [gpu.txt], meta: {gpus: 1, team: true}}\n"
    )
    with pytest.raises(DeviceError, match="'gpu' asks for 2"):
        build(folder)
    assert not (folder / "cpu.txt").exists()


def test_a_cache_that_others_read_is_an_error_at_the_start(
    make_workspace: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.build import build

    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config").write_text("[cache]\ndir = /proc/team\n")
    folder = make_workspace("stages:\n  a: {cmd: touch a.txt, outs: [a.txt]}\n")
    with pytest.raises(DataError, match="DVC keeps copies of private data in '/proc/team'"):
        build(folder)
    assert not (folder / "a.txt").exists()


def test_the_flow_and_a_concurrent_dvc_repro_wait_for_each_other(make_workspace: Make, dvc: Dvc) -> None:
    folder = make_workspace(
        "stages:\n"
        "  slow: {cmd: 'touch began; echo x >> runs; while ! test -e go; do sleep 0.05; done; touch slow.txt',"
        " outs: [slow.txt]}\n"
        "  next: {cmd: cp slow.txt next.txt, deps: [slow.txt], outs: [next.txt]}\n"
    )
    from flows.runner import WAITING

    other = subprocess.Popen([sys.executable, "-m", "dvc", "--wait-for-lock", "repro"], cwd=folder)
    wait_until((folder / "began").exists)
    ours = start_flow(folder)
    wait_until(lambda: WAITING in (folder / "flow.log").read_text())
    (folder / "go").touch()
    assert (ours.wait(60), other.wait(60)) == (0, 0)
    assert (folder / "runs").read_text() == "x\n"
    assert "up to date" in dvc(folder, "status")


HOLD = """
import os, pathlib, time
held = pathlib.Path(f"held-{os.getpid()}")
try:
    held.touch()  # from here on the interrupt may come
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
finally:
    held.unlink()
pathlib.Path(f"{os.environ['DVC_STAGE']}.txt").touch()
"""


def start_flow(folder: Path, code: str = "") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "flows", str(folder)]
    with (folder / "flow.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def test_a_limit_of_the_server_holds_back_stages_that_charge(make_workspace: Make) -> None:
    from prefect.client.orchestration import get_client

    folder = make_workspace(
        "stages:\n  hold:\n    matrix: {who: [a, b]}\n    cmd: python hold.py\n    outs: ['hold@${item.who}.txt']\n"
        "    meta: {zone: dp, receipt: none.json}\n",
        hold_py=HOLD,
    )
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name("tag:ledger", 1)
        process = start_flow(folder)
        wait_until(lambda: list(folder.glob("held-*")))
        assert client.read_global_concurrency_limit_by_name("tag:ledger").active_slots == 1
        assert len(list(folder.glob("held-*"))) == 1
        (folder / "go").touch()
        assert process.wait(120) == 0
        client.delete_global_concurrency_limit_by_name("tag:ledger")


def flow_run_id(folder: Path) -> str:
    found = re.search(r"/runs/flow-run/([0-9a-f-]+)", (folder / "flow.log").read_text())
    assert found
    return found[1]


def interrupt(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)


def terminate(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)


def cancel_in_the_interface(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id(folder), Cancelling())


def delete_in_the_interface(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.delete_flow_run(flow_run_id(folder))


@pytest.mark.parametrize("cancel", [interrupt, terminate, cancel_in_the_interface, delete_in_the_interface])
def test_a_cancel_leaves_no_process_and_the_next_run_finishes(
    make_workspace: Make, cancel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WARM)  # the process with the libraries ends, too
    folder = make_workspace(
        "stages:\n  hold:\n    matrix: {who: [a, b]}\n    cmd: python hold.py\n    outs: ['hold@${item.who}.txt']\n"
        "  after: {cmd: touch after.txt, deps: ['hold@a.txt'], outs: [after.txt]}\n",
        hold_py=HOLD,
    )
    process = start_flow(folder)
    wait_until(lambda: len(list(folder.glob("held-*"))) == 2)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    cancel(folder, process)
    assert process.wait(60) != 0
    assert not at_work(family)
    assert not list(folder.glob("held-*"))  # interrupted, not killed: the stages could tidy up
    told = (folder / "flow.log").read_text()
    assert "Completed(" not in told
    noise = [word for word in ("Crash", "Traceback", "Upstream", "NotReady") if word in told]
    assert cancel in (cancel_in_the_interface, delete_in_the_interface) or not noise
    (folder / "go").touch()
    monkeypatch.setenv(WARM, "")
    assert set(states(run_flow(folder)).values()) == {"Completed"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_the_end_of_the_server_runner_reaches_the_stages(make_workspace: Make, number: int, code: int) -> None:
    folder = make_workspace("stages:\n  hold: {cmd: python hold.py, outs: [hold.txt]}\n", hold_py=HOLD)
    runs = (
        "import sys, pathlib; from flows.ui import run_with_server; sys.exit(run_with_server(pathlib.Path('.'), True))"
    )
    process = start_flow(folder, runs)
    wait_until(lambda: list(folder.glob("held-*")))
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait(60) == code
    wait_until(lambda: not at_work(family))
    assert not list(folder.glob("held-*"))
