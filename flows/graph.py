"""The graph of dvc.yaml: which stages run, after which others, what their `meta:` says, and what they share.

Stages share resources: how many may run at once, and which devices each has to itself.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
from dvc.dvcfile import PROJECT_FILE
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro

from palimpsest import validate
from palimpsest.devices import CPU, MPS
from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.workspace import Zone
from stages.common import PROCESSES, processes

if TYPE_CHECKING:
    from dvc.stage import Stage as DvcStage

GPU, LEDGER = "gpu", "ledger"
DVC = threading.RLock()  # dvc.repo.Repo is not thread-safe, not even two of them in one process


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One node of the graph."""

    name: str  # as `dvc repro` prints it: `dp_train@dp3`, or the path of a .dvc file
    target: str  # the same node as an absolute DVC target, good from any working directory
    needs: tuple[str, ...] = ()  # names of the stages whose outputs it reads
    gpus: int = 0  # devices it must have to itself, where the machine has any; one for each of its processes
    retries: int = 0  # how often Prefect may run it again after a failure
    zone: Zone = Zone.PRIVATE  # private unless dvc.yaml says otherwise
    desc: str = ""  # what it does, in a sentence
    # path, from the workspace, of the JSON file that says what it charged; None if it charges nothing
    receipt: str | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags by which a server may limit stages that run at once: one if it holds a GPU, one if it charges."""
        return tuple(tag for tag, holds in ((GPU, self.gpus), (LEDGER, self.receipt)) if holds)


def read_graph(workspace: Path, targets: Sequence[str] = ()) -> tuple[FlowNode, ...]:
    """The stages `dvc repro TARGETS` would visit, each after all that it needs.

    Raises:
        ParamsError: a stage's `meta:` cannot be used.
        dvc.exceptions.DvcException: dvc.yaml cannot be read, or a target is not in it.
    """
    workspace = workspace.resolve()
    with DVC, Repo(str(workspace), _wait_for_lock=True) as repo:
        asked = collect_stages(repo, [_absolute(workspace, target) for target in targets or [PROJECT_FILE]])
        graph = get_active_graph(repo.index.graph)  # edges point from a stage to what it needs
        return tuple(_stage(workspace, node, graph.successors(node)) for node in plan_repro(graph, asked))


def edges(stages: Sequence[FlowNode]) -> dict[str, list[str]]:
    """Return stage -> the stages it waits for: its needs, less those that another of its needs already waits for.

    The order of execution stays the same, but a drawing has layers instead of a line from each stage to the first.

    >>> found = edges([FlowNode("a", ""), FlowNode("b", "", ("a",)), FlowNode("c", "", ("a", "b"))])
    >>> [found[name] for name in "abc"]
    [[], ['a'], ['b']]
    """
    graph = networkx.DiGraph({stage.name: stage.needs for stage in stages})
    return {name: sorted(reduced) for name, reduced in networkx.transitive_reduction(graph).adjacency()}


def _absolute(workspace: Path, target: str) -> str:
    path = workspace / target
    is_path = path.exists() or ":" in target or target.endswith((".dvc", ".yaml"))
    return str(path) if is_path else f"{workspace / PROJECT_FILE}:{target}"


def _stage(workspace: Path, node: "DvcStage", needs: Any) -> FlowNode:
    name = _name(workspace, node)
    meta = node.meta or {}
    return FlowNode(
        name=name,
        target=_target(node),
        needs=tuple(sorted(_name(workspace, need) for need in needs)),
        desc=node.desc or "",
        **_settings(name, meta),
    )


def _name(workspace: Path, node: "DvcStage") -> str:
    path = os.path.relpath(node.path, workspace)
    stage = getattr(node, "name", None)
    if stage is None:
        return path
    return stage if path == PROJECT_FILE else f"{path}:{stage}"


def _target(node: "DvcStage") -> str:
    stage = getattr(node, "name", None)
    return node.path if stage is None else f"{node.path}:{stage}"


def _settings(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "gpus": _count(name, meta, "gpus") * (processes() if meta.get("team") else 1),
        "retries": _count(name, meta, "retries"),
        "zone": _zone(name, meta),
        "receipt": meta.get("receipt"),
    }
    may_spend_again = settings["zone"] == Zone.PRIVATE or settings["receipt"] is not None
    if settings["retries"] and may_spend_again:
        raise ParamsError(
            f"Stage {name!r} asks for retries in dvc.yaml, but may read private rows: a retry is a second charge.",
            "Remove meta.retries, or say meta.zone: public (or dp) if the stage reads nothing private.",
        )
    return settings


def _zone(name: str, meta: Mapping[str, Any]) -> Zone:
    told = meta.get("zone", Zone.PRIVATE)
    if told not in tuple(Zone):
        raise ParamsError(f"Stage {name!r} has meta.zone {told!r} in dvc.yaml.", f"Use one of {', '.join(Zone)}.")
    return Zone(told)


def _count(name: str, meta: Mapping[str, Any], key: str) -> int:
    value = meta.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParamsError(f"Stage {name!r} has meta.{key} {value!r} in dvc.yaml.", "Write a whole number from 0.")
    return value


class DeviceError(PalimpsestError):
    """A stage asks for more devices than the machine has."""


class Stopped(Exception):
    """The flow is stopping: nothing new may start."""


class Slots:
    """Hands out the right to run, together with the devices asked for: both or none, so that no two stages deadlock.

    A stage that asks for no device never waits for one, and sees the machine as it is. Where there is none, no stage
    waits: all of them compute on the CPU.
    """

    def __init__(self, workers: int, devices: Sequence[str]) -> None:
        """`workers` stages at most run at once, on `devices`, ids as CUDA_VISIBLE_DEVICES understands them.

        An id that is there n times is a device that n stages share; no stage has it twice.
        """
        validate.require_positive(workers=workers)
        self._total = len(set(devices))
        self._devices = list(devices)
        self._workers = workers
        self._stopped = False
        self._changed = threading.Condition()

    def check(self, stages: Iterable[FlowNode]) -> None:
        """Raise DeviceError if a stage could wait for ever."""
        for stage in stages:
            if 0 < self._total < stage.gpus:
                raise DeviceError(
                    f"Stage {stage.name!r} asks for {stage.gpus} GPU(s) and this machine has {self._total}.",
                    "Lower PALIMPSEST_PROCESSES, or set compute.device to cpu.",
                )

    @contextmanager
    def take(self, gpus: int) -> Iterator[dict[str, str]]:
        """Wait for a turn; yield the variables that show the stage its devices. Raises Stopped."""
        held = self._acquire(gpus if self._total else 0)
        try:
            yield {"CUDA_VISIBLE_DEVICES": ",".join(held)} if held else {}
        finally:
            self._release(held)

    def stop(self) -> None:
        """Make every waiter, and everyone who comes later, raise Stopped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _acquire(self, gpus: int) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._workers > 0 and len(self._free()) >= gpus))
            if self._stopped:
                raise Stopped
            self._workers -= 1
            held = self._free()[:gpus]
            for device in held:
                self._devices.remove(device)
            return held

    def _free(self) -> list[str]:
        """Devices with a place left, each once."""
        return list(dict.fromkeys(self._devices))

    def _release(self, held: Iterable[str]) -> None:
        with self._changed:
            self._workers += 1
            self._devices.extend(held)
            self._changed.notify_all()


