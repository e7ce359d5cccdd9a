"""A small workspace of all zones, its ledger, witnesses and files in one folder, that a blow may hit."""

import csv
import gc
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML

from palimpsest.cli.main import app
from palimpsest.params.file import FILE
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.ledger.witness import VARIABLE as WITNESSES
from palimpsest.work.context import environment
from tools.world.generate import WorldSettings, make_world
from tools.world.grammar import LABELS

ASSET, MODEL, SELECTED, EVOLVED = "tickets", "dp1", "select1", "evolve1"
COMMAND = (sys.executable, "-P", "-m", "palimpsest.cli.main")
_WORLD = WorldSettings(
    seed=3, private_rows=200, test_rows=100, public_rows=120, public_test_rows=100, products=4, public_products=12,
    facts=8, support_low=10, support_high=60, public_pairs=20, canaries=4, canary_repeats=(1, 2, 4), detail_share=0.0,
)  # fmt: skip
_MOST_SECONDS, _POLL_SECONDS = 1800.0, 0.02
_VOTES = {"neighbours": 3, "threshold": 0.0, "selection": "rank"}


@dataclass
class Child:
    """A command that runs."""

    pid: int
    code: int | None = None  # how it ended; None while it runs

    def wait(self, seconds: float = 0.0) -> int | None:
        """Wait so long for its end: its exit status, or None while it runs."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            number, status = os.waitpid(self.pid, os.WNOHANG)
            if number:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= deadline:
                break
            else:
                time.sleep(_POLL_SECONDS)
        return self.code


def _become(place: "Place", arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Run the command line in this fork, which has its libraries already, as a new process would."""
    code = 1
    try:
        os.setsid()
        os.chdir(place.workspace)
        os.environ.clear()
        os.environ.update(variables)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *[_opened(place.log)] * 2)):
            os.dup2(file, number)
        sys.argv = ["palimpsest", *arguments]
        app(list(arguments), prog_name="palimpsest")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)


@dataclass(frozen=True)
class Place:
    """A folder with the user's files, the ledger and the workspace."""

    home: Path  # the folder of all
    printed: str = "output.log"  # the file, from there, with what the last command printed

    @property
    def url(self) -> str | None:
        """The ledger's address, where it was moved to a server; None for a file in the folder."""
        note = self.home / "url"
        return note.read_text() if note.is_file() else None

    @property
    def workspace(self) -> Path:
        """The folder with params.yaml."""
        return self.home / "workspace"

    @property
    def log(self) -> Path:
        """What the last command printed."""
        return self.home / self.printed

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened."""
        return Ledger.open(self.url or f"sqlite:///{self.home}/ledger.db")

    @property
    def charges(self) -> list[Charge]:
        """Every charge so far."""
        return self.ledger.charges(ASSET)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands: keys, ledger and witnesses of its own."""
        own = {
            LEDGER_VARIABLE: self.url or str(self.home / "ledger.db"), WITNESSES: str(self.home / "witnesses"),
            **shared(self.home.parent),
        }  # fmt: skip
        return {**environment(), **own}

    def start(self, *arguments: str, **variables: str) -> "Child":
        """Start `palimpsest ...` in the workspace, in a fork that leads a session of its own."""
        self.log.write_text("")  # who waits for its words must not find those of the last one
        gc.collect()  # a fork must not hold the ledger open: SQLite's locks are a process's
        number = os.fork()
        if number == 0:
            _become(self, arguments, {**self.variables, **variables})
        return Child(number)

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The same to its end: exit status, and all it printed."""
        code = self.start(*arguments, **variables).wait(_MOST_SECONDS)
        return 1 if code is None else code, self.log.read_text(errors="replace")

    def change(self, sections: Mapping[str, Any]) -> None:
        """Change values of params.yaml, section by section; the next run renders them."""
        yaml, path = YAML(typ="safe", pure=True), self.workspace / FILE
        body = yaml.load(path.read_text(encoding="utf-8"))
        _merge(body, sections)
        with path.open("w", encoding="utf-8") as stream:
            yaml.dump(body, stream)

    def lines(self, flow: bool) -> int:
        """How many lines an undisturbed run says here, by DVC or by the flow."""
        return int(json.loads((self.home.parent / "lines.json").read_text())[flow])

    def copy(self, home: Path) -> "Place":
        """The same in another folder; params.yaml goes on naming the private file of the first."""
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.home, home, symlinks=True)
        return Place(home)


def shared(work: Path) -> dict[str, str]:
    """What is the same for all places of a folder: keys of their own, and one thread."""
    return {"XDG_CONFIG_HOME": str(work / "config"), "OMP_NUM_THREADS": "1"}


def made(home: Path) -> Place:
    """A new workspace after one whole run; a change of what spends is then all that a blow can hit."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    place = Place(home)
    _write_files(home)
    given = {
        "text": "body", "label": "team", "labels": ",".join(LABELS), "public": home / "public.jsonl", "n-public": 200,
        "asset": ASSET, "epsilon": 1, "budget": 200, "method": "select", "workspace": place.workspace,
    }  # fmt: skip
    options = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    _call(place, home, "init", str(home / "tickets.csv"), *options)
    _call(place, home, "keys", "new")
    place.change(_SMALL)
    _call(place, place.workspace, "run", "--yes")
    return place


def _call(place: Place, folder: Path, *arguments: str) -> None:
    with place.log.open("w") as output:
        subprocess.run(
            [*COMMAND, *arguments], cwd=folder, env=place.variables, stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip


_SMALL: Mapping[str, Any] = {
    "dataset": {"test_share": 0.2},
    "models": {
        "embedded_lm": {"layers": 1, "width": 32, "vocabulary": 512, "epochs": 1},
        "prompts": {"epochs": 1, "max_tokens": 24},
    },
    "authors": {"corpus": {"kind": "corpus"}},
    "lms": {
        MODEL: {"epsilon": 1.0, "batch": 32, "prefix_step": 4, "max_tokens": 24, "checkpoint_steps": 1, "epochs": 2}
    },
    "variants": {
        SELECTED: {"rows": 40, "batch": 64},
        MODEL: {"method": "dp_lm", "rows": 20, "iterations": 1, "max_tokens": 12},
        EVOLVED: {
            "method": "evolve", "epsilon": 1.0, "from": "corpus", "rows": 40, "rounds": 4, "expand": 2, "batch": 64,
            "votes": _VOTES,
        },
    },
    "public_only": {"rows": 40},
    "utility": {"evaluators": ["tfidf_lr"]},
    "audit": {"size": 60, "resamples": 100},
    "runs": {"audit": [], "embedding_audit": []},
    "release": {"variants": [SELECTED]},
}  # fmt: skip


def _write_files(home: Path) -> None:
    world = make_world(_WORLD)
    with (home / "tickets.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("id", "body", "team"))
        rows.writerows((number, row.text, row.label) for number, row in enumerate(world.private))
    (home / "public.jsonl").write_text("".join(json.dumps({"body": row.text}) + "\n" for row in world.public))


def _merge(body: dict[str, Any], changed: Mapping[str, Any]) -> None:
    for key, value in changed.items():
        if isinstance(value, Mapping) and isinstance(body.get(key), dict):
            _merge(body[key], value)
        else:
            body[key] = value
