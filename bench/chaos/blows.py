"""Blows other than kills: to disks, files, clocks, locks and servers."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.chaos import kills
from bench.chaos.place import MODEL, Place
from bench.chaos.postgres import restarted
from palimpsest.workspace import CHECKPOINTS, EMBEDDINGS, LOCK, SHARDS

Strike = Callable[[Place, Sequence[str], random.Random], Iterator[str]]
FAKETIME = "CHAOS_FAKETIME"  # the place of libfaketime.so.1, where it is there
_DISK_MB, _LEAST_KB = 420, 64
_POLL_SECONDS, _MOST_SECONDS = 0.1, 1800.0
_BYTES = 64


# --- disks ------------------------------------------------------------------------------------------------------------


def full_disk(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """The disk of workspace, ledger and witnesses fills up at some moment after the first stage began."""
    with own_disk(place.home):
        child = place.start(*arguments)
        _wait_for(place, "Running stage", child.wait)
        kills.wait_a_while(place, child, "--ui" in arguments, draw)
        at_work = kills.stage_of(place)
        _fill(place.home / "filler")
        child.wait(_MOST_SECONDS)
        (place.home / "filler").unlink()
    yield f"{at_work}: {_last(place)}"


def read_only(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """The disk may not be written."""
    with own_disk(place.home):
        subprocess.run(["mount", "-o", "remount,ro", str(place.home)], check=True)
        outside = replace(place, printed=str(place.home.parent / "read-only.log"))
        code, _ = outside.run(*arguments)
        subprocess.run(["mount", "-o", "remount,rw", str(place.home)], check=True)
    yield f"exit status {code}: {_last(outside)}"


@contextmanager
def own_disk(home: Path) -> Iterator[None]:
    """A small disk in memory under a folder, with what lay there; all is put back at the end."""
    aside = home.with_name(f"{home.name}-aside")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(home, aside, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "none", str(home)], check=True)
    try:
        shutil.copytree(aside, home, symlinks=True, dirs_exist_ok=True)
        yield
        shutil.rmtree(aside)
        shutil.copytree(home, aside, symlinks=True)
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)
    shutil.rmtree(home)
    aside.rename(home)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


# --- files ------------------------------------------------------------------------------------------------------------


def cache_object(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """After a whole run: every object of DVC's cache is torn, and the rows of a public stage are gone."""
    place.run(*arguments)
    torn = [tear(path, draw) for path in (place.workspace / ".dvc/cache/files").rglob("*") if path.is_file()]
    for path in (place.workspace / "data/synthetic").glob("public_only.*"):
        path.unlink()
    yield f"{len(torn)} objects"


def checkpoint(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """A training is killed after a step, and its checkpoint is torn."""
    child = place.start(*arguments[:2], "dp_train")
    _wait_for(place, "progress train", child.wait)
    kills.end(place)
    child.wait(_MOST_SECONDS)
    kills.left_behind(place)
    torn = [tear(path, draw) for path in (place.workspace / CHECKPOINTS).glob("*") if path.is_file()]
    yield f"{len(torn)} checkpoints of {MODEL}"


def torn_files(folder: Path, place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Files that stages keep or wrote are torn."""
    found = place.workspace / folder
    files = [found] if found.is_file() else [path for path in found.rglob("*") if path.is_file()]
    yield f"{len([tear(path, draw) for path in files])} files"


def lock_file(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """DVC's lock file loses its second half, and the files with locks hold nothing of use."""
    lock = place.workspace / LOCK
    lock.write_bytes(lock.read_bytes()[: lock.stat().st_size // 2])
    for path in (".palimpsest/run.lock", ".dvc/tmp/rwlock"):
        (place.workspace / path).write_text("{half")
    code, _ = place.run(*arguments)
    told = _last(place)
    if code:
        lock.unlink()
    yield f"exit status {code}: {told}"


def tear(path: Path, draw: random.Random) -> Path:
    """Overwrite some bytes in the middle of a file."""
    path.chmod(0o600)
    body = bytearray(path.read_bytes())
    place = draw.randrange(max(1, len(body) - _BYTES))
    body[place : place + _BYTES] = draw.randbytes(min(_BYTES, len(body)))
    path.unlink()
    path.write_bytes(body)
    return path


# --- clocks, runs, servers --------------------------------------------------------------------------------------------


def clock(days: int, place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """The clock of DVC and of the stages jumps once a stage has begun, and jumps back before the next run."""
    note = place.home / "clock"
    note.write_text("+0")
    fake = {
        "LD_PRELOAD": os.environ[FAKETIME], "FAKETIME_TIMESTAMP_FILE": str(note), "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    child = place.start(*arguments, **fake)
    _wait_for(place, "Running stage", child.wait)
    note.write_text(f"{days:+}d")
    child.wait(_MOST_SECONDS)
    times = sorted(charge.time[:10] for charge in place.charges)
    yield f"exit status {child.code}, charges from {times[0]} to {times[-1]}"


def two_runs(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """A second run is started while one is at work, and a bare `dvc repro` beside both."""
    first = place.start(*arguments)
    _wait_for(place, "Running stage", first.wait)
    beside = replace(place, printed="second.log")
    second, _ = beside.run(*arguments)
    told = _last(beside)
    bare = subprocess.Popen(["dvc", "repro", "select"], cwd=place.workspace, env=place.variables, **_SILENT)
    first.wait(_MOST_SECONDS)
    yield f"exit status {first.wait()} and {second} ({told}), bare {bare.wait()}"


def store_down(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """`dvc push` to a store where nobody listens, while a run is at work."""
    for command in (["remote", "add", "--default", "down", "s3://bucket/files"], ["remote", "modify", "down", *_DOWN]):
        subprocess.run(["dvc", *command], cwd=place.workspace, env=place.variables, check=True, **_SILENT)
    run = place.start(*arguments)
    _wait_for(place, "Running stage", run.wait)
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1"}
    push = subprocess.run(["dvc", "push"], cwd=place.workspace, env={**place.variables, **keys}, check=False, **_SILENT)
    yield f"push {push.returncode}, run {run.wait(_MOST_SECONDS)}"


def _wait_for(place: Place, words: str, ended: Callable[[], int | None]) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while words not in place.log.read_text(errors="replace") and ended() is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _last(place: Place) -> str:
    """The last error that was told, or the last line."""
    lines = [line.strip() for line in place.log.read_text(errors="replace").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("error")), lines[-1] if lines else "")


_SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_DOWN = ("endpointurl", "http://127.0.0.1:9")
# Kind -> what deals it, under which runners, how often.
BLOWS: dict[str, tuple[Strike, tuple[str, ...], int]] = {
    "full disk": (full_disk, ("dvc", "prefect"), 2),
    "read-only disk": (read_only, ("dvc",), 1),
    "corrupt cache": (cache_object, ("dvc",), 1),
    "corrupt checkpoint": (checkpoint, ("dvc",), 1),
    "corrupt shard": (partial(torn_files, SHARDS), ("dvc",), 1),
    "corrupt vectors": (partial(torn_files, EMBEDDINGS), ("dvc",), 1),
    "corrupt lock file": (lock_file, ("dvc",), 1),
    "two runs at once": (two_runs, ("dvc", "prefect"), 1),
    "store down": (store_down, ("dvc",), 1),
    "PostgreSQL restarted": (restarted, ("dvc", "prefect"), 2),
    **({"clock +400 days": (partial(clock, 400), ("dvc",), 1)} if FAKETIME in os.environ else {}),
    **({"clock -400 days": (partial(clock, -400), ("dvc",), 1)} if FAKETIME in os.environ else {}),
}
