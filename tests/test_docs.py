"""What the pages say is so: folders name what comes there, links lead somewhere, every block of Python runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.pages import blocks
from palimpsest import workspace
from tools import reference

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", [workspace.DATA, workspace.REPORTS])
def test_a_folder_s_page_names_whatever_comes_there(folder: Path) -> None:
    paths = [path for path in vars(workspace).values() if isinstance(path, Path) and folder in path.parents]
    wanted = {path.relative_to(folder).parts[0] for path in paths}
    page = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([^`]+?)/?` \|", page, flags=re.MULTILINE)) == wanted


def test_the_first_page_has_both_commands_of_a_clone() -> None:
    code = [block.code for block in blocks(ROOT / "README.md") if block.language == "bash"]
    for command in ("make demo", "make test"):
        assert any(re.search(rf"^{command}\b", each, re.MULTILINE) for each in code), command


@pytest.mark.parametrize("page", ["library.md"])
def test_every_block_of_a_page_runs(page: str) -> None:
    """One after the other, as a reader would."""
    found = [block for block in blocks(ROOT / "docs" / page) if block.language == "python"]
    names: dict[str, object] = {}
    for block in found:
        exec(compile(block.code, block.place, "exec"), names)
    assert found


def test_what_troubleshooting_quotes_is_said() -> None:
    """What the first column of a table quotes stands in the code, or among the mistakes; dots stand for a value."""
    code = [path.read_text(encoding="utf-8") for folder in ("src", "stages") for path in (ROOT / folder).rglob("*.py")]
    said = [re.sub(r'"\s*\n\s*f?"', "", each) for each in code]  # a text over several lines as one
    said.append((ROOT / "tests" / "cli" / "mistakes.txt").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]*) \|", page, re.MULTILINE)
    quoted = [part.strip() for cell in cells for quote in re.findall(r'"([^"]+)"', cell) for part in quote.split("...")]
    assert len(quoted) > 10
    assert [part for part in quoted if not any(part in text for text in said)] == []


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Every page is in the navigation, every link and anchor is there."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert all((tmp_path / "site" / f"{name}.html").is_file() for name in ("library", *reference.PAGES))
