"""The code that a stage is held to is what it can run: no more, or it runs for nothing, and no less."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import grimp
import pytest
from dvc.repo import Repo

from palimpsest.graph.closure import DYNAMIC, Look, code, digest
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.method import Method
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.work.context import environment
from stages import inputs, spenders

ROOT = Path(__file__).parents[2]
PROGRAMS = inputs.programs()
# Of the page.
BROUGHT = [entry for group in ("pages", "attacks") for entry in entry_points(group=f"palimpsest.{group}")]
# What reaches code or a file otherwise than by an import statement.
CALLS = {"import_module", "__import__", "find_spec", "run_module", "run_path", "exec", "eval", "files", "PackageLoader"}


@pytest.fixture(scope="module")
def look() -> Look:
    """The project as it is: each file is read once for all tests that change none."""
    return Look()


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("palimpsest", "palimpsest_lab", "stages", cache_dir=None)


# Against a second reading of the imports, by other code.


def reached(modules: Sequence[str], imports: grimp.ImportGraph) -> set[str]:
    """The modules and all that they import, each with its packages."""
    found: set[str] = set()
    waiting = [*modules]
    while waiting:
        parts = waiting.pop().split(".")
        for name in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
            if name not in found:
                found.add(name)
                waiting += imports.find_modules_directly_imported_by(name)
                waiting += [entry.module for entry in BROUGHT] if name == "palimpsest.report.sections" else []
    return found


def modules(files: dict[str, Path]) -> set[str]:
    """Names of the modules among files."""
    names = (Path(name).with_suffix("") for name in files if name.endswith(".py"))
    return {".".join(name.parent.parts if name.name == "__init__" else name.parts) for name in names}


@pytest.mark.parametrize("stage", PROGRAMS)
def test_the_code_of_a_stage_is_all_that_it_imports_and_no_more(imports: grimp.ImportGraph, look: Look, stage: str):
    assert modules(look.code(*PROGRAMS[stage])) == reached(PROGRAMS[stage], imports)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_edit_in_one_method_leaves_the_runs_of_every_other(look: Look, method: Method):
    """Between a method's folder and the others are `shared` and what reads params.yaml alone."""
    own = [name for name in look.code(*spenders.modules(method)) if re.match(r"palimpsest(_lab)?/methods/", name)]
    folder = method.module.rpartition(".")[0].replace(".", "/")
    parents = {f"{parent}/__init__.py" for parent in Path(folder).parents}
    reads = look.code("palimpsest.params.schema").keys()
    others = {name for name in own if not name.startswith((f"{folder}/", "palimpsest/methods/shared/"))} - reads
    assert others <= parents
    assert {f"{folder}/plan.py", f"{folder}/fit.py"} & set(own)  # where its plan is made


def test_an_edit_starts_the_stages_of_its_own_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots = {"palimpsest": ROOT / "src", "palimpsest_lab": ROOT / "src", "stages": ROOT}
    for name, home in roots.items():
        copytree(home / name, tmp_path / name, ignore=ignore_patterns("__pycache__"))
    monkeypatch.setattr("palimpsest.graph.closure._homes", lambda: dict.fromkeys(roots, tmp_path))

    def digests() -> dict[str, str]:
        look = Look()
        return {method.name: look.fingerprint(look.code(*spenders.modules(method))) for method in METHODS}

    before = digests()

    def changed(path: str) -> set[str]:
        with (tmp_path / path).open("a") as file:
            file.write("\nEDITED = True\n")
        last, now = before.copy(), digests()
        before.update(now)
        return {name for name in now if now[name] != last[name]}

    assert changed("palimpsest/methods/select/fit.py") == {"select"}
    assert changed("palimpsest_lab/methods/custext/fit.py") == {"custext"}
    assert changed("palimpsest/models/chat/endpoint.py") == {"evolve"}
    assert changed("palimpsest/methods/registry.py") == {method.name for method in METHODS}
    assert changed("stages/fit.py") == {method.name for method in METHODS} - {"dp_lm", "discriminator"}


def test_training_is_held_to_training():
    found = code(*PROGRAMS["dp_train"])
    assert {"palimpsest/training/dpsgd.py", "palimpsest/privacy/view.py", "stages/spending.py"} <= found.keys()
    read = code("palimpsest.params.schema").keys()
    assert not [name for name in found.keys() - read if "chat" in name or "audit" in name or "report" in name]
    methods = {name.split("/")[2] for name in found if name.startswith("palimpsest/methods/") and name.count("/") > 2}
    assert methods <= {"dp_lm", "shared", *(name.split("/")[2] for name in read if "palimpsest/methods/" in name)}


def test_the_page_is_held_to_its_templates_and_its_words():
    found = set(code("stages.report"))
    assert {f"palimpsest/report/{name}" for name in ("assumptions.json", "templates/internal.js")} <= found


def test_there_is_no_code_of_a_stage_that_is_none():
    with pytest.raises(ValueError, match=r"'stages\.unknown'"):
        code("stages.unknown")


# What an import statement does not show.


