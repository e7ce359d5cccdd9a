"""A schedule of a real workspace, as a user meets it: its runs, what the interface shows, what Prefect keeps."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.shown import down
from palimpsest.report.release.word import VARIABLE as WORD
from palimpsest.work.run import hold_schedule, hold_workspace
from palimpsest.workspace import FAULT
from tests.artifacts import read_artifacts
from tests.chromium import press
from tests.flows.conftest import log_in
from tests.flows.notes import PLANTED, STAGE, held_env, made, write_private
from tests.running import wait_until

pytestmark = pytest.mark.usefixtures("api")

CRON, ZONE = "0 3 * * *", "Europe/Berlin"
SENTENCE = "Read and check the files, draw the audit subset and its coins, write the splits."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's files, their ledger with one charge, and a workspace `notes`, in which nothing has run."""
    with made(tmp_path_factory.mktemp("home")) as home:
        yield home


@pytest.fixture(scope="module")
def told(home: Path, api: str) -> dict[str, Any]:
    """A run that is cancelled while its stage runs, one that ends well, and what the server knows of them."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    workspace, found = home / "notes", dict[str, Any]()
    environ = {**held_env(home), WORD: "yes"}
    command = [sys.executable, "-m", "palimpsest", "serve", STAGE, "--cron", CRON, "--timezone", ZONE, "-w", "notes"]
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environ, stdout=log, stderr=log)
    try:
        with get_client(sync_client=True) as client:
            wait_until(lambda: any(one.name == "notes" for one in client.read_deployments()))
            found["deployment"] = deployment = client.read_deployment_by_name("palimpsest/notes")
            first = client.create_flow_run_from_deployment(deployment.id).id
            wait_until((workspace / "held").exists)
            client.set_flow_run_state(first, Cancelling())
            wait_until(lambda: client.read_flow_run(first).state.is_final())
            found["cancelled"] = client.read_flow_run(first)
            found["written by it"] = (workspace / "data/private/train.parquet").exists()
            (workspace / "go").touch()
            second = client.create_flow_run_from_deployment(deployment.id).id
            wait_until(lambda: client.read_flow_run(second).state.is_final())
            found["run"] = client.read_flow_run(second)
    finally:
        process.send_signal(signal.SIGINT)
        found["exit code"] = process.wait(60)
    return found


@pytest.mark.slow
def test_a_schedule_runs_one_flow_at_a_time_and_heeds_a_cancel(home: Path, told: dict[str, Any]) -> None:
    deployment = told["deployment"]
    assert deployment.global_concurrency_limit is None  # a run would end where the server is away for minutes
    assert [(one.schedule.cron, one.schedule.timezone) for one in deployment.schedules] == [(CRON, ZONE)]
    assert told["cancelled"].state.is_cancelled()
    assert not told["written by it"]
    assert told["run"].state.message == "2 stages up to date"
    assert told["run"].name.startswith(f"notes {told['run'].start_time.astimezone():%Y-%m-%d}")
    assert (home / "notes/held").read_text() == "yes"  # the word that was given to all runs of the schedule
    assert told["exit code"] == 130
    assert "Nothing runs by itself any more." in (home / "serve.log").read_text()


def test_charges_are_told_with_what_was_left_after_each(home: Path, told: dict[str, Any]) -> None:
    artifact = read_artifacts(told["run"].id)["charges"]
    table, left = json.loads(artifact.data), Ledger.open(os.environ[LEDGER_VARIABLE]).balance("notes").left
    assert [(line["variant"], line["query"], line["state"]) for line in table] == [
        ("first", "votes", "reserved"), ("given_back", "votes", "refunded"), ("last", "votes", "reserved")
    ]  # fmt: skip
    assert table[0]["left"] == table[1]["left"] > table[2]["left"] == down(left)
    assert len({line["epsilon"] for line in table}) == 1
    assert artifact.description.startswith(f"Epsilon {down(left)} of 10 is left for notes")


def test_a_run_where_nothing_changed_starts_nothing_and_charges_nothing(home: Path, told: dict[str, Any]) -> None:
    from flows.serve import scheduled

    (home / "notes/held").unlink()
    before = (home / "ledger.db").read_bytes()
    state = scheduled(home / "notes", [STAGE], return_state=True)
    assert (state.name, state.message) == ("Completed", "2 stages up to date")
    assert not (home / "notes/held").exists()
    assert (home / "ledger.db").read_bytes() == before


def test_a_second_schedule_of_a_workspace_is_refused(home: Path, api: str) -> None:
    command = [sys.executable, "-m", "palimpsest", "serve", STAGE, "-w", "notes"]
    with hold_schedule(home / "notes"):
        done = subprocess.run(command, cwd=home, env=held_env(home), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "This workspace is served already: process " in done.stderr


def test_a_run_waits_for_nobody(home: Path, told: dict[str, Any]) -> None:
    from flows.serve import scheduled

    with hold_workspace(home / "notes"):
        state = scheduled(home / "notes", [STAGE], return_state=True)
    assert state.is_failed()
    assert state.message.startswith("error: A run is at work in this workspace")


def test_prefect_keeps_nothing_of_the_private_rows(home: Path, told: dict[str, Any]) -> None:
    """Neither of those it ran on, nor of one that made the run fail: not even how many are before it."""
    from flows.serve import scheduled

    assert PLANTED[0] in (home / "notes/data/private/train.parquet").read_bytes().decode("latin-1")
    write_private(home, last=PLANTED[2])
    assert scheduled(home / "notes", [STAGE], return_state=True).is_failed()
    wait_until(lambda: b"A private record cannot be read." in b"".join(kept(home).values()))
    found, private = kept(home), [*PLANTED, "row 81", "(line 82)"]
    assert SENTENCE.encode() in b"".join(found.values())
    assert [(name, word) for name, content in found.items() for word in private if word.encode() in content] == []
    assert "row 81 (line 82)" in (home / "notes" / FAULT).read_text()


def kept(home: Path) -> dict[str, bytes]:
    """The server's database and log, and what the schedule printed."""
    paths = [path for path in Path(os.environ["PREFECT_HOME"]).rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in [*paths, home / "serve.log"]}


def test_the_interface_shows_name_sentence_charges_and_schedule(
    api: str, told: dict[str, Any], browser: webdriver.Chrome
) -> None:
    wait, place = WebDriverWait(browser, 60), api.removesuffix("/api")

    def shows(*words: str) -> None:
        for word in words:
            wait.until(lambda page, word=word: word in page.find_element(By.TAG_NAME, "body").text)

    log_in(browser, place)
    browser.get(f"{place}/runs/flow-run/{told['run'].id}")
    shows(told["run"].name, "Logs", SENTENCE)
    press(browser, (By.XPATH, "(//*[normalize-space(.)='Artifacts'])[last()]"))
    shows("stages", "charges", "of 10 is left for notes", "report")
    browser.get(f"{place}/deployments/deployment/{told['deployment'].id}")
    shows("notes", "At 03:00 AM every day")