def workers_of(cores: int) -> int:
    """Return how many stages run at once by default: two on few cores, else as many as leave each four.

    >>> [workers_of(cores) for cores in (1, 2, 4, 8, 16)]
    [1, 2, 2, 2, 4]
    """
    return max(min(2, cores), cores // 4)


def share(workers: int, cores: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that divide the cores among so many stages; none where the environment already does.

    >>> share(2, 16, {}), share(32, 16, {}), share(2, 16, {"OMP_NUM_THREADS": "3"}), share(2, 16, {PROCESSES: "4"})
    ({'OMP_NUM_THREADS': '8'}, {'OMP_NUM_THREADS': '1'}, {}, {})
    """
    said = "OMP_NUM_THREADS" in environ or PROCESSES in environ  # several processes of a stage divide by themselves
    return {} if said else {"OMP_NUM_THREADS": str(max(1, cores // workers))}


def shared_devices(wanted: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the devices that stages share under this `compute.device`; none on the CPU.

    >>> shared_devices("auto", {"CUDA_VISIBLE_DEVICES": "a,b"})
    ('a', 'b')
    >>> shared_devices("cuda:1", {"CUDA_VISIBLE_DEVICES": "a,b"})
    ('b',)
    >>> shared_devices("mps"), shared_devices("cpu")
    (('mps',), ())
    """
    kind, _, number = wanted.partition(":")
    if kind in (CPU, MPS):
        return (MPS,) if kind == MPS else ()
    found = visible_devices(environ)
    return found[int(number) :][:1] if number.isdecimal() else found


def visible_devices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Ids of this machine's NVIDIA devices, or of those that CUDA_VISIBLE_DEVICES leaves; empty without any.

    >>> visible_devices({"CUDA_VISIBLE_DEVICES": "0, 2"})
    ('0', '2')
    >>> visible_devices({"CUDA_VISIBLE_DEVICES": "-1"})
    ()
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return _installed_devices()
    ids = [device.strip() for device in listed.split(",")]
    return tuple(device for device in ids if device not in ("", "-1"))


def _installed_devices() -> tuple[str, ...]:
    query = shutil.which("nvidia-smi")
    if query is None:
        return ()
    # By identifier: nvidia-smi and CUDA may number the devices differently.
    command = [query, "--query-gpu=uuid", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(answer.stdout.split()) if answer.returncode == 0 else ()
