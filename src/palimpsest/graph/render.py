"""Renders dvc.yaml from the declarations of stages and from what params.yaml says of the data set."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.graph.stage import FIRST, PUBLIC_FILE, PUBLIC_TEST_FILE, TEST_FILE, Feature, Stage
from palimpsest.graph.stages import STAGES
from palimpsest.methods.choose.declaration import CHOOSE
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.method import Reads
from palimpsest.params.file import RESOLVED
from palimpsest.params.schema import Params
from palimpsest.params.sources import inputs_of, reads_base, reads_named
from palimpsest.workspace import BASE_LM, METRICS, PUBLIC, PUBLIC_LM, UNTOUCHED, WRITTEN, ZERO_SHOT

_HEAD = """\
# The graph of stages, rendered from palimpsest.graph.stages: which needs what. `dvc repro` and the Prefect flow run it.
# Private outputs carry `push: false`, or name the one remote that `dvc push` may take them to (stores.private).
"""
_OPTIONAL = {
    TEST_FILE: Feature.TEST,
    PUBLIC_TEST_FILE: Feature.PUBLIC_TEST,
    str(UNTOUCHED): Feature.UNTOUCHED,
    str(METRICS / PUBLIC_LM / "utility.json"): Feature.PUBLIC_LM,
}
_WIDTH = 100  # of a list in one line
# Stands in for the base where an author does not read it, because a dependency has to be some file. `preprocess` writes
# it with the texts that the author does read.
_NO_MODEL = PUBLIC / "heldout.parquet"

_Entry = dict[str, Any]
# A stage -> its names -> from: the author or the decoder, reads: a file; or of0, of1, ...: what a name is built on.
Authored = Mapping[str, Mapping[str, Mapping[str, str]]]
_NOBODY: Authored = {}


def features(params: Params) -> frozenset[Feature]:
    """Return the features of a data set and of what runs on it."""
    data = params.dataset
    found = {
        Feature.WORLD: params.world is not None,
        Feature.TEST: data.test is not None,
        Feature.PUBLIC_TEST: data.public_test is not None,
        Feature.LABELS: bool(data.labels),
        Feature.JSON: data.task == "json",
        Feature.FIELDS: bool(data.fields),
        Feature.BASE: reads_base(params),
        Feature.NAMED: reads_named(params),
        Feature.UNTOUCHED: params.untouched == UNTOUCHED,
        Feature.PUBLIC_LM: params.writes_alone,
        Feature.WRITTEN: bool(params.run.write_public),
        Feature.NEXT_TOKEN: NEXT_TOKEN in params.utility.evaluators,
    }
    return frozenset(feature for feature, there in found.items() if there)


def find_authored(params: Params) -> Authored:
    """Return what each name is built on, and the file that it reads besides those that all names of its stage read.

    A choice is built on what it chooses among. Every choice lists equally many, so it may name a file twice.
    """
    most = max(map(len, params.run.choose.values()), default=0)
    chosen = {
        name: {f"of{place}": own[min(place, len(own) - 1)] for place in range(most)}
        for name, own in params.run.choose.items()
    }
    evolved = {
        known.stage: {
            name: _author_entry(author, BASE_LM if Reads.BASE in inputs_of(params, name) else _NO_MODEL)
            for name, author in getattr(params.run, known.stage).items()
        }
        for known in METHODS
        if Reads.AUTHOR in known.reads
    }
    begun = {
        known.stage: {
            name: _author_entry(below, _start_file(params, name))
            for name, below in getattr(params.run, known.stage).items()
        }
        for known in METHODS
        if Reads.START in known.reads
    }
    written = {
        name: _author_entry(author, BASE_LM if params.authors[author].kind == "base" else _NO_MODEL)
        for name, author in params.run.zero_shot.items()
    }
    public = {name: {"from": author} for name, author in params.run.write_public.items()}
    return evolved | begun | {"zero_shot": written, "write_public": public, CHOOSE.stage: chosen}


def _author_entry(below: str, path: Path) -> dict[str, str]:
    return {"from": below, "reads": str(path)}


def _start_file(params: Params, variant: str) -> Path:
    """The file that a variant's first population is chosen from."""
    settings: Any = params.variants[variant].settings
    chosen = settings.zero_shot
    return PUBLIC / "train.parquet" if chosen is None else ZERO_SHOT / f"{chosen}.parquet"


def render_graph(params: Params) -> str:
    """The text of the workspace's dvc.yaml."""
    has, writers, remote = parts_of(params)
    return _text(frozenset(has), writers, remote)


def parts_of(params: Params) -> tuple[list[Feature], str, str | None]:
    """Return what the graph follows from: features, who writes for whom as JSON, and the remote of private files."""
    return sorted(features(params)), json.dumps(find_authored(params)), params.stores.private


@cache  # to lay it out takes longer than all else that `init` does, and most settings change nothing in it
def _text(has: frozenset[Feature], writers: str, remote: str | None) -> str:
    return render(has, json.loads(writers), remote)


def render(has: frozenset[Feature], writers: Authored = _NOBODY, remote: str | None = None) -> str:
    """Return the text of dvc.yaml for these features and writers, and the remote that private files may go to."""
    yaml, text = YAML(), StringIO()
    yaml.width = 4096  # no line is broken within a value
    yaml.indent(mapping=2, sequence=4, offset=2)
    found = document(has, writers, remote)
    stages = CommentedMap((name, _lay_out(entry)) for name, entry in found["stages"].items())
    for name in list(stages)[1:]:
        stages.yaml_set_comment_before_after_key(name, before="\n")
    yaml.dump(found | {"stages": stages}, text)
    return _HEAD + text.getvalue()


