"""Every error that the code raises, with its remedy, as a page: read from the source, of which nothing runs.

    python -m tools.reference errors   # prints the page
    python -m bench.errors .coverage   # says which of them no test provokes, after `make coverage`

An error is a call of a subclass of `PalimpsestError`, or a `Problem` that `palimpsest init` makes one of. What is
filled in becomes ‹name›. A class with an `__init__` of its own, and a function that hands `problem` and `remedy` on,
are looked through to what their callers say.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "stages", "flows")
BASE, PAIR, PARTS = "PalimpsestError", "Problem", ("problem", "remedy")
HEAD = """# Errors

Every error has two parts: what is wrong, and what to do. This page lists them all. It is rendered from the code that
makes them. Search it for a few words of your message: ‹name› stands for a value, such as a path or a key. No error
quotes a private row.

A command that ends with an error has exit status 1. The class is what `except` names in Python; each is a
`PalimpsestError`.
"""
TABLE = "| What is wrong | What to do | Class | Where |\n| --- | --- | --- | --- |\n"
# What one was at -> where that code lies; the first that fits counts.
AREAS = {
    "`palimpsest dataset`": ("src/palimpsest_lab/commands/dataset", "src/palimpsest_lab/datasets/"),
    "`palimpsest sweep` and `compare`": (
        "src/palimpsest/work/plan",
        "src/palimpsest/work/look",
        "src/palimpsest/cli/look",
        "src/palimpsest/params/sweep",
    ),
    "`palimpsest reproduce`": ("src/palimpsest_lab/commands/reproduc", "src/palimpsest_lab/reproduce/"),
    "`palimpsest init`": ("src/palimpsest/work/begin", "src/palimpsest/work/check", "src/palimpsest/cli/begin"),
    "Files and their records": ("src/palimpsest/records/",),
    "params.yaml": ("src/palimpsest/params/",),
    "The ledger and its budget": ("src/palimpsest/privacy/ledger/", "src/palimpsest/privacy/receipt", "stages/models"),
    "Release": ("src/palimpsest/report/release/", "stages/release"),
    "Commands, runs and the graph": (
        "src/palimpsest/cli/",
        "src/palimpsest/work/",
        "src/palimpsest/graph/",
        "flows/",
        "stages/common",
    ),
    "Models": ("src/palimpsest/models/",),
    "Methods": ("src/palimpsest/methods/", "src/palimpsest/prediction/", "stages/fit", "stages/spenders"),
    "Training": ("src/palimpsest/training/", "stages/together"),
    "Queries of private rows": ("src/palimpsest/privacy/",),
    "Audits and pages": ("src/palimpsest/audit/", "src/palimpsest/report/", "src/palimpsest_lab/twins/", "stages/"),
    "From Python, and the rest": ("",),
}
_PURE = {"len": len, "str": str, "sorted": sorted, "tuple": tuple, "frozenset": frozenset}

Constants = Mapping[str, object]
Function = ast.FunctionDef | None


class Template(NamedTuple):
    """One error as the source has it: its class, its two parts with ‹name› for what is filled in, and its place."""

    kind: str
    problem: str
    remedy: str
    file: str
    line: int


@dataclass(frozen=True)
class Scope:
    """What names stand for at a place of the source."""

    constants: Constants  # name -> value, of the module
    function: Function = None  # the function around the place
    given: Mapping[str, str] = field(default_factory=dict)  # parameter -> what a caller gives it, as text

    def text(self, node: ast.expr) -> str:
        """An expression's text, with ‹name› for what the source alone does not say."""
        match node:
            case ast.Constant(value):
                return str(value)
            case ast.JoinedStr(values):
                return "".join(self.text(value) for value in values)
            case ast.FormattedValue(value) if (whole := _value(ast.JoinedStr([node]), self.constants)) is None:
                return self.text(value)
            case ast.FormattedValue():
                return str(whole)
            case ast.IfExp(_, first, second):
                return " / ".join(filter(None, (self.text(first), self.text(second))))
            case ast.Name(name) if name in self.given:
                return self.given[name]
            case ast.Name() if assigned := _assigned(node, self.function):
                return self.text(assigned)
        value = _value(node, self.constants)
        return f"‹{_called(node)}›" if value is None else str(value)


class Maker(NamedTuple):
    """What makes an error: a class, or a function that is given `problem` and `remedy`."""

    kind: str  # the class of the error
    parameters: tuple[str, ...]  # their names, in order
    parts: Callable[[Mapping[str, str]], tuple[str, str]]  # parameter -> its text, to the problem and the remedy

    def called(self, call: ast.Call, scope: Scope) -> tuple[str, str]:
        """The two parts, where it is called so."""
        handed = [] if any(isinstance(each, ast.Starred) for each in call.args) else map(scope.text, call.args)
        given = dict(zip(self.parameters, handed, strict=False))
        return self.parts({name: given.get(name, f"‹{name}›") for name in self.parameters})


