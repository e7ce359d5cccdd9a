"""A `python` for the stages of a test's `dvc repro` that has read the large libraries already.

A stage spends most of its seconds here on importing torch and transformers. `bin_folder` starts one process that has
imported them, and gives a folder with a `python` that runs each module in a fork of it: own working directory,
environment, arguments, output and exit status, and everything of palimpsest imported anew. Runs that are signalled
start the real one.
"""

import functools
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

LIBRARIES = (
    "torch", "transformers.modeling_utils", "transformers.models.gpt2.modeling_gpt2", "sentence_transformers",
    "sklearn.ensemble", "sklearn.feature_extraction.text", "scipy.stats", "numba", "dp_accounting.pld",
    "opendp.prelude", "pyarrow.parquet", "sqlalchemy", "pydantic", "jsonschema", "ruamel.yaml",
)  # fmt: skip
_FORKS_WELL = {"jemalloc_bg_thd"}  # threads that a library starts anew in a fork
_TASKS = Path("/proc/self/task")
_KEPT: list[object] = []  # what lives as long as this process


@functools.cache
def bin_folder() -> Path:
    """The folder to put first on the path of `dvc repro`; its process ends with this one."""
    if not _TASKS.is_dir():  # only Linux tells which threads a fork would lose
        return Path(sys.executable).parent
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    place = Path(folder.name) / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    command = [sys.executable, "-P", __file__, "serve", str(listener.fileno())]
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}  # read at the start of Python alone
    server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd="/", env=variables)
    listener.close()  # the server's alone: if that dies, the stage fails
    _KEPT.extend([folder, server])
    python = Path(folder.name) / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" ask "{place}" "$@"\n')
    python.chmod(0o700)
    return python.parent


def ask(place: str, *arguments: str) -> int:
    """Have `python arguments` run in a fork of the server; its exit status. Only `-P -m module` is known."""
    assert arguments[:2] == ("-P", "-m"), arguments
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps([os.getcwd(), dict(os.environ), *arguments[2:]]).encode())
        server.shutdown(socket.SHUT_WR)
        return int(server.makefile().read())


def serve(listener: socket.socket) -> None:
    """Answer one after the other until standard input ends."""
    for name in LIBRARIES:
        import_module(name)
    assert _threads() <= _FORKS_WELL, f"a fork would lose one of the threads {_threads()}"
    gc.freeze()  # what every fork shares
    while listener in select.select([listener, 0], [], [])[0]:
        connection = listener.accept()[0]
        child = os.fork()
        if child == 0:
            listener.close()
            _run(connection)
            return
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(code if code >= 0 else 128 - code).encode())
        connection.close()


def _threads() -> set[str]:
    """Names of the threads of this process beside its first."""
    others = [task for task in _TASKS.iterdir() if task.name != str(os.getpid())]
    return {(task / "comm").read_text().strip() for task in others}


def _run(connection: socket.socket) -> None:
    files = socket.recv_fds(connection, 1, 3)[1]
    folder, variables, module, *arguments = json.loads(connection.makefile().read())
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    _become(folder, variables)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _become(folder: str, variables: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    given = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*given, *(path for path in sys.path if path not in given)]


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(*sys.argv[2:]))
    serve(socket.socket(fileno=int(sys.argv[2])))
