"""`python -m palimpsest.cli.repro [--single-item] [TARGET ...]`: does what `dvc repro` does, in our words.

Both runners start stages through it, and only here are DVC's own hints filtered out. After a Ctrl-C it records the
stage that is done, and begins no other: half of DVC's lock files would be worse than a moment's delay.
"""

import json
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from types import FrameType
from typing import TYPE_CHECKING, Any

from palimpsest.errors import PalimpsestError
from palimpsest.files import atomic_path
from stages.common import end_with_parent, name_runner
from stages.warm import STOPPED

if TYPE_CHECKING:
    from dvc.repo import Repo

BUSY = 75  # exit status: another DVC process uses the same files
_STARTS = "Running stage "
_HINTS = (
    "To track the changes with git", "To enable auto staging", "Updating lock file", "Generating lock file",
    "Process '%s' with (Pid %s), in RWLock-file", "'%s' is empty",  # as `release/` is where nothing may leave
)  # fmt: skip
_NOTE = re.compile("[0-9a-f]{64}")
_stopping = False


class _Stopping(BaseException):
    """Raised when the next stage would begin and must not."""


def silence_dvc() -> None:
    """Hide DVC's hints from the user: about `dvc push`, which private stages have no use for, about git and locks."""
    import dvc  # noqa: F401  # it sets its handlers up when it is imported

    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(_is_no_hint)


def reproduce(targets: Sequence[str], *, single_item: bool) -> int:
    """Bring stages up to date as `dvc repro` does, in the working directory; return its exit status."""
    from dvc.exceptions import DvcException
    from dvc.lock import LockError
    from dvc.repo import Repo
    from dvc.stage.exceptions import StageCmdFailedError

    silence_dvc()
    logging.getLogger("dvc.stage.run").addFilter(_is_allowed)
    try:
        with Repo(_wait_for_lock=True) as repo:  # a command that reads the state holds the lock for a moment
            discard_broken_lock(repo)
            _discard_broken_notes(repo)
            _write_locks_whole()
            repo.reproduce(list(targets) or None, single_item=single_item)
    except DvcException as error:
        causes = list(_causes(error))
        if any(isinstance(cause, LockError) for cause in causes):
            return _report_busy()
        failed = any(isinstance(cause, StageCmdFailedError) for cause in causes)
        _tell(
            f"{error}." if failed else f"{': '.join(map(_describe_error, causes))}.",
            "Read the stage's own lines above, then run again." if failed else "Correct it, then run again.",
        )
        return 1
    except _Stopping:
        return STOPPED
    return STOPPED if _stopping else 0


def discard_broken_lock(repo: "Repo") -> None:
    """Remove DVC's list of busy files if a killed DVC process left half of it: every later run would fail on it."""
    from dvc.lock import make_lock
    from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK

    folder = Path(repo.tmp_dir or repo.root_dir)
    hardlink = repo.config["core"].get("hardlink_lock", False)
    guard = make_lock(str(folder / RWLOCK_LOCK), tmp_dir=str(folder), hardlink_lock=hardlink, wait=True)
    with guard:  # nobody is writing it now
        if not _is_json(folder / RWLOCK_FILE):
            (folder / RWLOCK_FILE).unlink()


def _discard_broken_notes(repo: "Repo") -> None:
    """Remove what a full disk left of DVC's notes of earlier runs: DVC takes the newest file of a folder for whole, and
    fails where a folder has none. A whole note has a hash for its name.
    """
    with repo.lock:  # nobody is writing one now
        for folder in filter(Path.is_dir, Path(repo.stage_cache.cache_dir).glob("*/*")):
            for half in (file for file in folder.iterdir() if not _NOTE.fullmatch(file.name)):
                half.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()


def _write_locks_whole() -> None:
    """Have DVC replace dvc.lock whole: it would write into the file, and a full disk or a kill would leave half."""
    from dvc import dvcfile

    dvcfile.modify_yaml = _modify_file


@contextmanager
def _modify_file(path: str, fs: object = None) -> Iterator[dict[str, Any]]:
    """Yield the content of one of DVC's files to be changed; the file then has all changes, or is as it was."""
    from dvc.utils.serialize import modify_yaml

    with atomic_path(path) as draft:
        if Path(path).exists():
            shutil.copyfile(path, draft)
        with modify_yaml(str(draft)) as said:
            yield said


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _describe_error(cause: BaseException) -> str:
    """Return DVC's message; for an error that it did not foresee, its type and place too."""
    from dvc.exceptions import DvcException

    if isinstance(cause, DvcException):
        return str(cause)
    at = extract_tb(cause.__traceback__)[-1]
    return f"{cause} ({type(cause).__name__} at line {at.lineno} of {Path(at.filename).name})"


def _report_busy() -> int:
    _tell(
        "Another DVC process is at files that this run needs.",
        "Wait for it to end, or end it, and run again. Nothing of its work is lost; remove no lock by hand.",
    )
    return BUSY


def _tell(problem: str, remedy: str) -> None:
    print(PalimpsestError(problem, remedy).lines, file=sys.stderr, flush=True)


def _is_no_hint(record: logging.LogRecord) -> bool:
    return not str(record.msg).lstrip().startswith(_HINTS)


def _is_allowed(record: logging.LogRecord) -> bool:
    """Stop before the next stage if asked to: DVC logs that a stage starts right before it does."""
    if _stopping and str(record.msg).startswith(_STARTS):
        raise _Stopping
    return True


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopping
    _stopping = True


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stop)
    name_runner()
    end_with_parent()
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    names = [name for name in sys.argv[1:] if name != "--single-item"]
    sys.exit(reproduce(names, single_item="--single-item" in sys.argv))
