"""The deployment: a run that is asked for, and one that is cancelled, each in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("api")

SERVE = "import pathlib; from flows.serve import serve; serve(pathlib.Path('.'), cron='0 3 * * *', workers=2)"


def test_a_deployment_runs_one_flow_at_a_time_and_heeds_a_cancel(make_workspace: Callable[..., Path]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    folder = make_workspace(
        "stages:\n  hold: {cmd: 'touch held; while ! test -e go; do sleep 0.05; done;"
        " echo $PALIMPSEST_RELEASE > out.txt', outs: [out.txt]}\n"
    )
    name = f"palimpsest/{folder.name}"
    with (folder / "serve.log").open("wb") as log:
        environ = {**os.environ, "PREFECT_RUNNER_POLL_FREQUENCY": "1", "PALIMPSEST_RELEASE": "yes"}
        process = subprocess.Popen([sys.executable, "-c", SERVE], cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        with get_client(sync_client=True) as client:
            wait_until(lambda: any(d.name == folder.name for d in client.read_deployments()))
            deployment = client.read_deployment_by_name(name)
            assert deployment.global_concurrency_limit is not None
            assert deployment.global_concurrency_limit.limit == 1
            assert [schedule.schedule.cron for schedule in deployment.schedules] == ["0 3 * * *"]
            first = client.create_flow_run_from_deployment(deployment.id).id
            wait_until((folder / "held").exists)
            client.set_flow_run_state(first, Cancelling())
            wait_until(lambda: client.read_flow_run(first).state.is_final())
            assert client.read_flow_run(first).state.is_cancelled()
            assert not (folder / "out.txt").exists()
            (folder / "go").touch()
            second = client.create_flow_run_from_deployment(deployment.id).id
            wait_until(lambda: client.read_flow_run(second).state.is_final())
            assert client.read_flow_run(second).state.is_completed()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert (folder / "out.txt").read_text() == "yes\n"  # the word that was given to all runs of the schedule


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
