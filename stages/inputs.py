"""Write down what the other stages run on that no stage makes: the code of each.

The graph runs it every time, and what it writes is small: a stage that reads the same facts as before stays cached.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from palimpsest.closure import code, digest
from palimpsest.files import atomic_path
from stages.common import start

STAGE = "inputs"
INPUTS = Path("data/inputs")
_STARTS = 'if __name__ == "__main__":'


def run() -> None:
    """-> data/inputs."""
    for path, content in contents().items():
        with atomic_path(path) as draft:
            draft.write_bytes(content)


def contents() -> dict[str, bytes]:
    """Path from the workspace, as dvc.yaml names it, -> what the file says now."""
    return {(INPUTS / "code" / f"{name}.json").as_posix(): _document(_code(name)) for name in _stages()}


def outdated(workspace: Path) -> bool:
    """Whether the stage would change what lies in the workspace."""
    return any(not _holds(workspace / path, content) for path, content in contents().items())


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _code(name: str) -> dict[str, object]:
    """What a stage's own code is, and all that this can import."""
    module = f"stages.{name}"
    return {"module": module, "files": len(code(module)), "sha256": digest(module)}


def _stages() -> Iterator[str]:
    """The modules beside this one that are started as stages."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != STAGE and _STARTS in path.read_text(encoding="utf-8"):
            yield path.stem


def _document(body: dict[str, object]) -> bytes:
    return f"{json.dumps(body, indent=2)}\n".encode()


if __name__ == "__main__":
    start(run)
