"""Stages through DVC, without Prefect: one at a time, or those at once that need nothing of each other.

Each is asked whether it is up to date; if not, DVC reproduces it in a child. Children can all be stopped, with
everything they started; only their user can open what they make. Stages that run at once share the terminal.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType

from dvc.dvcfile import PROJECT_FILE
from dvc.lock import LockError
from dvc.repo import Repo

from flows.environment import environment
from flows.graph import DVC, FlowNode, Slots, Stopped, read_graph, share, shared_devices, workers_of
from palimpsest.devices import CUDA, VARIABLE
from palimpsest.errors import PalimpsestError
from palimpsest.files import OWNER_UMASK
from palimpsest.params.load import device_of
from palimpsest.work import repro
from palimpsest.work.context import find_stale
from palimpsest.work.repro import GRACE_SECONDS, catch_termination, end
from stages import inputs
from stages.warm import serve_stages

WAITING = "Waiting for another DVC process."
_LOCK_SECONDS = 0.5


class StageFailed(PalimpsestError):
    """A stage's command failed."""


class How(Enum):
    """How a stage came to be up to date."""

    CACHED = "inputs unchanged"
    RESTORED = "restored from the run cache"
    REPRODUCED = "reproduced"


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The outcome of one stage, and its time in seconds; None for `how` if it failed."""

    how: How | None
    seconds: float


def up_to_date(stage: FlowNode, workspace: Path) -> bool:
    """Whether `dvc repro` would skip this stage; for `inputs`, which it never skips, whether that would change nothing.

    Raises:
        dvc.lock.LockError: another DVC process runs this stage, or held the repository for some seconds.
    """
    with DVC, Repo(str(workspace)) as repo:
        told = repo.status([stage.target], check_updates=False)
    if stage.name != inputs.STAGE:
        return not told
    return list(told.values()) == [["always changed"]] and not inputs.is_outdated(workspace)


class Runner:
    """Runs the stages of one workspace, from several threads, until it is stopped."""

    def __init__(
        self,
        workspace: Path,
        slots: Slots,
        variables: Mapping[str, str] = MappingProxyType({}),
        keeps: Sequence[int] = (),
        fresh: Collection[str] = (),
    ) -> None:
        """`variables` are added to the environment of every stage, which holds the descriptors `keeps` open.

        `fresh` are the stages for which nothing changed, nor for what they need; they are not checked one by one.
        """
        self.workspace = workspace.resolve()
        self._fresh = frozenset(fresh)
        self._variables = variables
        self.outcomes: dict[str, StageOutcome] = {}
        self._slots = slots
        self._children = Children(keeps)
        self._stopping = threading.Event()

    def run(self, stage: FlowNode, on_line: Callable[[str], None]) -> StageOutcome:
        """Bring one stage up to date, handing over each line that its command prints.

        Raises:
            StageFailed: its command failed.
            Stopped: the flow is stopping.
        """
        start, how = time.monotonic(), None
        try:
            how = self._run(stage, on_line)
        finally:
            self.outcomes[stage.name] = outcome = StageOutcome(how, time.monotonic() - start)
        return outcome

    def stop(self) -> None:
        """End every running stage, with all its processes, and start no more."""
        self._stopping.set()
        self._slots.stop()
        self._children.stop()

    def _run(self, stage: FlowNode, on_line: Callable[[str], None]) -> How:
        if stage.name in self._fresh or self._up_to_date(stage, on_line):
            return How.CACHED
        with self._slots.take(stage.gpus) as devices:
            return self._reproduce(stage, devices, on_line)

    def _up_to_date(self, stage: FlowNode, on_line: Callable[[str], None]) -> bool:
        told = False
        while not self._stopping.is_set():
            try:
                return up_to_date(stage, self.workspace)
            except LockError:  # waited for here, and not inside DVC, so that a stop is heeded
                if not told:
                    on_line(WAITING)
                    told = True
                self._stopping.wait(_LOCK_SECONDS)
        raise Stopped

    def _reproduce(self, stage: FlowNode, devices: dict[str, str], on_line: Callable[[str], None]) -> How:
        while not self._stopping.is_set():
            watch = _Watch(stage.name, on_line)
            code = self._children.run(_command(stage), self.workspace, self._environ(devices), watch)
            if code == 0:
                return watch.how
            if self._stopping.is_set():
                break
            if code != repro.BUSY:
                raise _failure(stage, code)
            self._stopping.wait(_LOCK_SECONDS)
        raise Stopped

    def _environ(self, devices: dict[str, str]) -> dict[str, str]:
        # `python` in a stage's command must be this interpreter.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**environment(self.workspace), "PATH": path, "PYTHONUNBUFFERED": "1", **self._variables, **devices}


def _command(stage: FlowNode) -> list[str]:
    return [sys.executable, "-P", "-m", "palimpsest.work.repro", "--single-item", stage.target]


def _failure(stage: FlowNode, code: int) -> StageFailed:
    return StageFailed(
        f"Stage {stage.name!r} failed with exit code {code}.", "Read the stage's log for the cause, then run again."
    )


@contextmanager
def open_runner(
    workspace: Path,
    stages: Sequence[FlowNode],
    workers: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    keeps: Sequence[int] = (),
) -> Iterator[Runner]:
    """Yield a runner for these stages while they run; stop them if that ends early, for whatever reason.

    Args:
        stages: all that it may be asked to run.

    Raises:
        DeviceError: a stage asks for more GPUs than there are.
    """
    cores = os.cpu_count() or 1
    at_once = workers or workers_of(cores)
    wanted = device_of(workspace)
    devices = shared_devices(wanted)
    named = {VARIABLE: CUDA} if ":" in wanted and devices else {}  # it is the only one that a stage then sees
    slots = Slots(at_once, devices)
    slots.check(stages)
    with DVC, Repo(str(workspace), _wait_for_lock=True) as repo:
        repro.discard_broken_lock(repo)
    fresh = _fresh_stages(workspace, stages)
    idle = all(stage.name in {*fresh, inputs.STAGE} for stage in stages)  # and the libraries need not be loaded
    own = {**environment(workspace), **variables}
    warmed: AbstractContextManager[dict[str, str]] = nullcontext({}) if idle else serve_stages(own)
    with warmed as warm:
        runner = Runner(workspace, slots, {**variables, **warm, **named, **share(at_once, cores)}, keeps, fresh)
        try:
            yield runner
        except BaseException:  # Ctrl-C, SIGTERM (which Prefect raises), or an error
            runner.stop()
            raise


def _fresh_stages(workspace: Path, stages: Sequence[FlowNode]) -> set[str]:
    """Return, in one query, the stages of dvc.yaml for which nothing changed, nor for what they need.

    `inputs` is left to a check of its own: DVC has to say what else may lie in its folder.
    """
    graph = workspace.resolve() / PROJECT_FILE
    own = {stage.name for stage in stages if stage.target == f"{graph}:{stage.name}"} - {inputs.STAGE}
    with DVC:
        return own - find_stale(workspace)


class _Watch:
    """Reads in DVC's own lines what it does with a stage, and passes every line on."""

    def __init__(self, name: str, on_line: Callable[[str], None]) -> None:
        self.how = How.CACHED
        self._started = f"Running stage '{name}':"
        self._restored = f"Stage '{name}' is cached - skipping run, checking out outputs"
        self._verified = f"Verifying data sources in stage: '{name}'"
        self._on_line = on_line

    def __call__(self, line: str) -> None:
        if self.how is not How.REPRODUCED:
            self._read(line)
        self._on_line(line)

    def _read(self, line: str) -> None:
        if line in (self._started, self._verified):
            self.how = How.REPRODUCED
        elif line == self._restored:
            self.how = How.RESTORED


