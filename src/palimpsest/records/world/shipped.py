"""Files of invented worlds, packed beside this module: `demo.zip` ships, and `tools/` of a clone makes others."""

from pathlib import Path
from zipfile import ZipFile

from palimpsest.errors import DataError
from palimpsest.files import atomic_path

FOLDER = Path(__file__).parent
FILES = ("private.jsonl", "test.jsonl", "public.jsonl", "public_test.jsonl", "facts.json")


def unpack(name: str, folder: Path | str) -> None:
    """Write private.jsonl, test.jsonl, public_test.jsonl (text, label), public.jsonl (text) and the answer key.

    Raises:
        DataError: there is no world of that name.
    """
    packed = FOLDER / f"{name}.zip"
    if not packed.is_file():
        raise DataError(f"There is no invented world {name!r} here.", "docs/world.md says how a clone makes it.")
    with ZipFile(packed) as archive:
        for file in FILES:
            with atomic_path(Path(folder) / file) as draft:
                draft.write_bytes(archive.read(file))
