"""Invent a world, and pack it to where `world` of params.yaml looks for it.

    python -m tools.world.pack NAME...   # demo, full or customers

Each is the same bytes on every machine. A copy of `demo` is committed, and ships; git ignores the others.
"""

import argparse
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from palimpsest.records.world.shipped import FILES, FOLDER
from tools.world.generate import WorldSettings, make_world, write_world

_FULL = {"private_rows": 10_000, "test_rows": 1000, "public_rows": 6500, "public_test_rows": 1000}
WORLDS = {
    "demo": WorldSettings.sized(seed=1, private_rows=4000, test_rows=600, public_rows=2600, public_test_rows=600),
    "full": WorldSettings.sized(seed=1, **_FULL),
    "customers": WorldSettings.sized(seed=1, authors=2500, **_FULL),
}


def pack(name: str, settings: WorldSettings, folder: Path = FOLDER) -> None:
    """Invent a world and write NAME.zip of its files; the same bytes wherever the same zlib packs."""
    with tempfile.TemporaryDirectory() as place, ZipFile(folder / f"{name}.zip", "w") as archive:
        write_world(make_world(settings), place)
        for file in FILES:
            archive.writestr(ZipInfo(file), (Path(place) / file).read_bytes(), ZIP_DEFLATED, 9)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=WORLDS, metavar="NAME")
    for name in parser.parse_args().names:
        pack(name, WORLDS[name])


if __name__ == "__main__":
    main()
