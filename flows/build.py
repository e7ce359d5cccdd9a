"""The graph of dvc.yaml as a Prefect flow: one task for each stage, DVC's cache the only cache.

Call `flows.environment.apply_environment` before importing it: Prefect reads its settings when it is imported.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import httpx
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.futures import PrefectConcurrentFuture
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed, State
from prefect.task_runners import ThreadPoolTaskRunner

from flows.graph import FlowNode, Stopped, edges, read_graph
from flows.runner import How, Runner, StageFailed, open_runner
from flows.summary import LiveLines, asset_of, publish, tell_failures
from palimpsest.files import close_workspace

_SECONDS_BETWEEN_POLLS = 2.0
_SECONDS_BETWEEN_LOOKS = 0.1
_STATE_NAMES = {How.CACHED: "Cached", How.RESTORED: "Restored", How.REPRODUCED: "Completed"}

Run = PrefectConcurrentFuture[Any]
NAME = "palimpsest"
DESCRIPTION = (
    "Brings a workspace up to date: rows, audits and pages. A stage whose inputs did not change is not run again, and "
    "charges nothing."
)
THREADS = cast(Any, ThreadPoolTaskRunner())  # as many as there are stages: `Slots` holds them back


def title() -> str:
    """The name of the current run: its data set, and the time of this machine."""
    return f"{asset_of(Path(flow_run.parameters['workspace']))} {datetime.now():%Y-%m-%d %H:%M:%S}"


@flow(
    name=NAME, description=DESCRIPTION, flow_run_name=title, task_runner=THREADS, persist_result=False, retries=0
)  # fmt: skip
def build(workspace: Path, targets: list[str] | None = None, workers: int | None = None) -> State[Any]:
    """Bring the workspace up to date, exactly as `dvc repro TARGETS` would, independent stages at once.

    Args:
        workspace: the folder with dvc.yaml.
        targets: stage names or matrix groups; all of dvc.yaml by default.
        workers: stages that may run at once, with the CPU cores divided among them.

    Returns:
        Completed; Failed, naming the stages that failed and those that could not run; or Cancelled.

    Raises:
        DeviceError: a stage asks for more GPUs than there are. No stage has been started.
        DataError: others could read what stages write. No stage has been started either.
    """
    return bring(workspace, targets or (), workers)


def bring(
    workspace: Path, targets: Sequence[str] = (), workers: int | None = None, keeps: Sequence[int] = ()
) -> State[Any]:
    """Bring the workspace up to date as `build` does, inside any flow."""
    close_workspace(workspace)
    stages = read_graph(workspace, targets)
    with open_runner(workspace, stages, workers, keeps=keeps) as runner, _heed_signals() as stop:
        states = _wait(_submit(stages, runner), runner, stop)
    if not stop.is_set():
        publish(runner.workspace, stages, states, runner.outcomes)
        tell_failures(runner.workspace, states)
    return _verdict(states)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(stage: FlowNode, runner: Runner) -> State[Any]:
    """Bring one stage up to date: Completed, named Cached or Restored if its command did not have to run."""
    lines = LiveLines(stage.name)
    if stage.desc:
        lines(f"{stage.desc}.")
    try:
        outcome = runner.run(stage, lines)
    except Stopped:
        return Cancelled(message="the flow was stopped")
    except StageFailed as error:
        return Failed(message=error.lines)
    assert outcome.how is not None
    return Completed(name=_STATE_NAMES[outcome.how], message=outcome.how.value)


def _submit(stages: Sequence[FlowNode], runner: Runner) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    after = edges(stages)
    for stage in stages:
        options = run_stage.with_options(
            name=stage.name, task_run_name=_literal(stage.name), description=stage.desc, retries=stage.retries,
            tags=stage.tags,
        )  # fmt: skip
        upstream = [runs[need] for need in after[stage.name]]
        runs[stage.name] = cast(Run, options.submit(stage, runner, wait_for=upstream, return_state=False))
    return runs


def _literal(name: str) -> Callable[[], str]:
    # Prefect would read braces in a string as a template.
    return lambda: name


@contextmanager
def _heed_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets meanwhile, so that the flow ends as cancelled and not as crashed.

    Prefect would report a crash, and every task that now waits in vain.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(runs: Mapping[str, Run], runner: Runner, stop: threading.Event) -> dict[str, State[Any]]:
    """Return the state in which each run ends; stop them first if the flow run is stopped or cancelled from outside."""
    pending = {run.wrapped_future for run in runs.values()}
    asked = time.monotonic()
    while pending:
        pending = wait(pending, timeout=_SECONDS_BETWEEN_LOOKS).not_done
        if pending and stop.is_set():
            logging.disable()  # what follows is a line for each task that was not run
            runner.stop()
        elif pending and time.monotonic() - asked > _SECONDS_BETWEEN_POLLS:
            if _is_cancelled():
                runner.stop()
            asked = time.monotonic()
    for run in runs.values():
        run.wait()  # makes its state the one it ended in, where the server may still lag behind
    return {name: run.state for name, run in runs.items()}


def _is_cancelled() -> bool:
    # The UI's cancel button changes only the state that the server keeps: nobody signals a run without a deployment.
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run.id).state
    except httpx.HTTPError:  # no news is no reason to stop
        return False
    except ObjectNotFound:  # it was deleted there
        return True
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def _verdict(states: Mapping[str, State[Any]]) -> State[Any]:
    failed = [name for name, state in states.items() if state.is_failed() or state.is_crashed()]
    unrun = [name for name, state in states.items() if not state.is_final()]
    if any(state.is_cancelled() for state in states.values()):
        return Cancelled(message="stopped before the end")
    if failed or unrun:
        return Failed(message=f"failed: {', '.join(failed)}" + (f"; not run: {', '.join(unrun)}" if unrun else ""))
    return Completed(message=f"{len(states)} stages up to date")
