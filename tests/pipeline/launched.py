"""A stage in two processes, as `python -m tests.pipeline.launched HOW` starts it: the second does what it is told."""

import os
import signal
import time

import psutil

from palimpsest.errors import DataError
from stages.common import start_processes


def stage(how: str) -> None:
    """Come to an end as `how` says, or wait for the other to."""
    print(f"process {os.getpid()}", flush=True)
    second = os.environ["RANK"] == "1"
    if second and how == "lost":
        os.kill(os.getpid(), signal.SIGKILL)
    if second and how == "fails":
        raise DataError("A file is not there.", "Make it.")
    if how == "meets":
        from palimpsest.training.team import join_team  # torch, which the others need not wait for

        with join_team() as team:
            team.meet()
            for one in psutil.Process().net_connections("inet"):
                print("at", one.laddr.ip, flush=True)
            team.meet()
    elif how != "well":
        time.sleep(600)


if __name__ == "__main__":
    start_processes(stage)
