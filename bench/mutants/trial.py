"""One copy of the project, in which mutants are planted one at a time and tests run."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.mutants.listing import Mutant, applied
from bench.mutants.nursery import Nursery, opened

PARTS = (
    "src", "stages", "flows", "tools", "tests", "bench", "docs", "pyproject.toml", "params.yaml", "params.full.yaml",
    "params.resolved.yaml", "dvc.yaml", ".importlinter", "Makefile",
)  # fmt: skip
PASSED, FAILED, BROKEN, TIMEOUT = "passed", "failed", "broken", "timeout"
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", "--no-header")
# A mutant that these end is one that does not run: that says nothing about what its tests would notice.
_CRASHES = re.compile(
    r"^(ERROR|FAILED) .* - (AttributeError|ImportError|IndentationError|ModuleNotFoundError|NameError|SyntaxError|"
    r"TypeError|UnboundLocalError)\b"
)
_TOLD = re.compile(r"^(?:ERROR|FAILED) (.+?)(?: - .*)?$")


@dataclass(frozen=True)
class Outcome:
    """What a run of tests came to."""

    kind: str  # passed, failed, broken (the code did not run as a program) or timeout
    why: str = ""  # the line that pytest says of the first test that failed

    @property
    def test(self) -> str | None:
        """The first test that failed; None where none did."""
        found = _TOLD.match(self.why)
        return found[1] if found else None


@dataclass(frozen=True)
class Copy:
    """A copy of the project's files."""

    folder: Path  # where it lies
    nursery: Nursery  # runs its tests
    timeout: float  # seconds after which a run of tests is ended

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The mutant's edits are in the copy while the block runs."""
        whole = {file: (self.folder / file).read_text(encoding="utf-8") for file in mutant.files}
        try:
            self._write(applied(mutant.edits, self.folder))
            yield
        finally:
            self._write(whole)

    def run(self, tests: Sequence[str], stop: bool = True) -> Outcome:
        """Run tests on the copy's code, up to the first failure if `stop`."""
        status, told = self.nursery.run([*_OPTIONS, *(["-x"] if stop else []), *tests], self.timeout)
        return Outcome(TIMEOUT) if status is None else outcome_of(status, told)

    def _write(self, texts: dict[str, str]) -> None:
        for file, text in texts.items():
            (self.folder / file).write_text(text, encoding="utf-8")


@contextmanager
def copied(root: Path, timeout: float) -> Iterator[Copy]:
    """A fresh copy of the project, whose tests import it and nothing else, as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        for part in filter(lambda part: (root / part).exists(), PARTS):
            if (root / part).is_dir():
                shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(root / part, folder / part)
        with opened(folder, _environment(folder)) as nursery:
            yield Copy(folder, nursery, timeout)


def _environment(folder: Path) -> dict[str, str]:
    # No byte code is kept: it is told from its source by size and second alone, and mutants come fast.
    paths = os.pathsep.join([str(folder / "src"), str(folder)])
    own = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    return {**os.environ, **own}


def outcome_of(status: int, told: str) -> Outcome:
    """What pytest's exit status and its last lines say."""
    if status == 0:
        return Outcome(PASSED)
    lines = [line for line in told.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    why = lines[0] if lines else "\n".join(told.strip().splitlines()[-3:])
    if status != 1 or any(_CRASHES.match(line) for line in lines):
        return Outcome(BROKEN, why)
    return Outcome(FAILED, why)
