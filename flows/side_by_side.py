"""The graph without Prefect: stages that need nothing of each other run at once, and share the terminal."""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import MappingProxyType

from flows.graph import FlowNode, read_graph
from flows.runner import Runner, StageFailed, StageOutcome, open_runner
from palimpsest.work.repro import catch_termination


def bring(
    workspace: Path,
    targets: Sequence[str] = (),
    workers: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    keeps: Sequence[int] = (),
) -> int:
    """Bring the workspace up to date, as `dvc repro TARGETS` would; 0, or 1 if a stage failed.

    Each line of a stage is printed behind its name. After a failure those that run go on, and no other is started.

    Args:
        workspace: the folder with dvc.yaml.
        targets: stage names or matrix groups; all of dvc.yaml by default.
        workers: stages that may run at once, with the CPU cores divided among them; see `slots.workers_of`.
        variables: set in the environment of every stage, in addition to what is inherited.
        keeps: descriptors that every stage holds open as long as it lives.

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
