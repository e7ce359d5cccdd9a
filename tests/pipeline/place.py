"""A private file, its ledger and its workspace in one folder, with what a test does to them."""

import atexit
import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from dvc.repo import Repo, lock_repo
from dvc.stage import Stage
from networkx import topological_sort

from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.work.context import environment
from palimpsest.workspace import CHECKPOINTS
from stages.common import start
from stages.warm import serve_stages
from tests.settings_file import edit_settings

MARKER = "qvxzkwjy"  # a word that only planted private rows hold
VARIANT = "dp0_5"
WRITTEN = "predict0_5"
_TICK = 0.02


@dataclass(frozen=True)
class Place:
    """A folder with the user's files, the ledger and the workspace."""

    home: Path  # the folder of all three

    @property
    def workspace(self) -> Path:
        """The folder with params.yaml."""
        return self.home / "workspace"

    @property
    def private(self) -> Path:
        """The private file."""
        return self.home / "tickets.csv"

    @property
    def public(self) -> Path:
        """The public file."""
        return self.home / "public.jsonl"

    @property
    def books(self) -> Path:
        """The ledger's file."""
        return self.home / "ledger.db"

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened."""
        return Ledger.open(f"sqlite:///{self.books}")

    @property
    def charges(self) -> list[Charge]:
        """Every charge so far."""
        return self.ledger.charges("tickets")

    @property
    def private_rows(self) -> list[str]:
        """The private texts."""
        with self.private.open(newline="") as stream:
            return [row["body"] for row in csv.DictReader(stream)]

    @property
    def variables(self) -> dict[str, str]:
        """The environment of child processes."""
        return {**_environment(), LEDGER_VARIABLE: str(self.books), "OMP_NUM_THREADS": "1"}

    def start(self, *module: str, **variables: str) -> "subprocess.Popen[str]":
        """Start `python -m ...` in the workspace as the leader of a process group; its output goes to a file."""
        with (self.home / "output.log").open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *module],
                cwd=self.workspace,
                env={**self.variables, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
            )

    def run(self, *module: str, **variables: str) -> tuple[int, str]:
        """Run `python -m ...` in the workspace: its exit status and all it printed. Stages of DVC start warm."""
        return self.start(*module, **warm(), **variables).wait(), self.output

    def remake(self, variant: str, *arguments: str) -> None:
        """Fit a finished variant again whose files are gone, as DVC removes them after a change of code.

        It must make the same files of what was paid for, and charge nothing.
        """
        paths = [
            path for part in ("synthetic", "evolved") for path in (self.workspace / "data" / part).glob(f"{variant}.*")
        ]
        before, charges = {path: path.read_bytes() for path in paths}, self.charges
        for path in paths:
            path.unlink()
        code, output = self.run("stages.fit", variant, *arguments)
        assert (code, self.charges) == (0, charges), output
        assert "made again from answers that were paid for" in output
        assert [path.name for path in paths if path.read_bytes() != before[path]] == []
        assert paths, "no file was there"

    def stop_in_training(self, signal_number: int, *module: str, **variables: str) -> tuple[int, str]:
        """Run `python -m ...` and signal its whole process group once a step of `train` has begun."""
        return self.stop_in("train", lambda child: os.killpg(child, signal_number), *module, steps=1, **variables)

    def lose_in_training(self, *module: str) -> tuple[int, str]:
        """Run `python -m ...`, kill that one process once a step of `train` has begun, and wait for what it started."""
        code, output = self.stop_in("train", lambda child: os.kill(child, signal.SIGKILL), *module, steps=1)
        _, alive = psutil.wait_procs(self.at_work(), timeout=30)
        assert not alive, "what was started outlives what started it"
        return code, output

    def kill_in(self, query: str, *module: str, steps: int) -> tuple[int, str]:
        """Run `python -m ...` and kill all at work in the workspace once this query, and so many of its steps, began.

        All are held before one is killed: none sees another end.
        """

        def kill(_child: int) -> None:
            found = self.at_work()
            for each in found:
                each.suspend()
            for each in found:
                each.kill()

        return self.stop_in(query, kill, *module, steps=steps)

    def stop_in(
        self, query: str, send: Callable[[int], object], *module: str, steps: int, **variables: str
    ) -> tuple[int, str]:
        """Run `python -m ...`, whose stages start warm, and hand its number over once so many steps have begun."""
        before, seen = self.begun(query, steps), self._mark()
        child = self.start(*module, **{**warm(), **variables})
        while (mark := self._mark()) == seen or self.begun(query, steps) == before:
            seen = mark
            assert _alive_after(child, _TICK), self.output
        send(child.pid)
        return child.wait(), self.output

    def _mark(self) -> list[tuple[int, int]]:
        """What is another once the ledger is: to read that takes longer than to look."""
        found = []
        for path in (self.books, self.books.with_name(f"{self.books.name}-wal")):
            with suppress(FileNotFoundError):
                told = path.stat()
                found.append((told.st_size, told.st_mtime_ns))
        return found

    def at_work(self) -> list[psutil.Process]:
        """The processes in the workspace, but this one."""
        return [each for each in psutil.process_iter() if _works_in(each, self.workspace)]

    @property
    def output(self) -> str:
        """What the last child printed."""
        return (self.home / "output.log").read_text()

    def begun(self, query: str, steps: int) -> int:
        """How many queries of this name are begun, with so many steps or more, and not committed."""
        begun = [charge for charge in self.charges if charge.state == "begun" and charge.steps_begun >= steps]
        return sum(charge.query == query for charge in begun)

    def edit(self, *keys: str, **values: object) -> None:
        """Set values of the section of params.yaml that the keys lead to, and render it."""
        edit_settings(self.workspace, *keys, **values)

    def stage(self, module: ModuleType, *arguments: str) -> tuple[int, str]:
        """Run a stage in this process, in the working directory: its exit status and what it printed."""
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
            patch.setattr("sys.argv", [module.__name__, *arguments])
            try:
                start(module.run)
            except SystemExit as stop:
                return int(stop.code or 0), printed.getvalue()
        return 0, printed.getvalue()

    def everything(self) -> None:
        """Run each stage in this process, after those that it needs, and note them as `dvc repro` does.

        It starts no process, and so imports nothing anew for each stage. `release` is last: it reads the notes.
        """
        with self.entered(), Repo() as repo, lock_repo(repo):
            order = topological_sort(repo.index.graph.reverse(copy=True))
            *others, release = sorted(order, key=lambda one: one.name == "release")
            for stage in others:
                self._command(stage)
                stage.save()
                stage.commit()
            release.dvcfile.dump_stages(others, update_pipeline=False)
            self._command(release)

    def _command(self, stage: Stage) -> None:
        words = stage.cmd.partition(" #")[0].split()[3:]  # of `python -P -m ...`
        module, *arguments = (one for one in words if one != "stages.packaged")
        code, output = self.stage(import_module(module), *arguments)
        assert code == 0, output

    def stage_again(self, module: ModuleType, *arguments: str) -> tuple[int, str]:
        """The same for a stage that would be charged again, with the word that it asks for."""
        self.noted()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(records.CONSENT, asked_word(*self.stage(module, *arguments)))
            return self.stage(module, *arguments)

    def noted(self) -> None:
        """Forget what finished runs wrote, as where DVC has noted them: to run again is another look."""
        shutil.rmtree(self.workspace / CHECKPOINTS / "finished", ignore_errors=True)

    @contextmanager
    def entered(self) -> Iterator[pytest.MonkeyPatch]:
        """Be in the workspace, with its ledger."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.workspace)
            patch.setenv(LEDGER_VARIABLE, str(self.books))
            yield patch

    def newest(self, variant: str) -> list[Charge]:
        """The charges of the newest plan of a variant."""
        charges = [charge for charge in self.charges if charge.variant == variant]
        return [charge for charge in charges if charge.run_key == charges[-1].run_key]

    def cap(self, epsilon: float) -> None:
        """Set the cap of the data set's budget."""
        self.edit("privacy", "budget", epsilon=epsilon)
        self.ledger.amend("tickets", epsilon)

    def files(self, *folders: str) -> set[str]:
        """Paths of the files under folders of the workspace."""
        found = (path for folder in folders for path in (self.workspace / folder).rglob("*") if path.is_file())
        return {path.relative_to(self.workspace).as_posix() for path in found}


def asked_word(code: int, output: str) -> str:
    """The word that a stage asked for which refused a second charge."""
    assert code == 1, output
    return output.partition(f"{records.CONSENT}=")[2].split()[0]


@cache
def warm() -> dict[str, str]:
    """What lets stages start warm, as long as this process lasts."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(serve_stages(_environment()))


def _environment() -> dict[str, str]:
    """The same for every test: libraries are imported once for all."""
    return {name: text for name, text in environment().items() if name != "PYTEST_CURRENT_TEST"}


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder) and process.pid != os.getpid()
    except psutil.Error:
        return False


def _alive_after(child: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False
