"""The resources that stages share: how many may run at once, and which devices each has to itself."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from flows.graph import FlowNode
from palimpsest import validate
from palimpsest.devices import CPU, MPS
from palimpsest.errors import PalimpsestError
from stages.common import PROCESSES


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
