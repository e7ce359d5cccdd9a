"""A workspace on a team's server: what prefect.yaml says, and what a worker and the interface make of it."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.ui import WebDriverWait

from palimpsest.privacy.ledger.ledger import Ledger
from tests.artifacts import read_artifacts
from tests.chromium import press
from tests.flows.conftest import log_in
from tests.flows.notes import STAGE, held_env, made
from tests.running import is_free, wait_until

ROOT = Path(__file__).parents[2]
SECRET = "hunter2"


class Mailbox(HTTPServer):
    """What notifications were sent to it."""

    def __init__(self) -> None:
        self.letters: list[str] = []
        super().__init__(("127.0.0.1", 0), _Letterbox)


class _Letterbox(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Mailbox)
        self.server.letters.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with made(tmp_path_factory.mktemp("team")) as home:
        shutil.copytree(home / "notes", home / "apart")  # for what needs no run at work in it: a worker runs in `notes`
        yield home


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    thread = threading.Thread(target=box.serve_forever)
    thread.start()
    yield box
    box.shutdown()
    thread.join()
    box.server_close()


@pytest.fixture(scope="module")
def deployed(home: Path, api: str, mailbox: Mailbox) -> Iterator[Path]:
    """The workspace, deployed, and a worker."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    url = f"http://127.0.0.1:{mailbox.server_port}/"
    block = CustomWebhookNotificationBlock(name="ops", url=url, json_data={"text": "{{body}}"})
    block.save("ops", _sync=True)
    options = [STAGE, "--cron", "0 3 * * *", "--notify", "custom-webhook/ops", "-w", str(home / "notes")]
    subprocess.run([sys.executable, "-m", "palimpsest", "deploy", *options], check=True)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "palimpsest-process"]
    environ = {**held_env(home), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with (home / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=home, env=environ, stdout=log, stderr=log)
    yield home / "notes"
    worker.send_signal(signal.SIGINT)
    worker.wait(60)
    print((home / "worker.log").read_text())  # shown where a test failed


def confirm(browser: webdriver.Chrome, words: str, kind: str = "p-button--default") -> None:
    """Press the button of a question until the question is gone: while it is still being drawn, it may hear nothing."""
    press(browser, _button(words, kind))
    try:
        WebDriverWait(browser, 20).until_not(presence_of_element_located(_button(words, kind)))
    except TimeoutException:
        confirm(browser, words, kind)


def _button(words: str, kind: str = "") -> tuple[str, str]:
    return By.XPATH, f"//button[normalize-space(.)='{words}' and contains(@class, '{kind}')]"


@pytest.mark.timeout(600)  # two starts of a run beside a browser
@pytest.mark.slow
def test_a_run_is_started_cancelled_and_retried_in_the_interface(
    deployed: Path, api: str, browser: webdriver.Chrome
) -> None:
    from prefect.client.orchestration import get_client

    place = api.removesuffix("/api")
    log_in(browser, place)
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("palimpsest/notes-process")
        assert [one.schedule.cron for one in deployment.schedules] == ["0 3 * * *"]
        browser.get(f"{place}/deployments/deployment/{deployment.id}")
        press(browser, _button("Run"))
        press(browser, _button("Quick run"))
        confirm(browser, "Run")
        wait_until((deployed / "held").exists)
        run = next(one.id for one in client.read_flow_runs() if one.deployment_id == deployment.id and one.start_time)
        browser.get(f"{place}/runs/flow-run/{run}")
        press(browser, _button("Cancel"))
        confirm(browser, "Confirm", "")
        wait_until(lambda: client.read_flow_run(run).state.is_final())
        assert client.read_flow_run(run).state.is_cancelled()
        assert not (deployed / "data/private/train.parquet").exists()
        wait_until(lambda: is_free(deployed))  # its process ends after its state is told
        (deployed / "go").touch()
        for _ in range(5):
            wait_until(lambda: is_free(deployed))  # a run that is told to be cancelled may be at its end still
            browser.get(f"{place}/runs/flow-run/{run}")
            press(browser, _button("Retry"))
            confirm(browser, "Retry")
            wait_until(lambda: not client.read_flow_run(run).state.is_cancelled())
            browser.get("about:blank")  # what the page draws of a run takes a core from it
            wait_until(lambda: client.read_flow_run(run).state.is_final())
            if client.read_flow_run(run).state.is_completed():
                break  # a worker cancels the run for some seconds more, or its process holds the workspace still
        assert client.read_flow_run(run).state.message == "2 stages up to date"
    assert (deployed / "data/private/train.parquet").exists()
    wait_until(lambda: is_free(deployed))  # its process ends after its state is told


def test_another_workspace_does_not_take_a_deployment_s_place(deployed: Path, home: Path) -> None:
    shutil.copytree(home / "apart", home / "b/notes")
    command = [sys.executable, "-m", "palimpsest", "deploy", "-w", str(home / "b/notes")]
    done = subprocess.run(command, env=held_env(home), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"deployment 'notes-process' runs the workspace {deployed}." in " ".join(done.stderr.split())


def test_a_server_that_is_not_there_is_an_error_in_two_parts(home: Path) -> None:
    environ = {**held_env(home), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    for command in (["deploy"], ["serve"], ["run", "--ui", STAGE]):
        done = subprocess.run(
            [sys.executable, "-m", "palimpsest", *command, "-w", str(home / "apart")],
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith("error: The Prefect server of PREFECT_API_URL does not answer.\n")


def test_prefect_yaml_holds_no_secret_and_prefect_reads_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.cli.deploy._models import PrefectYamlModel

    from flows.serve import POOLS, Wanted, team_text

    for name in ("PALIMPSEST_LEDGER", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"postgresql://team:{SECRET}@host/ledger")
    body = team_text(home / "notes", Wanted(POOLS, (STAGE,), "0 3 * * *", "Europe/Berlin", "palimpsest:worker", None))
    assert SECRET not in body
    assert "anyway: false" in body  # nobody pays for noise unless it is said
    read = PrefectYamlModel.model_validate(YAML(typ="safe").load(body))
    assert [len(one.schedules or []) for one in read.deployments] == [1, 0, 0]  # one of them follows the clock
    assert [one.work_pool and one.work_pool.name for one in read.deployments] == [
        f"palimpsest-{pool}" for pool in POOLS
    ]


def filled(pool: str, **values: Any) -> dict[str, Any]:
    """The configuration that a worker makes of a job template and of what a deployment says."""
    from prefect.utilities.templating import apply_values

    from flows.serve import job_template

    template = job_template(pool)
    defaults = {name: one["default"] for name, one in template["variables"]["properties"].items() if "default" in one}
    return dict(apply_values(template["job_configuration"], {**defaults, **values}))


def test_a_job_of_kubernetes_holds_to_the_published_schema() -> None:
    job = filled("kubernetes", name="notes", labels={"a": "b"}, command=["python"], env=[{"name": "A", "value": "b"}])
    manifest = job["job_manifest"]
    for version in ("1.30", "1.37"):
        kubernetes_validate.validate(manifest, version, strict=True)
    manifest["spec"]["template"]["spec"]["parallelism"] = 1  # as in Prefect's own template
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_containers_have_no_more_rights_than_their_owner() -> None:
    docker = filled("docker", command="python")
    assert not docker["privileged"]
    assert docker["container_create_kwargs"]["cap_drop"] == ["ALL"]
    pod = filled("kubernetes")["job_manifest"]["spec"]
    assert (pod["backoffLimit"], pod["template"]["spec"]["restartPolicy"]) == (0, "Never")  # no attempt of its own
    assert pod["template"]["spec"]["securityContext"]["runAsNonRoot"]


def test_the_dockerfile_copies_what_is_there_and_only_the_last_target_is_the_command_line() -> None:
    lines = [line.split() for line in (ROOT / "Dockerfile").read_text().splitlines() if line and line[0] != "#"]
    copied = [word for line in lines if line[0] == "COPY" and "--from" not in line[1] for word in line[1:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    stages = [line for line in lines if line[0] in ("FROM", "ENTRYPOINT")]
    assert [line[-1] for line in stages] == ["wheel", "base", "worker", "base", '["palimpsest"]']


def variant(workspace: Path) -> str:
    return str(next(iter(YAML(typ="safe").load(workspace / "params.yaml")["variants"])))


def test_a_dry_run_says_the_cost_and_changes_nothing(home: Path, api: str) -> None:
    from flows.serve import scheduled

    params, books = home / "apart/params.yaml", Ledger.open(f"sqlite:///{home / 'ledger.db'}")
    before, name = (params.read_bytes(), books.head()), variant(params.parent)
    state = scheduled(params.parent, overrides={f"variants.{name}.epsilon": 1.5}, dry_run=True, return_state=True)
    assert state.name == "Planned"
    assert state.message.startswith("Budget of notes: epsilon 10 ")
    [line] = json.loads(read_artifacts(state.state_details.flow_run_id)["plan"].data)
    assert line["stage"] == f"select@{name}"
    assert float(line["epsilon"]) == pytest.approx(1.5, abs=0.01)
    assert (params.read_bytes(), books.head()) == before


@pytest.mark.usefixtures("deployed")
def test_a_refused_budget_is_told_and_leaves_everything_as_it_was(home: Path, mailbox: Mailbox) -> None:
    from flows.serve import scheduled

    params = home / "apart/params.yaml"
    before, name = params.read_bytes(), variant(params.parent)
    state = scheduled(params.parent, overrides={f"variants.{name}.epsilon": 9.99}, return_state=True)
    assert state.is_failed()
    assert "would pass the budget" in state.message
    assert params.read_bytes() == before
    wait_until(lambda: any("would pass the budget" in letter for letter in mailbox.letters))
