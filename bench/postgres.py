"""A PostgreSQL server of our own, on a socket in a folder of its own, for tests and benches."""

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def tool(name: str) -> str | None:
    """Where a program of PostgreSQL's lies, None where it is not installed."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(versions[-1]) if versions else shutil.which(name)


def server_user() -> str:
    """PostgreSQL refuses to run as root: then it runs as its own user, or as nobody."""
    if os.geteuid() != 0:
        return getpass.getuser()
    return next(entry.pw_name for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)


@contextmanager
def server(*settings: str) -> Iterator[str]:
    """Start one, yield the URL of its superuser, end it and remove what it wrote."""
    home = tempfile.mkdtemp(prefix="pg")
    account = pwd.getpwnam(server_user())
    os.chown(home, account.pw_uid, account.pw_gid)
    other: dict[str, Any] = (
        {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    flags = " ".join(f"-c {each}" for each in ("listen_addresses=''", f"unix_socket_directories={home}", *settings))

    def call(name: str, *arguments: str) -> None:
        command = [str(tool(name)), "-D", f"{home}/data", *arguments]
        subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=60, **other)

    call("initdb", "-U", "palimpsest", "-A", "trust", "--no-sync")
    call("pg_ctl", "-l", f"{home}/log", "-w", "-o", flags, "start")
    try:
        yield f"postgresql+psycopg://palimpsest@/postgres?host={home}"
    finally:
        call("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)
