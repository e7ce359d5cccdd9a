"""Which code a stage runs: every module of the project that it can import, found by reading the source.

Nothing is imported to find it, so it is known before anything heavy is loaded. What no import statement shows is
declared here: modules that load something by its name, and the files that are shipped beside modules.

A change of this code makes the stage run again, and does nothing more: a charge is identified by what is asked, not by
code (`Run`), so what was paid for is made again, free.
"""

import ast
import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from palimpsest import extensions

_GROUPS = (extensions.METHODS, extensions.STAGES, extensions.PAGES, extensions.ATTACKS)
# Modules that load extensions -> the groups of extensions that the results of their own stages follow from.
_BROUGHT: Mapping[str, tuple[str, ...]] = {"palimpsest.report.sections": (extensions.PAGES, extensions.ATTACKS)}
_IMPORT = re.compile(rb"^[ \t]*((?:import|from)[ \t][^\n(#]*(?:\([^)]*\))?)", re.MULTILINE)

# Modules that reach something without an import statement -> the project's files that they reach so, as patterns.
DYNAMIC: Mapping[str, tuple[str, ...]] = {
    "palimpsest": (),  # the library's interface for Python; no stage uses it
    "palimpsest.cli.begin": (),  # the demo's params.yaml, wherever it is installed
    "palimpsest.cli.ledger": ("palimpsest/privacy/ledger/roles.sql",),  # printed for a database's owner
    "palimpsest.methods.registry": (),  # the declarations of methods; a stage is held to its own
    "palimpsest.models.chat.endpoint": (),  # the package httpx
    "palimpsest.models.sources": (),  # the folder of a package with an encoder
    "palimpsest.parts": (),  # the modules of the accountants, each by itself
    "palimpsest.records.personal": (),  # the rules of a package for numbers of persons
    "palimpsest.records.world.shipped": ("palimpsest/records/world/*.zip",),
    "palimpsest.report.page": ("palimpsest/report/templates/*",),
    "palimpsest.report.statement": ("palimpsest/report/*.json",),
    "palimpsest.report.twins": ("palimpsest/report/twins.json",),
    "palimpsest.work.look": (),  # starts the program that writes the sample browser
    "palimpsest.work.run": (),  # starts DVC, and the stage that draws the page
    "stages": (),  # looks how it was started
    "stages.packaged": (),  # the stage of a package, whose own module is what it is held to
    "stages.together": (),  # starts the stage that is running, in several processes
    "stages.warm": (),  # starts itself, and the stage that is asked for
}


class Look:
    """The project's files as they are now. Each is read once; only a new `Look` sees a later change."""

    def __init__(self) -> None:
        self._source = functools.cache(_source)
        self._content = functools.cache(Path.read_bytes)
        self._needed = functools.cache(self._read)
        self._hashed = functools.cache(lambda path: hashlib.sha256(self._content(path)).digest())

    def code(self, *modules: str) -> dict[str, Path]:
        """Return name -> place of every file of the project that the modules can run or read, themselves included.

        Names are those in a checkout or an installation, such as `stages/dp_train.py`, and are sorted.

        Raises:
            ValueError: there is no such module in the project.
        """
        for module in modules:
            if self._source(module) is None:
                raise ValueError(f"there is no module {module!r} in {' or '.join(_roots())}")
        found: dict[str, Path] = {}
        for name in self._reach(modules):
            files = [self._source(name), *(file for pattern in DYNAMIC.get(name, ()) for file in _match_files(pattern))]
            found |= {path.relative_to(_home(name)).as_posix(): path for path in files if path is not None}
        return dict(sorted(found.items()))

    def fingerprint(self, found: Mapping[str, Path]) -> str:
        """Return the SHA-256 of the names and the content of what `code` has found."""
        known = hashlib.sha256()
        for name, path in found.items():
            known.update(f"{name}\0".encode() + self._hashed(path))
        return known.hexdigest()

    def _reach(self, modules: Sequence[str]) -> set[str]:
        found: set[str] = set()
        waiting = [*modules]
        while waiting:
            name = waiting.pop()
            if name not in found and self._source(name) is not None:
                found.add(name)
                waiting += self._needed(name)
        return found

    def _read(self, module: str) -> list[str]:
        """Return all that importing a module may import: its packages, and what its statements name, at any depth."""
        path = self._source(module)
        assert path is not None
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        brought = (
            entry.module for group in _BROUGHT.get(module, ()) for entry in extensions.find_entries(group).values()
        )
        return [*_with_packages(module), *brought, *_imports(self._content(path), package)]


def code(*modules: str) -> dict[str, Path]:
    """Return what `Look.code` finds now."""
    return Look().code(*modules)


@functools.cache
def digest(*modules: str) -> str:
    """Return the SHA-256 of the names and the content of `code(*modules)`. Equal code has one digest, wherever it lies.

    A process looks only once, because what it has imported stays as it is.
    """
    look = Look()
    return look.fingerprint(look.code(*modules))


def _imports(source: bytes, package: str) -> tuple[str, ...]:
    """Return the project's modules that the import statements of `source` name, with the packages they lie in."""
    found = (name for node in _import_statements(source) for name in _imported_names(node, package))
    return tuple(dict.fromkeys(part for name in found if _is_ours(name) for part in _with_packages(name)))


def _import_statements(source: bytes) -> list[ast.AST]:
    """Parse each line that begins as an import by itself; if one is no import, parse the module, ten times as slow.

    An import behind something else on its line is not found. The style here has none, and a test compares what is
    found with a second reading of the project.
    """
    try:
        return [node for line in _IMPORT.findall(source) for node in ast.parse(line).body]
    except SyntaxError:
        return [*_statements(ast.parse(source))]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in _roots()


@functools.cache
def _roots() -> frozenset[str]:
    """The packages whose code counts: ours, and those that bring something."""
    brought = (entry for group in _GROUPS for entry in extensions.find_entries(group).values())
    return frozenset({"palimpsest", "stages", *(entry.module.partition(".")[0] for entry in brought)})


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node. Expressions, most of the nodes, are skipped: they contain no statement."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, part, ())
        for one in inner if isinstance(inner, list) else ():
            yield one
            yield from _statements(one)


def _imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield what one statement may import: `from a import b` names a, and a.b where that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _source(module: str) -> Path | None:
    return _file(_home(module), module) if _is_ours(module) else None


def _file(home: Path, module: str) -> Path | None:
    place = os.path.join(home, *module.split("."))
    return next((Path(path) for path in (f"{place}/__init__.py", f"{place}.py") if os.path.isfile(path)), None)


def _match_files(pattern: str) -> Iterator[Path]:
    return (path for path in _home(pattern.replace("/", ".")).glob(pattern) if path.is_file())


def _home(module: str) -> Path:
    return _homes()[module.partition(".")[0]]


def _homes() -> Mapping[str, Path]:
    return {root: place.parent for root, place in packages().items()}


@functools.cache
def packages() -> Mapping[str, Path]:
    """Return root -> its folder, or its file where it is a single module, for all packages whose code counts."""
    specs = {root: find_spec(root) for root in _roots()}  # only of roots: finding a part of one would run its packages
    return {root: _place_of(spec) for root, spec in specs.items() if spec}


def _place_of(spec: ModuleSpec) -> Path:
    folders = spec.submodule_search_locations
    return Path(next(iter(folders)) if folders else str(spec.origin))
