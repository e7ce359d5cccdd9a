"""Starts stages warm: one process reads the large libraries once, and each stage runs in a fork of it.

A stage pays some five seconds of processor time for importing torch, transformers and their like. `serve_stages` starts
a process, the server, that has imported them, and names its socket in the environment. A stage that is started as
`python -P -m stages.NAME` hands itself over (`hand_over`): it runs in a fork, with its own folder, environment,
arguments, open files, signals and exit status. It starts cold wherever this does not fit: without the variable,
elsewhere than on Linux, with settings in the environment that a library reads at its import, or if the server has died.

Guarantee: a fork is as private, and as random, as a new process.

* The server reads no file of a workspace. It imports only libraries; palimpsest is imported anew in each fork.
* The operating system's random bytes, from which keys and noise are drawn, have no state in a process.
* `numpy` and `torch` have generators in the process: each fork seeds them anew from the operating system. `random` and
  `uuid` need no help: Python itself seeds the former anew, and the latter asks the operating system.
* OpenSSL, under `ssl`, `hashlib`, `cryptography` and OpenDP's library, seeds itself anew after a fork.
* OpenDP's library is not in the server all the same, as a precaution: each fork loads it as a new process would.

`_require_fit` checks this before the first fork. It also checks that no thread would be lost, and that no GPU is in
use. A server that is not fit ends, and all stages start cold.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

VARIABLE = "PALIMPSEST_WARM"  # the socket's place; set but empty, all stages start cold
GRACE_SECONDS = 1.5  # from an interrupt to a terminate; a Ctrl-C ends all within three seconds
STOPPED = 130  # the shell's number for Ctrl-C

LIBRARIES = (
    "torch", "transformers.modeling_utils", "transformers.models.auto.modeling_auto",
    "transformers.models.gpt2.modeling_gpt2", "transformers.models.bert.modeling_bert", "sentence_transformers",
    "sklearn.cluster", "sklearn.ensemble", "sklearn.feature_extraction.text", "sklearn.linear_model", "scipy.stats",
    "numba", "pyarrow.parquet", "dp_accounting.pld", "sqlalchemy.orm", "pydantic.main", "jsonschema",
    "cryptography.hazmat.primitives.ciphers", "ruamel.yaml", "threadpoolctl", "psutil",
)  # fmt: skip
_EXTRA = ("pandas",)  # read by pyarrow at its first table, where it is installed
_LIGHT = "stages.inputs"  # runs even where nothing else does, and needs none of them
_OURS = {"palimpsest", "palimpsest_lab", "stages", "flows"}
_KEPT_OUT = ("opendp",)  # native code kept out as a precaution, as files that a process has mapped
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")  # open once a GPU is in use: importing torch maps only its driver
_FORKS_WELL = {"jemalloc_bg_thd"}  # threads that a library starts anew in a fork
_THREADS = "OMP_NUM_THREADS"
# Variables that may differ between a fork and the server: no library reads them at its import, or `_become` sets them.
_MAY_DIFFER = {
    "PATH", "PWD", "OLDPWD", "SHLVL", "_", "NO_PROXY", "no_proxy", "DO_NOT_TRACK", "TOKENIZERS_PARALLELISM",
    "CUDA_VISIBLE_DEVICES", _THREADS,
}  # fmt: skip
_OWN = ("PALIMPSEST_", "DVC_", "PREFECT_")
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_TAKEN = b"+"
PR_SET_PDEATHSIG = 1
_PROCESS = Path("/proc/self")


# --- who runs stages --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serve_stages(variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield what to add to the environment of stages, so that they start warm while this lasts; nothing if they cannot.

    Args:
        variables: the environment that stages have otherwise.
    """
    if VARIABLE in variables or not _can_fork():
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:  # its user's only, whatever the umask is
        place = str(Path(folder) / "socket")
        with _server(place, {**variables, "PYTHONUNBUFFERED": "1", _THREADS: "1"}):
            yield {VARIABLE: place}


def _can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and (_PROCESS / "maps").is_file()


