"""Starts the processes of one machine that train together, and finds which of them was lost."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from palimpsest.devices import MEETING
from palimpsest.errors import TeamError
from stages.common import LOST

_PATIENCE = 30.0  # seconds that a process has to end by itself once it is told to


def launch(count: int, module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module` in so many processes of a team; return when all have ended.

    They find each other by a file that only their user can reach, and speak over the loopback: nobody else can join.

    Raises:
        TeamError: one of them was lost.
        SystemExit: one has failed, and reported why.
        KeyboardInterrupt: this process was told to end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = [sys.executable, "-m", module, *arguments]
    members: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for rank in range(count):
                place = os.environ | _place(rank, count, Path(folder))
                members.append(subprocess.Popen(command, env=place, start_new_session=True))
            while any(code is None for code in _codes(members)) and not any(_codes(members)):
                time.sleep(0.05)
        finally:
            status = _end(members)
    told = [code for code in status.values() if code > 0 and code != LOST]
    if told:
        raise SystemExit(told[0])
    if any(status.values()):
        raise TeamError(f"Of {count} processes that trained together {name_lost(status)}.")


def _place(rank: int, count: int, folder: Path) -> dict[str, str]:
    """Return the variables that tell a process its place, where the others are, and to use one core by default."""
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    spoken = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), loopback)
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return {MEETING: str(folder / "meeting")} | ranks | spoken | threads


def _codes(members: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    return [each.poll() for each in members]


def _end(members: Sequence[subprocess.Popen[bytes]]) -> dict[int, int]:
    """Return how each ended, by rank; those that go on are told to end, and killed if they do not."""
    for each in members:
        if each.poll() is None:
            each.terminate()
    until = time.monotonic() + _PATIENCE
    for each in members:
        try:
            each.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.kill()
    return {rank: each.wait() for rank, each in enumerate(members)}


def name_lost(status: Mapping[int, int]) -> str:
    """Name the process that a signal ended, and the signal; the rest were ended because of it.

    >>> name_lost({0: -15, 1: -9}), name_lost({0: -15, 1: 3}), name_lost({0: 3, 1: 3})
    ('number 1 was ended by SIGKILL', 'number 0 was ended by SIGTERM', 'one could not reach another')
    """
    killed = {rank: -code for rank, code in status.items() if code < 0}
    first = min(killed, key=lambda rank: killed[rank] == signal.SIGTERM, default=None)
    if first is None:
        return "one could not reach another"
    return f"number {first} was ended by {signal.Signals(killed[first]).name}"