def _value(node: ast.expr, constants: Constants) -> object:
    """What an expression of constants is; None where it is none."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    if not names - bound <= constants.keys() | _PURE.keys():
        return None
    expression = compile(ast.fix_missing_locations(ast.Expression(node)), "constant", "eval")
    try:
        return eval(expression, {"__builtins__": {}, **_PURE, **constants})
    except (TypeError, NameError, KeyError):
        return None


def _called(node: ast.AST) -> str:
    """A short name for what an expression stands for."""
    match node:
        case ast.Attribute(ast.Call(ast.Name("type"), [inner]), "__name__"):
            return f"kind of {_called(inner)}"
        case ast.Attribute(ast.Name(owner), "name" | "id" | "__name__") if owner != "self":
            return _words(owner)
        case ast.Attribute(_, name) | ast.Name(name):
            return _words(name)
        case ast.Call(ast.Name("len")):
            return "number"
        case (
            ast.Call(ast.Attribute(inner), [ast.Constant(), *_])
            | ast.Call(_, [inner, *_])
            | ast.Call(ast.Attribute(inner))
            | ast.Subscript(inner)
        ):
            return _called(inner)
        case ast.GeneratorExp(_, [ast.comprehension(_, inner)]) | ast.ListComp(_, [ast.comprehension(_, inner)]):
            return _called(inner)
        case ast.BinOp(inner) | ast.BoolOp(_, [inner, *_]):
            return _called(inner)
    return "…"


def _words(name: str) -> str:
    return name.strip("_").lower().replace("_", " ")


def _assigned(name: ast.Name, function: Function) -> ast.expr | None:
    """The text that the function around gave a name last before it stands there."""
    given = [
        each
        for each in (ast.walk(function) if function else ())
        if isinstance(each, ast.Assign) and each.lineno < name.lineno and ast.unparse(each.targets[0]) == name.id
    ]
    last = max(given, key=lambda each: each.lineno, default=None)
    return last.value if last and _is_text(last.value) else None


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.IfExp(_, first, second):
            return _is_text(first) or _is_text(second)
        case ast.JoinedStr() | ast.Constant(str()):
            return True
    return False


@dataclass(frozen=True)
class Module:
    """One file of the source."""

    file: str
    tree: ast.Module
    constants: Constants

    @cached_property
    def nodes(self) -> list[tuple[ast.AST, Function]]:
        """Every call and every value that a function gives, with the function around it."""
        found: list[tuple[ast.AST, Function]] = []
        waiting: list[tuple[ast.AST, Function]] = [(self.tree, None)]
        while waiting:
            node, around = waiting.pop()
            inside = node if isinstance(node, ast.FunctionDef) else around
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
            if isinstance(node, (ast.Call, ast.Yield, ast.Return)):
                found.append((node, around))
        return found

    def rows(self, function: Function) -> Iterator[tuple[str, str]]:
        """The pairs of texts in the tables of the module that a function reads."""
        read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)} if function else set()
        for name, value in _assignments(self.tree):
            for node in ast.walk(value) if name in read else ():
                match node:
                    case ast.Tuple([*_, ast.Constant(str(problem)), ast.Constant(str(remedy))]):
                        yield problem, remedy
                    case ast.Name(other) if isinstance(pair := self.constants.get(other), tuple) and len(pair) == 2:
                        yield pair


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                yield from ((ast.unparse(name), value) for name, value in zip(names, values, strict=True))
            case ast.Assign([target], ast.expr() as value) | ast.AnnAssign(target, _, ast.expr() as value):
                yield ast.unparse(target), value


@cache
def _module(path: Path) -> Module:
    """A file, with the constants that it has and those that it imports."""
    tree, constants = ast.parse(path.read_text(encoding="utf-8")), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (other := _path(node.module or "")):
            theirs = _module(other).constants
            constants |= {(each.asname or each.name): theirs[each.name] for each in node.names if each.name in theirs}
    for name, node in _assignments(tree):
        if (value := _value(node, constants)) is not None:
            constants[name] = value
    return Module(path.relative_to(ROOT).as_posix(), tree, constants)


def _path(module: str) -> Path | None:
    place = module.replace(".", "/") + ".py"
    return next((ROOT / top / place for top in ("src", "") if (ROOT / top / place).is_file()), None)


def modules() -> list[Module]:
    """Every file of the source."""
    return [_module(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def classes(source: list[Module]) -> dict[str, Maker]:
    """The classes of errors: name -> what it makes of its arguments."""
    every = [(node, module) for module in source for node in module.tree.body if isinstance(node, ast.ClassDef)]
    found = {BASE: Maker(BASE, PARTS, lambda given: (given["problem"], given["remedy"]))}
    for _ in every:  # a class may stand before the one that it is made of
        for node, module in every:
            above = next(
                (found[each.id] for each in node.bases if isinstance(each, ast.Name) and each.id in found), None
            )
            if above and node.name not in found:
                found[node.name] = _class(node, above, module)
    return found


def _class(node: ast.ClassDef, above: Maker, module: Module) -> Maker:
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            calls = (each for each in ast.walk(method) if isinstance(each, ast.Call))
            call = next(each for each in calls if ast.unparse(each.func) == "super().__init__")
            return _through(above, call, method, module)._replace(kind=node.name)
    return above._replace(kind=node.name)


def _through(maker: Maker, call: ast.Call, function: ast.FunctionDef, module: Module) -> Maker:
    """What a function makes of its parameters by calling a maker."""
    parameters = tuple(each.arg for each in function.args.args if each.arg != "self")
    return Maker(maker.kind, parameters, lambda given: maker.called(call, Scope(module.constants, function, given)))


def _makers(module: Module, known: Mapping[str, Maker]) -> Iterator[tuple[str, Maker]]:
    """The module's functions that make an error of the `problem` and the `remedy` that they are given."""
    for node, around in module.nodes:
        if isinstance(node, ast.Call) and (maker := known.get(_name(node.func))) and _hands_on(around):
            yield around.name, _through(maker, node, around, module)


