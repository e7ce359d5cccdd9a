"""Audits that failed themselves in the last run: the next one tries them again."""

import hashlib
from pathlib import Path

from palimpsest.audit.inconclusive import inconclusive
from palimpsest.files import read_json
from palimpsest.workspace import METRICS


def forget_failed(workspace: Path) -> None:
    """Take away what such audits wrote, so that something changed for them.

    DVC would put a file back whose content it has kept, and not run the stage: so what it kept goes too. What the rows
    allow no result of stays: it would come to the same.
    """
    failed = [path for path in (workspace / METRICS).rglob("*.json") if _failed(path)]
    if not failed:
        return
    from dvc.repo import Repo

    with Repo(str(workspace)) as repo:
        for path in failed:
            kept = repo.cache.local.oid_to_path(hashlib.md5(path.read_bytes()).hexdigest())
            Path(kept).unlink(missing_ok=True)
            path.unlink()


def _failed(path: Path) -> bool:
    try:
        why = inconclusive(read_json(path))
    except (OSError, TypeError, ValueError, KeyError):
        return False  # whoever reads it says what is wrong with it
    return why is not None and why.failed
