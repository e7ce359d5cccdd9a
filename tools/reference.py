"""The pages of reference, rendered from code: the keys of params.yaml, the presets, the errors.

python -m tools.reference errors     # prints one: params, presets or errors

`mkdocs.yml` names this file as a hook, so the site has all three, and docs/ keeps no copy of them.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
# Page -> the module whose `render()` gives its Markdown.
PAGES = {
    "params": "palimpsest.params.reference",
    "presets": "tools.presets_page",
    "errors": "bench.errors",
}


def page(name: str) -> str:
    """A page as Markdown."""
    return str(import_module(PAGES[name]).render())


def on_files(files: "Files", config: "MkDocsConfig") -> None:
    """Give mkdocs the pages, as if they lay in docs/."""
    from mkdocs.structure.files import File

    for name in PAGES:
        files.append(File.generated(config, f"{name}.md", content=_printed(name)))


def _printed(name: str) -> str:
    """A page, rendered by a process of its own: mkdocs does not find the project's modules, and would keep old ones."""
    command = [sys.executable, "-X", "utf8", "-m", "tools.reference", name]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python -m tools.reference {'|'.join(PAGES)}")
    print(page(sys.argv[1]), end="")
