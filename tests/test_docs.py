"""The pages of the folders name what the code writes there."""

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
