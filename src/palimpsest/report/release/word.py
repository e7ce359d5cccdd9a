"""The release word of the data's owner, which every release needs, whatever the audits say.

Guarantee: only one fixed sentence of it is public, the same in every release. Who gave or refused it, when and why
is appended to a private file that no stage reads.
"""

import getpass
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.workspace import RELEASES

VARIABLE, YES = "PALIMPSEST_RELEASE", "yes"  # of the environment: the word is a person's, and not a setting
SENTENCE = "The owner of the data gave their word for this release."


def require(variables: Mapping[str, str]) -> None:
    """Check that the word was given to this process, by its environment, before anything else is read.

    Raises:
        DataError: always with the same text, where it was not.
    """
    if variables.get(VARIABLE) != YES:
        raise DataError(
            "Nothing was released: the owner of the data has not given their word for it.",
            f"Give it when `palimpsest run` asks, or set {VARIABLE}={YES} for a runner that cannot ask.",
        )


def record(workspace: Path, variants: Sequence[str], given: bool, reason: str | None) -> None:
    """Append an answer to the private record; only its owner may read the file, whatever the umask.

    The reason is in the owner's own words, and is never public.
    """
    path = workspace / RELEASES
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"time": when, "who": _user(), "variants": [*variants], "given": given, "reason": reason}
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user of a container need not have a name
        return f"uid {os.getuid()}"
