"""Child processes that can all be stopped, with everything they started; only their user can open what they make."""

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from flows.slots import Stopped
from palimpsest.files import OWNER_UMASK
from palimpsest.work.repro import GRACE_SECONDS, end


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
        """End every child and start no more; see `processes.end`."""
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
