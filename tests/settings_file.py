"""Settings of a test's workspace: params.yaml as a person writes it, and the file with every value beside it."""

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.graph import render as graph
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.params.load import loads, parse, read, render_params, texts
from palimpsest.workspace import GRAPH

FULL = Path(__file__).parents[1] / "params.full.yaml"


@functools.cache
def _resolved() -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load(render_params(loads(FULL.read_text(encoding="utf-8")))))


def demo() -> dict[str, Any]:
    """Every value of the demo at its full size, to be changed; without its exhibits, which few tests run."""
    content = copy.deepcopy(_resolved())
    content["run"] |= {name: [] for name in ("evolution_audit", "eda_audit", "facts_audit")}
    return content


def write_settings(folder: Path, content: Mapping[str, Any]) -> None:
    """Write both files for these values, each at its place in `Params`."""
    for name, text in texts(parse(content)).items():
        (folder / name).write_text(text, encoding="utf-8")


def edit_settings(folder: Path, *keys: str, **values: Any) -> None:
    """Set values of the section of params.yaml that the keys lead to, made where it is not, and render it."""
    yaml, path = YAML(), folder / FILE
    body = section = yaml.load(path.read_text(encoding="utf-8"))
    for key in keys:
        section = section.setdefault(key, {})
    section.update(values)
    with path.open("w", encoding="utf-8") as stream:
        yaml.dump(body, stream)
    render_settings(folder)


def render_settings(folder: Path) -> None:
    """Write the file with every value, and the graph where there is one, unless a test wants params.yaml refused."""
    try:
        params = read(folder)
    except ParamsError:
        return
    (folder / RESOLVED).write_text(render_params(params), encoding="utf-8")
    if (folder / GRAPH).is_file():
        (folder / GRAPH).write_text(graph.render_graph(params), encoding="utf-8")
