"""An S3-compatible server of our own on loopback, for tests and benches; each folder in its folder is a bucket."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server(folder: Path, key: str, secret: str) -> Iterator[str]:
    """Start one that asks for a key, yield its address, end it."""
    tool = str(Path(sys.executable).with_name("rclone"))
    command = [tool, "serve", "s3", str(folder), "--addr", "127.0.0.1:0", "--auth-key", f"{key},{secret}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "[http://" in line)
        yield line.partition("[")[2].rstrip().rstrip("/]")
        process.terminate()