def _hands_on(function: Function) -> TypeGuard[ast.FunctionDef]:
    return function is not None and set(PARTS) <= {each.arg for each in function.args.args}


def _name(function: ast.expr) -> str:
    """Of what is called: a class, a function, or a method of one's own."""
    match function:
        case ast.Name(name) | ast.Attribute(ast.Name("self"), name):
            return name
    return ""


@cache
def templates() -> tuple[Template, ...]:
    """Every error of the source, in the order of files and lines."""
    source = modules()
    known = classes(source)
    found = {template for module in source for template in _templates(module, known)}
    return tuple(sorted(found, key=lambda each: (each.file, each.line, each.problem)))


def _templates(module: Module, known: Mapping[str, Maker]) -> Iterator[Template]:
    every = {**known, **dict(_makers(module, known))}
    for node, around in module.nodes:
        scope = Scope(module.constants, around)
        match node:
            case ast.Call() if (maker := every.get(_name(node.func))) and not _hands_on(around):
                for parts in _filled(maker.called(node, scope), module, around):
                    yield Template(maker.kind, *parts, module.file, node.lineno)
            case ast.Yield(ast.Tuple([problem, remedy])) | ast.Return(ast.Tuple([problem, remedy])) if _pairs(around):
                yield Template("ParamsError", scope.text(problem), scope.text(remedy), module.file, node.lineno)


def _pairs(function: Function) -> bool:
    """Whether a function gives what becomes an error of `palimpsest init`."""
    returns = ast.walk(function.returns) if function and function.returns else ()
    return any(isinstance(each, ast.Name) and each.id == PAIR for each in returns)


def _filled(parts: tuple[str, str], module: Module, around: Function) -> Iterator[tuple[str, str]]:
    """With the rows of a table in place of parts that come out of one; nothing where they come from a caller."""
    if "‹problem›" not in parts[0]:
        yield parts
        return
    for problem, remedy in module.rows(around):
        yield parts[0].replace("‹problem›", problem), parts[1].replace("‹remedy›", remedy)


def render() -> str:
    """The page as Markdown: the areas, each a table with a row an error."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for each in templates():
        area = next(name for name, folders in AREAS.items() if each.file.startswith(folders))
        row = " | ".join(_cell(part) for part in (each.problem, each.remedy, f"`{each.kind}`"))
        rows.setdefault((area, row), {})[f"`{each.file.removeprefix('src/palimpsest/')}`"] = None
    page = HEAD
    for area in AREAS:
        lines = [f"| {row} | {', '.join(files)} |\n" for (at, row), files in rows.items() if at == area]
        page += f"\n## {area}\n\n{TABLE}{''.join(lines)}"
    return page


def _cell(text: str) -> str:
    return re.sub(r"([|*<])", r"\\\1", " ".join(text.split()))


def unprovoked(measured: Path) -> list[Template]:
    """The errors at whose line no test was, by the data of `make coverage` for this tree."""
    from coverage import CoverageData

    data = CoverageData(str(measured))
    data.read()
    lines = {Path(file): set(data.lines(file) or ()) for file in data.measured_files()}
    return [each for each in templates() if each.line not in lines.get(ROOT / each.file, ())]


if __name__ == "__main__":
    found = unprovoked(Path(sys.argv[1]))
    print(*(f"{each.file}:{each.line}: {each.problem}" for each in found), sep="\n")
    print(f"{len(found)} of {len(templates())} errors are provoked by no test")
