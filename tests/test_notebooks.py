"""The notebooks are the pages, block by block, and run from the first cell to the last."""

import json
import os
from pathlib import Path

import pytest

from bench.notebooks import FOLDER, PAGES, render
from bench.pages import ROOT
from palimpsest.privacy.ledger.witness import VARIABLE


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_its_page(name: str) -> None:
    """Write them again with `make graph` after a change of a page."""
    assert (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8") == render(ROOT / "docs" / f"{name}.md")


def test_a_notebook_has_the_page_s_code_and_text_in_order() -> None:
    cells = json.loads(render(ROOT / "docs" / "library.md"))["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert [lines[0] for lines in code[1:3]] == ["import torch\n", "from palimpsest.privacy import accounting\n"]
    assert "".join(cells[1]["source"]).startswith("# The library alone")
    assert "](../docs/performance.md)" in "".join(line for cell in cells for line in cell["source"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder and a home of its own, as a reader opens it."""
    import nbformat
    from nbclient import NotebookClient

    for variable in [known for known in os.environ if known.startswith("PALIMPSEST_")]:
        monkeypatch.delenv(variable)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "witnesses"))
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    if name == "python":
        assert any("text/html" in output.get("data", {}) for output in shown)  # plan, rows and audit are tables