def sources() -> Iterator[tuple[str, Path]]:
    for home, root in ((ROOT / "src", "palimpsest"), (ROOT / "src", "palimpsest_lab"), (ROOT, "stages")):
        for path in sorted((home / root).rglob("*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def hidden(tree: ast.AST) -> Iterator[str]:
    """Every call or word in the source that loads, starts or reads something by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            own = isinstance(node.func, ast.Attribute) and called in ("exec", "eval")  # `model.eval()` is none
            if called in CALLS and not own:
                yield called
        if isinstance(node, ast.Name) and node.id == "__file__":
            yield "__file__"
        if isinstance(node, ast.Constant) and node.value == "-m":
            yield "-m"


def test_whatever_is_reached_by_name_is_declared():
    found = {module for module, path in sources() if list(hidden(ast.parse(path.read_text())))}
    apart = {"palimpsest.graph.closure", "palimpsest_lab.reproduce.grid"}  # no stage runs them
    assert found - apart == DYNAMIC.keys()


def test_every_file_that_is_shipped_is_somebodys():
    roots = ("src/palimpsest", "src/palimpsest_lab/stages", "stages")
    shipped = [path for root in roots for path in (ROOT / root).rglob("*") if path.is_file()]
    other = {path for path in shipped if path.suffix != ".py" and "__pycache__" not in path.parts}
    assert other == {path for patterns in DYNAMIC.values() for name in patterns for path in (ROOT / "src").glob(name)}


# Sources of every shape, in a project of their own.


@pytest.fixture
def invented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[str]]:
    """Write the code of a stage `s` beside some modules: what it is then held to."""
    for name in ("palimpsest/__init__", "palimpsest/a/__init__", "palimpsest/a/b", "palimpsest/a/c", "palimpsest/d"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr("palimpsest.graph.closure._homes", lambda: {"palimpsest": tmp_path, "stages": tmp_path})

    def held(source: str) -> set[str]:
        (tmp_path / "stages").mkdir(exist_ok=True)
        (tmp_path / "stages" / "s.py").write_text(source)
        return {name.removesuffix(".py") for name in code("stages.s")} - {"stages/s", "palimpsest/__init__"}

    return held


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import palimpsest.a.b", {"palimpsest/a/__init__", "palimpsest/a/b"}),
        ("import palimpsest.a.b as other, json", {"palimpsest/a/__init__", "palimpsest/a/b"}),
        ("from palimpsest.a import c", {"palimpsest/a/__init__", "palimpsest/a/c"}),
        ("from palimpsest.a.c import name", {"palimpsest/a/__init__", "palimpsest/a/c"}),
        ("from palimpsest import d, a", {"palimpsest/a/__init__", "palimpsest/d"}),
        ("def f():\n    if x:\n        import palimpsest.d", {"palimpsest/d"}),
        ("try:\n    from palimpsest import d\nexcept ImportError:\n    pass", {"palimpsest/d"}),
        ("class A:\n    async def f(self):\n        from palimpsest import d", {"palimpsest/d"}),
        ("import numpy, palimpsests.d\nx = 'import palimpsest.d'", set()),
    ],
)  # fmt: skip
def test_an_import_is_found_wherever_it_stands(invented: Callable[[str], set[str]], source: str, expected: set[str]):
    assert invented(source) == expected


def test_relative_imports_are_found(invented: Callable[[str], set[str]], tmp_path: Path):
    (tmp_path / "palimpsest/a/b.py").write_text("from . import c\nfrom ..d import name\n")
    wanted = {"palimpsest/a/__init__", "palimpsest/a/b", "palimpsest/a/c", "palimpsest/d"}
    assert invented("import palimpsest.a.b") == wanted


def test_a_digest_is_of_names_and_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "stages").mkdir()
    monkeypatch.setattr("palimpsest.graph.closure._homes", lambda: {"stages": tmp_path, "palimpsest": tmp_path})
    found = []
    for name, source in (("s", "x = 1"), ("s", "x = 2"), ("t", "x = 1")):
        (tmp_path / "stages" / f"{name}.py").write_text(source)
        found.append(digest.__wrapped__(f"stages.{name}"))
    assert len(set(found)) == 3


# In a workspace of DVC.

GRAPH = """
stages:
  inputs:
    cmd: python -m stages.inputs
    always_changed: true
    outs: [data/inputs: {cache: false}]
  dp_train:
    cmd: echo run >> runs && touch model.txt
    deps: [data/inputs/code/dp_train.json]
    outs: [model.txt]
"""


class Copy:
    """A copy of the project's code, and a workspace that runs on it."""

    def __init__(self, home: Path) -> None:
        self.code, self.workspace = home / "code", home / "workspace"
        copytree(ROOT / "src/palimpsest", self.code / "palimpsest", ignore=ignore_patterns("__pycache__"))
        copytree(ROOT / "stages", self.code / "stages", ignore=ignore_patterns("__pycache__"))
        self.workspace.mkdir()
        Repo.init(str(self.workspace), no_scm=True).close()
        (self.workspace / "dvc.yaml").write_text(GRAPH)
        for name in (FILE, RESOLVED):
            copy(ROOT / name, self.workspace)

    def edit(self, path: str) -> None:
        (self.code / path).write_text((self.code / path).read_text() + "\nEDITED = True\n")

    def python(self, *arguments: str) -> str:
        variables = {**environment(), "PYTHONPATH": os.pathsep.join([str(self.code), str(ROOT)])}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.workspace, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self) -> int:
        """How often the stage has run, after `dvc repro`."""
        self.python("-m", "dvc", "repro")
        return (self.workspace / "runs").read_text().count("run")

    def stale(self) -> list[str]:
        asked = (
            "from pathlib import Path\nfrom palimpsest.work.context import find_stale\n"
            "print(*sorted(find_stale(Path())))"
        )
        return self.python("-c", asked).split()


@pytest.mark.timeout(300)
def test_an_edit_runs_what_it_is_code_of_and_nothing_else(tmp_path: Path):
    copy = Copy(tmp_path)
    assert copy.runs() == 1
    assert copy.stale() == []
    copy.edit("palimpsest/models/chat/endpoint.py")
    assert copy.stale() == ["inputs"]  # others' files there change
    assert copy.runs() == 1
    copy.edit("palimpsest/training/dpsgd.py")
    assert copy.stale() == ["dp_train", "inputs"]
    assert copy.runs() == 2
