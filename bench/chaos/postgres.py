"""A PostgreSQL server of our own, the ledger of a place moved to it, and restarts while a run is at work."""

import atexit
import os
import pwd
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import sqlalchemy as sa

from bench.chaos import kills
from bench.chaos.place import Place
from bench.postgres import server_user, tool
from palimpsest.privacy.ledger import database
from palimpsest.privacy.ledger.ledger import Ledger

_RESTARTS = 2


def restarted(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """The server that has the ledger is restarted at once, twice while a run is at work; the run may fail."""
    control = server()
    move(place, control.url)
    child = place.start(*arguments)
    for _ in range(_RESTARTS):
        kills.wait_a_while(place, child, "--ui" in arguments, draw)
        control.call("-m", "immediate", "restart")
    code = child.wait(1800.0)
    yield f"{kills.stage_of(place)}: exit status {code}"


class Server:
    """A server that listens on a socket in a folder of its own."""

    def __init__(self, home: str, call: Callable[..., None]) -> None:
        """`call` runs pg_ctl on it."""
        self.url, self.call = f"postgresql+psycopg://palimpsest@/postgres?host={home}", call


@cache
def server() -> Server:
    """The one server of this process, which ends with it."""
    home = tempfile.mkdtemp(prefix="pg")
    account = pwd.getpwnam(server_user())
    os.chown(home, account.pw_uid, account.pw_gid)
    other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    run = partial(subprocess.run, cwd=home, check=True, stdout=subprocess.DEVNULL, timeout=600, **other)
    settings = f"-c listen_addresses='' -c unix_socket_directories={home}"
    run([tool("initdb"), "-D", f"{home}/data", "-U", "palimpsest", "-A", "trust"])

    def call(*arguments: str) -> None:
        run([tool("pg_ctl"), "-D", f"{home}/data", "-l", f"{home}/log", "-w", "-o", settings, *arguments])

    call("start")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    atexit.register(call, "-m", "immediate", "stop")
    return Server(home, call)


def move(place: Place, url: str) -> None:
    """Take the place's ledger into the server's database, which is emptied first, and go on there."""
    engine = sa.create_engine(url)
    database.meta.drop_all(engine)
    engine.dispose()
    Ledger.create(url).take_in(place.ledger.export())
    (place.home / "ledger.db").unlink()
    (place.home / "url").write_text(url)
