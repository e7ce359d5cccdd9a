"""Every command that a page shows is one; those that can run on a small machine do, page by page, as a reader would.

A block with the comment `<!-- not run: WHY -->` above it is left out, and the comment says why. The comment
`<!-- first: COMMAND -->` stands for what a reader does by hand before the block.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas
import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from bench.pages import ROOT, SHELLS, blocks, blocks_of, commands, pages
from palimpsest.cli.main import app
from palimpsest.privacy.ledger.witness import VARIABLE as WITNESSES
from tools import reference
from tools.world.generate import WorldSettings, make_world

PAGES = {str(page.relative_to(ROOT)): list(blocks(page)) for page in pages()}
PAGES["presets"] = list(blocks_of(reference.page("presets"), "presets"))  # the other pages of reference have none
RUN = {
    name: run
    for name, found in PAGES.items()
    if (run := [each for each in found if each.language in SHELLS and not each.why_not])
}
CALLS = [(each.place, call) for found in PAGES.values() for each in found for call in commands(each)]
_SIZES = {"private_rows": 600, "test_rows": 100, "public_rows": 600, "public_test_rows": 100}
_WORLD = WorldSettings.sized(seed=3, **_SIZES, detail_share=0.0)  # rows that hold a way to reach somebody do not leave


def called(arguments: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The command that arguments lead to and its options, by the real parser; the command itself does not run."""
    seen: list[tuple[str, Mapping[str, Any]]] = []

    def note(command: Any, context: Any) -> None:
        if context.invoked_subcommand is None:  # else it is the group around the command
            seen.append((command.name, context.params))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next(each for each in TyperCommand.__mro__ if "invoke" in vars(each)), "invoke", note)
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return seen[0] if seen else ("", {})


@pytest.mark.parametrize(("place", "call"), CALLS, ids=[f"{place} {' '.join(call)}" for place, call in CALLS])
def test_every_call_is_one_that_the_commands_take(place: str, call: list[str]) -> None:
    called(call)


def test_a_call_with_a_wrong_command_or_option_is_noticed() -> None:
    for wrong in (["plann"], ["plan", "--jsn"], ["keys", "old"], ["run", "--workers", "two"]):
        with pytest.raises(AssertionError):
            called(wrong)


def test_commands_and_options_named_in_a_sentence_are_there() -> None:
    """In the text of pages, and in the remedies of errors, of which the rendered page has all."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages()}
    texts |= {name: reference.page(name) for name in reference.PAGES}
    app_command, wrong = get_command(app), []
    for page, text in texts.items():
        for words in re.findall(r"`palimpsest ([a-z][^`]*)`", text):
            name, *rest = words.split()
            command = app_command.get_command(None, name) if isinstance(app_command, TyperGroup) else None
            if isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
                command = command.get_command(None, rest[0])
            known = (
                {option for each in command.params for option in each.opts + each.secondary_opts} if command else set()
            )
            asked = {word.partition("=")[0] for word in rest if re.fullmatch(r"--[a-z][a-z-]*=?.*", word)}
            if command is None or asked - known - {"--help"}:
                wrong.append(f"{page}: palimpsest {words}")
    assert wrong == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", RUN)
def test_every_command_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """One after the other in one shell, with small files under the names and columns that the page gives.

    Whatever is asked, such as the owner's word for a release, is answered with yes.
    """
    for place, call in CALLS:
        if place.startswith(f"{page}:"):
            write_files(tmp_path, *called(call))
    steps = [f"echo '== {each.place}'\n{each.first or ''}\n{each.script}" for each in RUN[page]]
    log, shell = tmp_path / "output.log", ["bash", "-euo", "pipefail", "-c", "\n".join(steps)]
    with log.open("w") as output, subprocess.Popen(["yes"], stdout=subprocess.PIPE) as answers:
        done = subprocess.run(
            shell, cwd=tmp_path, env=environ(tmp_path), stdin=answers.stdout, stdout=output, stderr=subprocess.STDOUT,
            check=False,
        )  # fmt: skip
        answers.kill()
    assert done.returncode == 0, log.read_text()[-4000:]


def environ(home: Path) -> dict[str, str]:
    """A reader's, with a home of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PALIMPSEST_", "XDG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home / "home"), "CLONE": str(ROOT), WITNESSES: str(home / "witnesses")}


def write_files(folder: Path, command: str, given: Mapping[str, Any]) -> None:
    """The tables that a call which makes a workspace names: invented tickets, in its columns and with its labels."""
    if not (given.get("data") and given.get("public")):
        return
    world = make_world(_WORLD)
    labels = [each.partition("=")[0].strip() for each in (given.get("labels") or "").split(",")]
    texts = {"data": world.private, "public": world.public, "test": world.test, "public_test": world.public_test}
    for option, rows in texts.items():
        if given.get(option) and "://" not in given[option]:
            columns: dict[str, list[object]] = {given["text"]: [row.text for row in rows]}
            known = option != "public" or given.get("public_labels")
            if given.get("label") and known:
                teams = sorted({row.label for row in rows})
                columns[given["label"]] = [labels[teams.index(row.label) % len(labels)] for row in rows]
            if given.get("unit") and option != "public":
                columns[given["unit"]] = [f"person {number // 2}" for number in range(len(rows))]
            write_table(pandas.DataFrame(columns), folder / given[option])


def write_table(frame: pandas.DataFrame, path: Path) -> None:
    """In the format of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".parquet" in path.name:
        frame.to_parquet(path, index=False)
    elif ".jsonl" in path.name:
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
