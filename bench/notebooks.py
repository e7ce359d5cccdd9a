"""Notebooks of the pages whose blocks of Python run one after the other: the same text, the same code, no outputs.

python -m bench.notebooks     # writes notebooks/; `make graph` does so too
"""

import json
import re
from pathlib import Path
from typing import Any

from bench.pages import ROOT, fences

FOLDER = ROOT / "notebooks"
PAGES = ("python", "library")
# Every line of a cell that has a value shows it, as the six lines of the page are meant.
_SHOW = '%config InteractiveShell.ast_node_interactivity = "all"\n'


def render(page: Path) -> str:
    """A page as a notebook: its blocks of Python as cells of code, all else as cells of text."""
    text, cells, at = page.read_text(encoding="utf-8"), [_code(_SHOW)], 0
    for match in fences(text):
        if match["language"] == "python":
            cells += [_words(text[at : match.start()]), _code(match["code"])]
            at = match.end()
    cells.append(_words(text[at:]))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    body = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _words(text: str) -> dict[str, Any]:
    beside = re.sub(r"\]\((?!\w+:)([\w/.]+\.md)", r"](../docs/\1", text.strip())  # links go on leading to pages
    return {"cell_type": "markdown", "metadata": {}, "source": beside.splitlines(keepends=True)}


def _code(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / f"{name}.ipynb").write_text(render(ROOT / "docs" / f"{name}.md"), encoding="utf-8")
