"""`transformers serve` as a child process."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PATIENCE = 120.0  # seconds


@contextmanager
def transformers_serve(folder: Path) -> Iterator[str]:
    """The base URL of a server of the model in `folder`, whose name there is the folder's path."""
    port = _free_port()
    program = Path(sys.executable).with_name("transformers")
    command = [str(program), "serve", str(folder), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), _DIRECT.open(url, timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError(f"transformers serve did not start: {log.read_text()[-2000:]}")
