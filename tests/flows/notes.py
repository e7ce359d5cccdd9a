"""A workspace whose one stage waits for the test, as a schedule or a worker runs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dp_accounting as dpa
import pytest
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.report.release.word import VARIABLE as WORD
from stages.warm import VARIABLE as WARM

STAGE = "preprocess"
PLANTED = ("qvxzkwjy", "wjqkzvyx", "zzgrumpfl")  # in a private text, in another column, as a label that is not listed
# What every Python process of the stage does before anything else.
HOLD = f"""
import os, pathlib, time
if os.environ.get("DVC_STAGE") == "{STAGE}":
    pathlib.Path("held").write_text(os.environ.get("{WORD}", ""))
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
"""


@contextmanager
def made(home: Path) -> Iterator[Path]:
    """The user's files, their ledger with one charge, and a workspace `notes`, in which nothing has run."""
    write_private(home)
    (home / "public.csv").write_text("body\n" + "".join(f"public text number {each}\n" for each in range(60)))
    options = {
        "text": "body", "label": "team", "labels": "a,b", "public": home / "public.csv", "n-public": 60,
        "asset": "notes", "method": "select", "workspace": home / "notes",
    }  # fmt: skip
    given = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEDGER_VARIABLE, f"sqlite:///{home / 'ledger.db'}")
        patch.setenv(WARM, "")  # the stage loads none of the libraries that would be loaded for it
        done = CliRunner().invoke(app, ["init", str(home / "own.csv"), *given])
        assert done.exit_code == 0, done.output
        ledger, asked = Ledger.open(os.environ[LEDGER_VARIABLE]), [PlannedQuery("votes", dpa.ZCDpEvent(0.03))]
        for variant in ("first", "given_back", "last"):
            reserved = ledger.reserve("notes", Run("select", variant, "release", "data", "plan"), asked)
            if variant == "given_back":
                ledger.refund(reserved.charges)
        yield home


def write_private(home: Path, last: str = "a") -> None:
    rows = [f"{PLANTED[0]} private text number {each},{'ab'[each % 2]},{PLANTED[1]}\n" for each in range(80)]
    (home / "own.csv").write_text("body,team,who\n" + "".join(rows) + f"one more,{last},{PLANTED[1]}\n")


def held_env(home: Path) -> dict[str, str]:
    """The environment in which the stage waits for a file `go`."""
    (home / "sitecustomize.py").write_text(HOLD)
    path = os.pathsep.join([str(home), os.environ["PYTHONPATH"]])
    return {**os.environ, "PYTHONPATH": path, "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
