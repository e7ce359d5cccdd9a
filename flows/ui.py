"""A local Prefect server around a flow, for its user interface. Imports no Prefect itself."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType

from flows.environment import URL, WATCHED, WORD, environment
from palimpsest.errors import PalimpsestError
from palimpsest.files import OWNER_UMASK, make_folder
from palimpsest.work.repro import STOPPED, catch_termination, run_command
from stages.common import end_with_starter

_HOST = "127.0.0.1"
_START_SECONDS = 180.0
_STOP_SECONDS = 0.5  # its database needs no orderly shutdown
_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 5.0


class ServerError(PalimpsestError):
    """The local Prefect server does not start."""


def run_with_server(
    workspace: Path,
    stay: bool,
    targets: Sequence[str] = (),
    workers: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    courses: Callable[[Callable[[Sequence[str]], int]], int] | None = None,
    keeps: Sequence[int] = (),
) -> int:
    """Run the flow against PREFECT_API_URL, or else a server of its own, and print the interface's address.

    Args:
        stay: keep the own server open afterwards, until Ctrl-C.
        courses: runs several flows, one after another, in place of `targets`: it is given a function that runs a flow
            of some targets, and returns the exit code of all.

    Returns:
        The flow's exit code: 0 if all is up to date, 130 if it was interrupted, else 1.

    Raises:
        ServerError: the server ended, or gave no answer in three minutes.
    """
    command = [sys.executable, "-P", "-m", "flows", str(workspace)]
    options = [] if workers is None else ["--workers", str(workers)]
    with catch_termination(), _api(workspace) as (address, is_ours):
        _tell("", address, is_ours)
        own = {**environment(workspace), **variables, **address, WATCHED: "1"}

        def bring(chosen: Sequence[str]) -> int:
            return _run([*command, *chosen, *options], own, keeps)

        code = bring(targets) if courses is None else courses(bring)
        if stay and is_ours and code in (0, 1):
            _wait_for_interrupt()
    return code


def serve_with_server(
    workspace: Path,
    targets: Sequence[str],
    *,
    cron: str | None,
    timezone: str | None,
    workers: int | None,
    anyway: bool,
) -> int:
    """Serve the runs of a workspace, against PREFECT_API_URL or else a server of its own, until Ctrl-C.

    Returns:
        The exit code: 130 after Ctrl-C.

    Raises:
        ServerError: the server ended, or gave no answer in three minutes.
    """
    options = {"--cron": cron, "--timezone": timezone, "--workers": workers}
    given = [str(part) for name, value in options.items() if value is not None for part in (name, value)]
    given += ["--anyway"] * anyway
    command = [sys.executable, "-P", "-m", "flows", str(workspace), *targets, "--serve", *given]
    with catch_termination(), _api(workspace) as (address, is_ours):
        at = "only" if cron is None else f"at {cron!r}, {timezone}, and"
        _tell("/deployments", address, is_ours)
        print(
            f"Runs {at} when asked in the interface, until Ctrl-C. Nobody is asked: what needs the owner's word does "
            "not happen.",
            flush=True,
        )
        code = _run(command, {**environment(workspace), **address, WATCHED: "1"}, ())
    if code == STOPPED:
        print("Nothing runs by itself any more. `palimpsest ledger` shows what was charged.", flush=True)
    return code


@contextmanager
def server(workspace: Path) -> Iterator[dict[str, str]]:
    """A Prefect server on a free local port, its database in the workspace; yields the variables that lead to it.

    It answers only those who send its secret word, which is new at each start. Others who can reach the port, such as
    other users of the machine and pages in its browsers, can neither read what runs reported nor start any.

    Raises:
        ServerError: it ended, or gave no answer in three minutes.
    """
    port = _free_port()
    url = f"http://{_HOST}:{port}/api"
    word = f"palimpsest:{secrets.token_urlsafe(16)}"
    # Its pages ask port 4200 for their data unless told otherwise.
    variables = {**environment(workspace), "PREFECT_UI_API_URL": url, "PREFECT_SERVER_API_AUTH_STRING": word}
    log = Path(variables["PREFECT_HOME"]) / "server.log"
    make_folder(log.parent)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", _HOST, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            umask=OWNER_UMASK, preexec_fn=end_with_starter,
        )  # fmt: skip
    try:
        _wait_until_healthy(process, f"{url}/health", log)
        yield {URL: url, WORD: word}
    finally:
        _end(process, signal.SIGTERM)


@contextmanager
def _api(workspace: Path) -> Iterator[tuple[dict[str, str], bool]]:
    given = os.environ.get(URL)
    if given:
        require_answer(given)
        yield {URL: given}, False
        return
    with server(workspace) as address:
        yield address, True


def _tell(page: str, address: Mapping[str, str], is_ours: bool) -> None:
    word = f", whose word is {address[WORD]}" if is_ours else ""
    print(f"Prefect UI: {address[URL].removesuffix('/api')}{page}{word}", flush=True)


def require_answer(url: str) -> None:
    """Raise ServerError where nobody answers at the API that PREFECT_API_URL names."""
    if not _answers(urllib.request.build_opener(), f"{url}/health", any_status=True):
        raise ServerError(f"The Prefect server of {URL} does not answer.", "Start it, or name another.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline, direct = time.monotonic() + _START_SECONDS, urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(direct, url):
            return
        time.sleep(_POLL_SECONDS)
    raise ServerError("The local Prefect server does not start.", f"Read {log}, or run without the interface.")


def _answers(opener: urllib.request.OpenerDirector, url: str, *, any_status: bool = False) -> bool:
    try:
        with opener.open(url, timeout=_ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError:
        return any_status
    except (OSError, HTTPException):
        return False


def _run(command: Sequence[str], variables: Mapping[str, str], keeps: Sequence[int]) -> int:
    try:
        return run_command(command, Path.cwd(), variables, keeps)
    except KeyboardInterrupt:
        return STOPPED


def _end(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for_interrupt() -> None:
    print("The interface stays open until Ctrl-C.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
