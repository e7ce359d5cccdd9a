"""What the pages say is so: folders name what comes there, and every block of Python runs."""

import re
from pathlib import Path

import pytest

from palimpsest import workspace

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", [workspace.DATA, workspace.REPORTS])
def test_a_folder_s_page_names_whatever_comes_there(folder: Path) -> None:
    paths = [path for path in vars(workspace).values() if isinstance(path, Path) and folder in path.parents]
    wanted = {path.relative_to(folder).parts[0] for path in paths}
    page = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([^`]+?)/?` \|", page, flags=re.MULTILINE)) == wanted


@pytest.mark.parametrize("page", ["library.md"])
def test_every_block_of_a_page_runs(page: str) -> None:
    """One after the other, as a reader would."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert blocks
