"""Which stages are up to date, by the lock file and the files as they lie: DVC's rule, applied without DVC.

DVC takes seconds to start, and waits while a run holds its lock. This module only reads, and takes no lock. It only
reports: what `dvc repro` does is up to DVC, and a test compares the two.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import DataError
from palimpsest.files import find_cache, read_json
from palimpsest.graph.expand import MADE, Repetition, expand, fill_names, params_keys, value_at
from palimpsest.params.file import RESOLVED
from palimpsest.params.resolve import to_file_key
from palimpsest.workspace import CODE, DVC, GRAPH, INPUTS, LOCK, SOURCES

ITS_CODE = "its code (another version of palimpsest, or of a package)"
_NEVER = "it has not run here"
_SHOWN = 24  # the longest value that is shown, in characters

Noted = Mapping[str, Any]  # what the lock file says of a stage
Facts = Callable[[], Mapping[str, bytes]]


class State(StrEnum):
    """The action that a run would take on a stage."""

    CACHED = "cached"  # nothing: it is up to date
    RESTORABLE = "restorable"  # take its files from DVC's cache, free: it ran on the same before
    RUNS = "will run"


@dataclass(frozen=True)
class Standing:
    """The state of a stage."""

    stage: str  # its name in dvc.yaml
    name: str  # with what it is repeated for
    state: State
    # what changed since it ran, in the words of params.yaml and file paths; empty where nothing did
    why: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # names of stages before it that will run: what it reads may change


def survey(workspace: Path, facts: Facts, read: Callable[[Path], Any] | None = None) -> list[Standing]:
    """Every stage of a workspace, each after those it needs.

    Args:
        workspace: the folder with dvc.yaml.
        facts: returns what the files of stage `inputs` say now, by their paths; called where something has run before.
        read: reads a YAML file that may be missing, in place of `read_yaml`.

    Raises:
        ParamsError, DataError: a name in dvc.yaml stands for nothing, dvc.lock is not whole, or DVC's settings cannot
            be read.
    """
    read = read or read_yaml
    stages = {one.name: one for one in _read_stages(workspace, read)}
    look = _Look(workspace, read(workspace / RESOLVED), facts, _read_lock(workspace, read), Cache.of(workspace))
    return [look.examine(stages[name]) for name in _sort_upstream_first(_find_needs(list(stages.values())))]


def list_stages(workspace: Path, read: Callable[[Path], Any] | None = None) -> list[str]:
    """Return the names of the stages of dvc.yaml, each after those it needs.

    Args:
        workspace: the folder with dvc.yaml.
        read: reads a YAML file that may be missing, in place of `read_yaml`.

    Raises:
        ParamsError: a name in dvc.yaml stands for nothing.
    """
    return _sort_upstream_first(_find_needs(_read_stages(workspace, read or read_yaml)))


def _read_stages(workspace: Path, read: Callable[[Path], Any]) -> list[Repetition]:
    return expand(read(workspace / GRAPH).get("stages", {}), read(workspace / RESOLVED))


def _sort_upstream_first(needs: Mapping[str, set[str]]) -> list[str]:
    """Return the stages, each after those it needs; otherwise in their order."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in found:
            for need in sorted(needs[name], key=list(needs).index):
                visit(need)
            found[name] = None

    for one in needs:
        visit(one)
    return list(found)


def _find_needs(stages: Sequence[Repetition]) -> dict[str, set[str]]:
    """Return stage -> the stages that write what it reads: a file, a folder around it, or something in a folder."""
    inside: dict[str, set[str]] = {}  # a path -> who writes it or something below it
    whole: dict[str, str] = {}
    for one in stages:
        for path in one.paths(*MADE):
            whole[path] = one.name
            for place in (path, *_parent_paths(path)):
                inside.setdefault(place, set()).add(one.name)
    needs = {}
    for one in stages:
        deps = one.paths("deps")
        above = {whole[place] for path in deps for place in _parent_paths(path) if place in whole}
        needs[one.name] = {name for path in deps for name in inside.get(path, ())} | above
    return needs


