"""A process that has imported the libraries already, and forks a child for each run of tests.

Importing them takes longer than most of these tests. The project itself is imported by the children alone, each time
from its files as they are then.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

_LIBRARIES = (
    "altair", "cryptography.hazmat.primitives.ciphers", "dp_accounting.pld", "dp_accounting.rdp", "dvc.repo", "grimp",
    "hypothesis.extra.numpy", "jinja2", "numba", "opendp.prelude", "pandas", "peft", "pyarrow.parquet", "pydantic",
    "ruamel.yaml", "safetensors.torch", "scipy.optimize", "scipy.stats", "sentence_transformers", "sklearn.ensemble",
    "sklearn.linear_model", "sqlalchemy", "tokenizers", "torch.distributed", "tqdm",
    "transformers.models.gpt2.modeling_gpt2", "transformers.models.llama.modeling_llama",
    "transformers.models.opt.modeling_opt", "typer",
)  # fmt: skip
_TICK = 0.05  # seconds between two looks at a child


class Nursery:
    """The parent's end: runs of pytest in a folder, one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, arguments: Sequence[str], timeout: float) -> tuple[int | None, str]:
        """The exit status of pytest, None where it was ended after `timeout` seconds, and what it printed.

        Raises:
            RuntimeError: the nursery has ended.
        """
        print(
            json.dumps({"arguments": list(arguments), "timeout": timeout}), file=_open(self._process.stdin), flush=True
        )
        if not (line := _open(self._process.stdout).readline()):
            raise RuntimeError("the process that runs tests has ended")
        found = json.loads(line)
        return found["status"], found["told"]


@contextmanager
def opened(folder: Path, environment: Mapping[str, str]) -> Iterator[Nursery]:
    """A nursery in a folder, as long as the block runs."""
    command, pipe = [sys.executable, "-m", "bench.mutants.nursery"], subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=dict(environment), text=True, stdin=pipe, stdout=pipe) as process:
        yield Nursery(process)
        _open(process.stdin).close()


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main() -> None:
    """Answer each line of standard input."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_ran(**json.loads(line))), flush=True)


def _ran(arguments: list[str], timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            _grow(arguments, told.fileno())
        status = _waited(child, timeout)
        told.seek(0)
        return {"status": status, "told": told.read()}


def _grow(arguments: list[str], output: int) -> None:
    """The child: it has a process group of its own, so that what its tests started ends with it."""
    status: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = pytest.main(arguments)
    finally:
        sys.stdout.flush()
        os._exit(int(status))


def _waited(child: int, timeout: float) -> int | None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_TICK)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
