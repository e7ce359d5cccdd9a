"""`palimpsest render`: the files of a workspace that follow from its params.yaml."""

from pathlib import Path

from palimpsest import __version__
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_text
from palimpsest.graph import render as graph
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import read, rendered
from palimpsest.params.schema import Params
from palimpsest.workspace import GRAPH


def render(workspace: Path) -> list[str]:
    """Write the file with every value, and the graph, where they differ; return the names of those that did.

    Raises:
        ParamsError: params.yaml is wrong, or of another version: its graph is not this one's.
        DataError: the workspace cannot be written.
    """
    params = read(workspace)
    if params.version != __version__:
        raise ParamsError(
            f"version is {params.version!r} in params.yaml; installed is palimpsest {__version__}.",
            "Install that version, or set `version` to the installed one: what was paid for is made again, free; "
            "`palimpsest plan` names what is not.",
        )
    changed = {name: text for name, text in contents(params).items() if _content(workspace / name) != text}
    try:
        for name, text in changed.items():
            write_text(workspace / name, text)
    except OSError as error:
        raise DataError(
            f"The workspace cannot be written ({type(error).__name__}).", "Give yourself write permission."
        ) from None
    return list(changed)


def contents(params: Params) -> dict[str, str]:
    """File name -> content of what follows from params.yaml."""
    return {RESOLVED: rendered(params), GRAPH.name: graph.rendered(params)}


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