def _parent_paths(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


@dataclass(frozen=True)
class Cache:
    """DVC's cache on this disk: files by their hashes, and what stages made of what."""

    folder: Path

    @classmethod
    def of(cls, workspace: Path) -> "Cache":
        """Return the cache of a workspace."""
        found = find_cache(workspace)
        return cls(workspace / DVC / "cache" if found is None else found.folder)

    def holds(self, value: str) -> bool:
        """Whether the file, or every file of the folder, of that hash is there."""
        if not value.endswith(".dir"):
            return self._path(value).is_file()
        parts = self._parts(value)
        return parts is not None and all(self._path(each).is_file() for each in parts.values())

    def hash_inside(self, value: str, name: str) -> str | None:
        """The hash of a file in the folder of that hash."""
        return (self._parts(value) or {}).get(name) if value.endswith(".dir") else None

    @property
    def has_runs(self) -> bool:
        """Whether it knows of any run."""
        return (self.folder / "runs").is_dir()

    def find_run(self, key: Noted) -> Noted | None:
        """Return what the newest run of the same command, inputs and settings made; None where there was none."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        folder = self.folder / "runs" / digest[:2] / digest
        runs = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []
        return next((made for made in map(_run, reversed(runs)) if made is not None), None)

    def _parts(self, value: str) -> Mapping[str, str] | None:
        """Return name -> hash of the files in the folder of that hash; None if the cache lacks a whole list of them."""
        try:
            return {str(part["relpath"]): str(part["md5"]) for part in read_json(self._path(value))}
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def _path(self, value: str) -> Path:
        return self.folder / "files" / "md5" / value[:2] / value[2:]


@dataclass
class _Look:
    workspace: Path
    values: Noted
    told: Facts
    lock: Mapping[str, Noted]
    cache: Cache
    # the hash that each file will have by then; None where it is not known
    hashes: dict[str, str | None] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    # folder -> stages that may still change something in it
    inside: dict[str, dict[str, None]] = field(default_factory=dict)

    @cached_property
    def facts(self) -> Mapping[str, bytes]:
        return self.told()

    def examine(self, one: Repetition) -> Standing:
        """Return the state of a stage; those before it must have been looked at."""
        standing = self._inputs(one) if one.stage == INPUTS.name else self._standing(one)
        for path in one.paths(*MADE):
            self.writers[path] = one.name
            if standing.state is State.RUNS:
                self.hashes[path] = None
                for place in _parent_paths(path):
                    self.inside.setdefault(place, {})[one.name] = None
        return standing

    def _inputs(self, one: Repetition) -> Standing:
        """Return the state of the stage that looks at the world outside: it runs where it would change its files."""
        if not (self.workspace / INPUTS).is_dir():
            return Standing(one.stage, one.name, State.RUNS, (_NEVER,))
        now = {path: hashlib.md5(content).hexdigest() for path, content in self.facts.items()}
        told = tuple(_describe_file(path) for path, value in now.items() if md5_of(self.workspace / path) != value)
        return Standing(one.stage, one.name, State.RUNS if told else State.CACHED, told)

    def _standing(self, one: Repetition) -> Standing:
        after = tuple(dict.fromkeys(name for path in one.paths("deps") for name in self._pending_writers(path)))
        noted = self.lock.get(one.name)
        if noted is None and (after or not self.cache.has_runs):
            return Standing(one.stage, one.name, State.RUNS, (_NEVER,), after)
        now = self._lock_entry(one)
        why = (_NEVER,) if noted is None else tuple(_changes(noted, now))
        if after:
            return Standing(one.stage, one.name, State.RUNS, why, after)
        made = self.cache.find_run(now) if why else noted
        if noted is not None and not why and self._is_intact(one, noted):
            return self._note_hashes(one, State.CACHED, noted, ())
        if made is not None and all(self.cache.holds(out["md5"]) for out in made.get("outs", [])):
            return self._note_hashes(one, State.RESTORABLE, made, why or ("its files are not as it wrote them",))
        return Standing(one.stage, one.name, State.RUNS, why or ("its files are gone",))

    def _note_hashes(self, one: Repetition, state: State, made: Noted, why: tuple[str, ...]) -> Standing:
        self.hashes |= {out["path"]: out["md5"] for out in made["outs"]}
        return Standing(one.stage, one.name, state, why)

    def _pending_writers(self, path: str) -> Iterator[str]:
        """Yield the stages before this one that may still change what a path holds."""
        if _is_inside(path, INPUTS.as_posix()):
            return
        for place in (path, *_parent_paths(path)):
            if self.hashes.get(place, "") is None:
                yield self.writers[place]
        yield from self.inside.get(path, ())

    def _lock_entry(self, one: Repetition) -> Noted:
        """Return what the lock file would say of a stage run now; a file that may still change has no hash."""
        settings = {key: value_at(self.values, key) for key in fill_names(sorted(params_keys(one.body)), one.values)}
        body = {
            "cmd": fill_names([one.body["cmd"]], one.values)[0],
            "deps": [{"path": path, "hash": "md5", "md5": self._hash(path)} for path in sorted(one.paths("deps"))],
            "params": {RESOLVED: settings} if settings else None,
        }
        return {key: value for key, value in body.items() if value} | {"outs": sorted(one.paths(*MADE))}

    def _hash(self, path: str) -> str | None:
        if _is_inside(path, INPUTS.as_posix()) and path in self.facts:
            return hashlib.md5(self.facts[path]).hexdigest()
        if path in self.hashes:
            return self.hashes[path]
        for place in _parent_paths(path):
            if value := self.hashes.get(place):
                return self.cache.hash_inside(value, path.removeprefix(f"{place}/"))
        return None if any(self._pending_writers(path)) else md5_of(self.workspace / path)

    def _is_intact(self, one: Repetition, noted: Noted) -> bool:
        """Whether what it wrote lies where it wrote it, and in the cache where DVC keeps it there."""
        wrote = {out["path"]: out["md5"] for out in noted.get("outs", [])}
        if wrote.keys() != set(one.paths(*MADE)):
            return False
        return all(
            md5_of(self.workspace / path) == value and (path in _list_uncached(one) or self.cache.holds(value))
            for path, value in wrote.items()
        )


def _changes(noted: Noted, now: Noted) -> Iterator[str]:
    """Yield, in words, what differs from what the lock file says."""
    if noted["cmd"] != now["cmd"]:
        yield "its command"
    before = noted.get("params", {}).get(RESOLVED, {})
    for key, value in now.get("params", {}).get(RESOLVED, {}).items():
        yield from _differences(key, before.get(key, _ABSENT), value)
    known = {dep["path"]: dep["md5"] for dep in noted.get("deps", [])}
    for dep in now.get("deps", []):
        if dep["md5"] is not None and known.get(dep["path"]) != dep["md5"]:
            yield _describe_file(dep["path"])


_ABSENT = object()


def _differences(key: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for part in dict.fromkeys((*before, *now)):
            yield from _differences(f"{key}.{part}", before.get(part, _ABSENT), now.get(part, _ABSENT))
    elif before is _ABSENT or now is _ABSENT or before != now:
        name = ".".join(map(str, to_file_key(tuple(key.split(".")))))
        values = [_format_setting(value) for value in (before, now)]
        yield name if None in values else f"{name} ({values[0]} before, {values[1]} now)"


def _format_setting(value: Any) -> str | None:
    """Return a setting as it is shown; None if it is long or a collection."""
    if value is _ABSENT:
        return "not set"
    if isinstance(value, (Mapping, list)):
        return None
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _SHOWN else None


def _describe_file(path: str) -> str:
    """Return the name by which its owner knows a file that a stage reads."""
    name = Path(path)
    if name.parent == CODE:
        return ITS_CODE
    return f"the model {name.stem}" if name.parent == SOURCES else path


def md5_of(path: Path) -> str | None:
    """The hash by which DVC knows a file, or a folder by its files; None where there is nothing."""
    try:
        if not path.is_dir():
            seen = path.stat()
            return _md5(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)
    except OSError:
        return None
    found = sorted(Path(folder, name).relative_to(path).parts for folder, _, names in os.walk(path) for name in names)
    entries = [{"md5": md5_of(path.joinpath(*parts)), "relpath": "/".join(parts)} for parts in found]
    ordered = sorted(entries, key=lambda entry: str(entry["relpath"]))
    return f"{hashlib.md5(json.dumps(ordered, sort_keys=True).encode()).hexdigest()}.dir"


@cache
def _md5(path: str, _size: int, _time: int, _inode: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _list_uncached(one: Repetition) -> set[str]:
    """Return what it writes and DVC does not look for in its cache, which may hold a copy of a metric or plot."""
    written = (entry for key in MADE for entry in one.body.get(key, []) if not isinstance(entry, str))
    return {path for entry in written for path, how in entry.items() if how.get("cache") is False}


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _run(path: Path) -> Noted | None:
    """Return what DVC's cache notes of a run; None where a full disk left half a note, which DVC removes on reading."""
    try:
        made = read_yaml(path)
        return dict(made) if made["outs"] else None
    except (KeyError, TypeError, ValueError, YAMLError):
        return None


def _read_lock(workspace: Path, read: Callable[[Path], Any]) -> Mapping[str, Noted]:
    """Return stage -> what DVC's lock file says of it. Raises DataError if the file is not whole."""
    try:
        stages = dict(read(workspace / LOCK).get("stages", {}))
        if not all(map(_is_whole, stages.values())):
            raise ValueError(LOCK)
        return stages
    except (AttributeError, TypeError, ValueError, YAMLError):
        raise DataError(
            f"{LOCK} cannot be read: it is not whole, or was changed by hand.",
            "Put it back from a backup, or remove it and run again: what DVC's cache has is restored, free.",
        ) from None


def made_alike(workspace: Path, stage: str, facts: Callable[[Noted, Callable[[str], str | None]], object]) -> bool:
    """Whether `facts`, of a stage's settings and of the hash of each file by its path, are those that it ran with."""
    with suppress(KeyError, TypeError):  # it has not run, or its note was edited
        noted, values = _read_lock(workspace, read_yaml)[stage], read_yaml(workspace / RESOLVED)
        before, hashes = noted["params"][RESOLVED], {dep["path"]: dep["md5"] for dep in noted["deps"]}
        now = {key: value_at(values, key) for key in before}
        return facts(before, hashes.get) == facts(now, lambda path: md5_of(workspace / path))
    return False


def _is_whole(noted: Noted) -> bool:
    """Whether each file of a stage has its hash: half of an entry may be good YAML."""
    return all(file.get("path") and file.get("md5") for side in ("deps", "outs") for file in noted.get(side, []))


def read_yaml(path: Path) -> Any:
    """Read a YAML file as DVC does; return an empty mapping where there is no file."""
    return (YAML(typ="safe").load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}