@contextlib.contextmanager
def _server(place: str, variables: Mapping[str, str]) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, pass_fds=[listener.fileno()], cwd="/", env=dict(variables),
            start_new_session=True,  # a Ctrl-C reaches a stage once, through the process that handed it over
        )  # fmt: skip
    try:  # the socket is now only the server's: when that dies, stages start cold
        yield
    finally:
        process.kill()  # a stage that still runs has a keeper of its own
        process.communicate()


# --- a stage that hands itself over -----------------------------------------------------------------------------------


def hand_over() -> None:
    """Run this process's module in a fork of the server and end as it ends; return where it must start cold."""
    with socket.socket(socket.AF_UNIX) as server:
        if sys.orig_argv[3] == _LIGHT or not _ask_server(server):
            return
        with _signals_held():
            if _read(server, 1) != _TAKEN:  # so no fork has begun
                return
            for number in _PASSED_ON:
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, lambda told, frame: _pass_on(server, told, frame))
        status = b"".join(iter(lambda: _read(server, 8), b""))
    if not status:
        print("error: A stage's process was lost.\n  what to do: Run again.", file=sys.stderr, flush=True)
    os._exit(int(status or 1))


def _ask_server(server: socket.socket) -> bool:
    """Tell whether the server has answered at all: it may take seconds, and a Ctrl-C then ends the process."""
    request = Request(os.getcwd(), sys.path, dict(os.environ), sys.orig_argv[3:])
    try:
        server.connect(os.environ[VARIABLE])
        if _user_of(server) != os.getuid():  # nobody else may learn what a stage is told
            return False
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(f"{json.dumps(request)}\n".encode())
        return bool(select.select([server], [], [])[0])
    except OSError:
        return False
    except KeyboardInterrupt:
        os._exit(STOPPED)


def _read(server: socket.socket, most: int) -> bytes:
    """Read what comes next; nothing once the other side has ended, which is a reset if it had not read all."""
    try:
        return server.recv(most)
    except ConnectionResetError:
        return b""


def _user_of(server: socket.socket) -> int:
    told = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", told)[1])


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on(server: socket.socket, number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # the stage has just ended
        server.send(bytes([number]))


# --- the server, which forks a keeper for each stage, which forks the stage -------------------------------------------


class Request(NamedTuple):
    """The arguments and surroundings that a stage's own process was started with."""

    folder: str
    path: list[str]
    variables: dict[str, str]
    arguments: list[str]  # the module first


def serve(listener: socket.socket) -> None:
    """Import the libraries once the first stage asks, then answer each that asks, until standard input ends."""
    if not _is_asked(listener):
        return
    given = dict(os.environ)  # libraries add to it
    for name in (*LIBRARIES, *filter(find_spec, _EXTRA)):
        import_module(name)
    import_module("numba").njit(lambda: 0)()  # at its first function it reads tables that take half a second
    _require_fit()
    gc.freeze()  # what all forks share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while _is_asked(listener):
        connection = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep(connection, given)
        connection.close()


def _is_asked(listener: socket.socket) -> bool:
    """Wait for a stage; tell whether one came before standard input ended."""
    return listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]


def _require_fit() -> None:
    """Raise RuntimeError where a fork would not be as good as a new process."""
    others = (task for task in (_PROCESS / "task").iterdir() if task.name != str(os.getpid()))
    lost = {(task / "comm").read_text().strip() for task in others} - _FORKS_WELL
    mapped = (_PROCESS / "maps").read_text()
    shared = [name for name in _KEPT_OUT if name in mapped] + sorted(_OURS & sys.modules.keys())
    shared += [file for file in _open_files() if file.startswith(_DEVICES)]
    if lost or shared:
        raise RuntimeError(f"forks would lose the threads {sorted(lost)} and share {shared}")