def document(has: frozenset[Feature], writers: Authored = _NOBODY, remote: str | None = None) -> dict[str, Any]:
    """Return the content of dvc.yaml.

    No stage reads a file that params.yaml does not ask for, or that only a stage left out would write.

    Guarantee: `dvc push` takes no output of a private or dp stage, but for `PUBLIC_FILES`, to another remote than
    `remote`, whichever it is asked to push to. DVC skips an output with `push: false`, and one that names a remote
    wherever it pushes to another.
    """
    there = [stage for stage in STAGES if has.issuperset(stage.needs)]
    absent = {path for path, feature in _OPTIONAL.items() if feature not in has}
    absent |= {path for stage in STAGES for path in stage.writes} - {path for stage in there for path in stage.writes}
    stages = {stage.name: _repeat_entry(stage, absent, writers) for stage in there}
    return {"vars": [f"{RESOLVED}:run"], "stages": stages if remote is None else _set_remote(stages, remote)}


def _set_remote(value: Any, remote: str) -> Any:
    """The value with the remote's name on each output in DVC's cache that would not be pushed."""
    if isinstance(value, list):
        return [_set_remote(part, remote) for part in value]
    if not isinstance(value, dict):
        return value
    if value.get("push") is False and value.get("cache") is not False:
        value = {key: part for key, part in value.items() if key != "push"} | {"remote": remote}
    return {key: _set_remote(part, remote) for key, part in value.items()}


def _repeat_entry(stage: Stage, absent: set[str], writers: Authored) -> _Entry:
    entry = {key: value for key, value in _entry(stage, absent) if value}
    if stage.over is None:
        return entry
    entry = _spell_names(stage, entry)
    listed = f"${{{stage.over.listed}}}"
    if stage.over.item is None:
        names = {name: dict(own) for name, own in writers.get(stage.name, {}).items()}
        if stage.over.several:
            entry["deps"] = list(_repeat_deps(entry["deps"], max(map(len, names.values()), default=1)))
        return {"foreach": names if stage.over.authored or stage.over.several else listed, "do": entry}
    return {"desc": entry.pop("desc"), "matrix": {stage.over.item: listed}, **entry}


def _repeat_deps(deps: Sequence[str], several: int) -> Iterator[str]:
    """Yield the dependencies; one that names the first of several is repeated for each of them."""
    for dep in deps:
        yield from (dep.replace(FIRST, f"${{item.of{place}}}") for place in range(several if FIRST in dep else 1))


def _entry(stage: Stage, absent: set[str]) -> Iterator[tuple[str, Any]]:
    """Each key of a stage's entry with its value; one with nothing in it is left out."""
    yield "desc", stage.desc
    yield "cmd", stage.command
    yield "always_changed", stage.always
    yield "params", [{RESOLVED: list(stage.params)}] if stage.params else []
    public = PUBLIC_FILE if str(WRITTEN) in absent else str(WRITTEN)  # which a person names in params.yaml, or nobody
    yield "deps", [public if path == PUBLIC_FILE else path for path in stage.reads if path not in absent]
    kept = [path for path in stage.kept if path not in absent]
    yield "outs", [_output(stage, path, {} if stage.cached else {"cache": False}) for path in kept]
    yield "metrics", [_output(stage, path) for path in map(str, stage.metrics) if path not in absent]
    axes = ((str(plot.path), {"x": plot.x, "y": plot.y, "title": plot.title}) for plot in stage.plots)
    yield "plots", [_output(stage, path, options) for path, options in axes]
    yield "meta", dict(_meta(stage, absent))


def _output(stage: Stage, path: str, options: Mapping[str, Any] | None = None) -> str | _Entry:
    held = {**(options or {}), **({} if stage.may_push(path) else {"push": False})}
    return {path: held} if held else path


def _meta(stage: Stage, absent: set[str]) -> Iterator[tuple[str, Any]]:
    yield from (("gpus", stage.gpus), ("retries", stage.retries), ("zone", stage.zone.value))
    if stage.team:
        yield "team", True
    if stage.receipt is not None:
        yield "receipt", str(stage.receipt)
    if gates := [path for path in map(str, stage.gates) if path not in absent]:
        yield "gates", gates


def _spell_names(stage: Stage, value: Any) -> Any:
    """Return the value with DVC's words for what the stage is repeated for."""
    if isinstance(value, str) and stage.over is not None:
        return stage.over.spell(value)
    if isinstance(value, dict):
        return {_spell_names(stage, key): _spell_names(stage, part) for key, part in value.items()}
    return [_spell_names(stage, part) for part in value] if isinstance(value, list) else value


def _lay_out(value: Any, key: str = "") -> Any:
    """The value as it is laid out: options and short lists of keys in one line, all else a line each."""
    if isinstance(value, list):
        found = CommentedSeq([_lay_out(part, "options") for part in value])
        if key in (RESOLVED, "gates") and len(", ".join(map(str, value))) < _WIDTH:
            found.fa.set_flow_style()
        return found
    if not isinstance(value, dict):
        return value
    held = {name: "held" if key in ("options", "foreach") and name != RESOLVED else name for name in value}
    inner = CommentedMap((name, _lay_out(part, held[name])) for name, part in value.items())
    if key == "held" or (key == "meta" and "receipt" not in value):
        inner.fa.set_flow_style()
    return inner