class Children:
    """The running children of one flow, each in a process session of its own."""

    def __init__(self, keeps: Sequence[int] = ()) -> None:
        """`keeps` are descriptors that every child holds open as long as it lives."""
        self._keeps = keeps
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], on_line: Callable[[str], None]) -> int:
        """Run a command, hand over each line of its output as it comes, return its exit code. Raises Stopped."""
        child = self._start(command, cwd, env)
        try:
            _read_lines(child, self._silence_after_stop(on_line))
            return child.wait()
        except BaseException:
            end([child])
            raise
        finally:
            with self._lock:
                self._running.discard(child)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End every child and start no more; see `end`."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        end(running, grace)

    def _silence_after_stop(self, on_line: Callable[[str], None]) -> Callable[[str], None]:
        """Return `on_line`, silent after a stop: what children print when they are stopped helps nobody."""
        return lambda line: None if self._stopped else on_line(line)

    def _start(self, command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with self._lock:  # no child may slip in between the decision to stop and the stopping
            if self._stopped:
                raise Stopped
            child = subprocess.Popen(
                command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, umask=OWNER_UMASK, pass_fds=self._keeps,
            )  # fmt: skip
            self._running.add(child)
            return child


def _read_lines(child: "subprocess.Popen[bytes]", on_line: Callable[[str], None]) -> None:
    assert child.stdout is not None
    # A bar redraws itself with carriage returns: only its last drawing is a line.
    for line in TextIOWrapper(child.stdout, encoding="utf-8", errors="replace", newline="\n"):
        text = line.rstrip().rpartition("\r")[2]
        if text:
            on_line(text)


def bring_side_by_side(
    workspace: Path,
    targets: Sequence[str] = (),
    workers: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    keeps: Sequence[int] = (),
) -> int:
    """Bring the workspace up to date, as `dvc repro TARGETS` would; 0, or 1 if a stage failed.

    Each line of a stage is printed behind its name. After a failure those that run go on, and no other is started.

    Raises:
        DeviceError: a stage asks for more GPUs than there are. No stage has been started.
        KeyboardInterrupt: on Ctrl-C, SIGTERM or a closed terminal, once every stage has been ended.
    """
    stages = read_graph(workspace, targets)
    run = partial(open_runner, workspace, stages, workers, variables, keeps)
    with catch_termination(), ThreadPoolExecutor(len(stages) or 1) as pool, run() as runner:
        failed = _failures(stages, runner, pool)
    for failure in failed:
        print(failure.lines, flush=True)
    return int(bool(failed))


def _failures(stages: Sequence[FlowNode], runner: Runner, pool: ThreadPoolExecutor) -> list[StageFailed]:
    """Run each stage once all that it needs has ended well, until none is left or one has failed."""
    waiting, done = list(stages), set[str]()
    begun: dict[Future[StageOutcome], FlowNode] = {}
    failed: list[StageFailed] = []
    while begun or (waiting and not failed):
        ready = [] if failed else [stage for stage in waiting if done.issuperset(stage.needs)]
        waiting = [stage for stage in waiting if stage not in ready]
        begun |= {pool.submit(runner.run, stage, partial(_tell, stage.name)): stage for stage in ready}
        for future in wait(begun, return_when=FIRST_COMPLETED).done:
            stage, error = begun.pop(future), future.exception()
            if isinstance(error, StageFailed):
                failed.append(error)
            else:
                future.result()
                done.add(stage.name)
    return failed


def _tell(name: str, line: str) -> None:
    print(f"{name}: {line}", flush=True)
