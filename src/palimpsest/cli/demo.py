"""`palimpsest demo`: the invented data set, from an empty folder to a signed release."""

from importlib.metadata import files
from pathlib import Path

from palimpsest.cli.context import contents, register_asset
from palimpsest.cli.init import make_workspace, require_free
from palimpsest.cli.run import run_workspace
from palimpsest.cli.verify_release import make_key
from palimpsest.errors import DataError, ParamsError
from palimpsest.params.file import FILE
from palimpsest.params.load import loads, read

_CLONE = Path(__file__).parents[3]  # of the sources; an installation has no params.yaml there


def run_demo(folder: Path, settings: Path | None = None) -> int:
    """Make the demo's workspace where there is none, and bring it up to date; return the exit status of `run`.

    `settings` is a params.yaml of an invented world to use in place of the one that ships.

    The rows are invented, so the person who runs it owns them: nobody is asked before the release.

    Raises:
        ParamsError: the folder holds a workspace of other data, or another project.
    """
    if not (folder / FILE).exists():
        require_free(folder, force=False)
        text = (settings or _settings()).read_text(encoding="utf-8")
        make_workspace(folder, {FILE: text, **contents(loads(text))})
    if read(folder).world is None:
        raise ParamsError("This folder has a workspace of other data.", "Name another folder with --dir.")
    register_asset(folder)
    make_key(None, keep=True)
    return run_workspace(folder, [], ui=False, stay=False, yes=True, workers=0)


def _settings() -> Path:
    """Return the demo's settings: of the clone, or as they were installed."""
    installed = [Path(str(each.locate())) for each in files("palimpsest") or () if each.name == FILE]
    found = next((path for path in (_CLONE / FILE, *installed) if path.is_file()), None)
    if found is None:
        raise DataError("The demo's params.yaml is not in this installation.", "Install the wheel again.")
    return found