def _open_files() -> Iterator[str]:
    for number in os.listdir(_PROCESS / "fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            yield os.readlink(_PROCESS / "fd" / number)


def keep(connection: socket.socket, given: Mapping[str, str]) -> NoReturn:
    """Fork the requested stage, pass on the signals that come for it, and report how it ended.

    A stage ends with its keeper, and its keeper with it. An exception of the stage ends it, and comes out here.

    Args:
        connection: to the process that asks.
        given: the environment that the libraries were imported in.
    """
    files = socket.recv_fds(connection, 1, 3)[1]
    line = connection.makefile().readline()
    request = Request(*json.loads(line)) if line else None
    if request is None or not fits(request.variables, given):
        os._exit(0)  # the asking process starts cold
    connection.sendall(_TAKEN)
    stage = os.fork()
    if stage == 0:
        connection.close()
        _run(request, files, {name: text for name, text in os.environ.items() if given.get(name) != text})
    with contextlib.suppress(PermissionError):  # it may have done so by itself, and be another program already
        os.setpgid(stage, stage)
    for file in files:
        os.close(file)
    _follow(connection, stage)
    code = os.waitstatus_to_exitcode(os.waitpid(stage, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(str(code if code >= 0 else 128 - code).encode())  # as a shell tells a signal
    os._exit(0)


def fits(variables: Mapping[str, str], ours: Mapping[str, str]) -> bool:
    """Tell whether libraries that were imported under `ours` are as they would be under `variables`.

    >>> fits({"PALIMPSEST_LEDGER": "x", "HOME": "/a", "OMP_NUM_THREADS": "4"}, {"HOME": "/a"})
    True
    >>> fits({"HF_HOME": "/b"}, {}), fits({"OMP_NUM_THREADS": "4,2"}, {}), fits({"CUDA_VISIBLE": "0"}, {})
    (False, False, False)
    """
    differing = {name for name in {*variables, *ours} if variables.get(name) != ours.get(name)}
    count = variables.get(_THREADS, "1")
    others = [name for name in differing - _MAY_DIFFER if not name.startswith(_OWN)]
    return not others and count.isdecimal() and int(count) > 0


def _follow(connection: socket.socket, stage: int) -> None:
    """Pass on signals until the stage has ended; end it, with all that it started, once nobody waits for it."""
    ended, passed = os.pidfd_open(stage), set[int]()
    while ended not in select.select([ended, connection.fileno()], [], [])[0]:
        told = connection.recv(1)
        if not told:
            _end(stage, ended, [number for number in _ENDING if number not in passed])
            return
        os.killpg(stage, told[0])
        passed.add(told[0])


def _end(stage: int, ended: int, numbers: Sequence[signal.Signals]) -> None:
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(stage, number)
        if number != signal.SIGKILL:
            select.select([ended], [], [], GRACE_SECONDS)


# --- the stage, in its fork -------------------------------------------------------------------------------------------


def _run(request: Request, files: list[int], added: Mapping[str, str]) -> NoReturn:
    keeper = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != keeper:
        os._exit(1)
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    _become(request, added)
    runpy.run_module(request.arguments[0], run_name="__main__", alter_sys=True)
    _leave()


def _leave() -> NoReturn:
    """End as an interpreter does, but without freeing its memory: that would copy hundreds of megabytes first.

    Forks of `multiprocessing` do the same.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _become(request: Request, added: Mapping[str, str]) -> None:
    """Set up all that a new process would have of its own, and what imports would have `added` to the environment."""
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update({**request.variables, **added})
    del os.environ[VARIABLE]
    sys.path[:], sys.argv = request.path, list(request.arguments)
    _set_threads(os.environ.get(_THREADS))
    _seed_anew()


def _set_threads(count: str | None) -> None:
    """Let libraries use as many threads as they would have found for themselves; the server has one."""
    import psutil
    import threadpoolctl
    import torch

    cores = len(os.sched_getaffinity(0))
    threadpoolctl.threadpool_limits(int(count or cores))
    torch.set_num_threads(int(count or min(cores, psutil.cpu_count(logical=False) or cores)))


def _seed_anew() -> None:
    """Give each generator that lives in the process a new state, from the operating system."""
    import numpy
    import torch

    numpy.random.seed()
    torch.seed()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
