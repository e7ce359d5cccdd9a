"""Pictures of the pages that a run of the demo leaves, for the README.

python -m bench.pictures [WORKSPACE]     # after `make demo`; writes docs/pictures/; needs chromium

Feeds README.md. Its workspace: `make demo`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.pages import ROOT

FOLDER = ROOT / "docs" / "pictures"
PAGES = {"internal": (1280, 1000), "card": (900, 1000)}  # page -> width and height in pixels
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")


def draw(page: Path, size: tuple[int, int], picture: Path) -> None:
    """The top of a page, as a browser of this size shows it.

    Raises:
        FileNotFoundError: there is no Chromium, or no such page.
        CalledProcessError: Chromium failed.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not (chromium and page.is_file()):
        raise FileNotFoundError(f"{page if chromium else 'chromium'} is missing")
    asked = (f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", page.absolute().as_uri())
    subprocess.run([chromium, *FLAGS, *asked], check=True, timeout=120, capture_output=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, size in PAGES.items():
        page = Path(*sys.argv[1:2], "reports", f"{name}.html")
        draw(page, size, FOLDER / f"{name}.png")
