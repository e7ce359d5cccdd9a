"""Writes down the inputs of the other stages that no stage makes: the code of each, and the public models.

The graph runs it every time, and its output is small: a stage that reads the same facts as before stays cached.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from palimpsest.parts import import_in_parts

if __name__ == "__main__":
    import_in_parts("dp_accounting")  # every run starts this stage, which only names what spends

from palimpsest.files import atomic_path
from palimpsest.graph.closure import Look
from palimpsest.graph.stages import STAGES
from palimpsest.methods.registry import METHODS, stages_that_spend
from palimpsest.models.sources import require_usable
from palimpsest.params.file import model_keys
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.workspace import CODE, INPUTS, SOURCES
from stages import spenders
from stages.common import start
from stages.vouching import digest_of, named_sources, require_vouched, resolve_vouched

STAGE = INPUTS.name
LANGUAGE_MODELS = ("models.lm", "models.next_token")
MODEL_KEYS = ("models.lm", "models.encoder", "models.classifier", "models.next_token")


def run() -> None:
    """-> data/inputs.

    Raises:
        DataError: params.yaml names something as public that is the workspace's own, or a copy of that.
        ModelError: a model that it names cannot be found, or has a fault.
    """
    params = load()
    require_vouched(params)
    for source in named_sources(params).values():
        if source.kind == "model" and source.used:
            place = resolve_vouched(params, source.key)  # a hub model is fetched: its files are known from now on
            require_usable(place, writes=source.key in LANGUAGE_MODELS)
    for path, content in contents().items():
        with atomic_path(path) as draft:
            draft.write_bytes(content)


def contents(workspace: Path = Path()) -> dict[str, bytes]:
    """Return path from the workspace, as dvc.yaml names it, -> the file's content as of now."""
    return facts(load(workspace), workspace)


def facts(params: Params, workspace: Path) -> dict[str, bytes]:
    """Return the same for settings that are not yet, or already, the workspace's."""
    return format_files(codes(), dict(sources_of(params, workspace)))


def format_files(codes: Mapping[str, object], sources: Mapping[str, object]) -> dict[str, bytes]:
    """Return the files about the code of each stage, and about the public models."""
    bodies = {CODE / name: body for name, body in codes.items()} | {
        SOURCES / key: body for key, body in sources.items()
    }
    return {f"{path.as_posix()}.json": f"{json.dumps(body, indent=2)}\n".encode() for path, body in bodies.items()}


@functools.cache
def codes() -> dict[str, dict[str, object]]:
    """Return stage -> the fingerprint of its code. A process looks once: imported code stays as it is."""
    look = Look()
    return {name: _code(look, *modules) for name, modules in programs().items()}


def is_outdated(workspace: Path, now: Mapping[str, bytes] | None = None) -> bool:
    """Tell whether the stage would change the files in the workspace; `now` is its contents where they are known."""
    told = contents(workspace) if now is None else now
    files = [(workspace / path, content) for path, content in told.items()]
    return any(not path.is_file() or path.read_bytes() != content for path, content in files)


def _code(look: Look, *modules: str) -> dict[str, object]:
    found = look.code(*modules)
    return {"modules": list(modules), "files": len(found), "sha256": look.fingerprint(found)}


def programs() -> dict[str, tuple[str, ...]]:
    """Return stage -> the modules whose code it depends on: its program, and the methods that it runs."""
    held: dict[str, tuple[str, ...]] = {stage.name: (stage.code,) for stage in STAGES if not stage.always}
    for stage in stages_that_spend():
        run = [spenders.modules(method) for method in METHODS if method.stage == stage]
        held[stage] = tuple(dict.fromkeys(module for each in run for module in each))
    return held


def sources_of(params: Params, workspace: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each possible model: the name of its file, and the model's name as written and its content.

    Text files are no models: stages depend on them directly.
    """
    sources = named_sources(params)
    keys = (
        {key: key for key in MODEL_KEYS}
        | model_keys()
        | {f"authors.{name}": f"authors.{name}.model" for name in params.authors}
    )
    for file, key in keys.items():
        source = sources.get(key)
        told = {} if source is None else {"name": source.name, "sha256": digest_of(source, workspace)}
        yield file, {"source": key, **told}


if __name__ == "__main__":
    start(run)
