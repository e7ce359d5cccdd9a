"""A stranger's package brings a method, a key, an audit and a column without a fork, as the page of docs/howto says."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from palimpsest import extensions
from palimpsest.errors import ParamsError
from palimpsest.graph import taint
from palimpsest.methods.registry import method
from palimpsest.methods.shared.method import Reads
from palimpsest.params.file import RESOLVED, Keys
from palimpsest.report.results import Metric
from palimpsest.report.sections.base import MembershipKind
from palimpsest.settings import Settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/howto/add_a_method.md"
NAMES = ("pyproject.toml", *(f"lottery/{name}.py" for name in ("method", "fit", "keys", "graph", "lengths", "page")))
BLOCK = re.compile(r"^```(?:toml|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROWS = [(f"The kettle number {number} does not boil.", ("praise", "fault")[number % 2]) for number in range(60)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pip has installed the package of the page."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == len(NAMES)
    for name, text in zip(NAMES, blocks, strict=True):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    (source / "lottery/__init__.py").touch()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Path:
    """A workspace of its method, whose variant and audit have run."""
    folder = tmp_path_factory.mktemp("workspace")
    for name, rows in (("own", ROWS), ("public", [(text.replace("kettle", "lamp"), "") for text, _ in ROWS])):
        lines = [json.dumps({"text": text, **({"label": label} if label else {})}) for text, label in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    said = ["--text", "text", "--label", "label", "--labels", "praise,fault", "--public", "public.jsonl"]
    said += ["--rows-about", "60", "--epsilon", "1", "--method", "lottery", "--workspace", "w"]
    called(folder, installed, "init", "own.jsonl", *said)
    edit(folder / "w", lambda body: body.update(runs={"lengths": ["lottery1"]}))
    edit(folder / "w", lambda body: body["variants"]["lottery1"].update(rows=20))
    called(folder / "w", installed, "run", "lottery@lottery1", "lengths@lottery1")
    return folder / "w"


def edit(workspace: Path, change) -> None:
    yaml, path = YAML(), workspace / "params.yaml"
    body = yaml.load(path.read_text(encoding="utf-8"))
    change(body)
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(body, file)


def called(folder: Path, packages: Path | None, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, in which the package is installed or is not."""
    paths = [str(ROOT / "src"), str(ROOT), *([str(packages)] if packages else [])]
    own = (folder if (folder / "own.jsonl").is_file() else folder.parent).with_name("ledger")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PALIMPSEST_LEDGER": str(own / "ledger.db")}
    variables |= {"PALIMPSEST_WITNESSES": str(own / "witnesses"), "HOME": str(own)}
    command = [sys.executable, "-m", "palimpsest", *words]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_its_method_has_run_under_a_charge_and_its_audit_has_measured(workspace: Path, installed: Path) -> None:
    rows = (workspace / "data/synthetic/lottery1.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 20
    assert {json.loads(row)["text"] for row in rows} <= {text.replace("kettle", "lamp") for text, _ in ROWS}
    receipt = json.loads((workspace / "reports/receipts/lottery1.json").read_text(encoding="utf-8"))
    assert 0 < receipt["epsilon"] <= 1
    found = json.loads((workspace / "reports/metrics/lottery1/lengths.json").read_text(encoding="utf-8"))
    assert 30 < found["mean"] < 40


def test_its_stages_are_in_the_rendered_graph_with_its_own_program(workspace: Path) -> None:
    graph = YAML(typ="safe").load((workspace / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert graph["lengths"]["cmd"] == "python -P -m stages.packaged lottery.lengths ${item.variant}"
    assert graph["lottery"]["cmd"] == "python -P -m stages.fit ${item.variant}"
    held = json.loads((workspace / "data/inputs/code/lengths.json").read_text(encoding="utf-8"))
    assert held["modules"] == ["lottery.lengths"]
    assert held["files"] > 1


def test_its_keys_are_typed_and_described(workspace: Path, installed: Path) -> None:
    described = called(workspace, installed, "params", "--keys").stdout
    assert "| `runs.lengths` | list of text |" in described
    assert "## Settings of variants of method `lottery`" in described
    before = (workspace / "params.yaml").read_text(encoding="utf-8")
    edit(workspace, lambda body: body["variants"]["lottery1"].update(rows="many"))
    told = called(workspace, installed, "plan", status=1).stderr
    (workspace / "params.yaml").write_text(before, encoding="utf-8")
    assert "variants.lottery1.rows is 'many': allowed is a whole number" in told


def test_its_column_is_on_the_page(installed: Path) -> None:
    code = (
        "from palimpsest.report.sections import SECTIONS; from palimpsest.report.results import Results\n"
        "from types import SimpleNamespace as N\n"
        "results = Results({'lengths': {'a': {'variant': 'a', 'zone': 'internal', 'mean': 34.2}}})\n"
        "(own,) = [each for each in SECTIONS if each.name == 'lengths']\n"
        "(column,) = own.columns(N(results=results, summary=None))\n"
        "print(column.name, column.cell(N(variant='a')).text, column.cell(N(variant='b')))"
    )
    assert printed(installed, code).split() == ["Characters", "34", "None"]


def test_a_plan_that_was_kept_is_made_anew_once_the_package_is_edited(installed: Path) -> None:
    """What commands show is kept as long as no code that it follows from changed: the package's counts."""
    file = installed / "lottery/fit.py"
    text = file.read_text(encoding="utf-8")
    code = (
        "from pathlib import Path; from palimpsest.work.context import _code_stamp as stamp\n"
        f"file, before = Path({str(file)!r}), stamp()\n"
        "file.write_text(file.read_text() + '# edited')\n"
        "stamp.cache_clear()\n"
        "print(stamp() != before)"
    )
    try:
        assert printed(installed, code) == "True\n"
    finally:
        file.write_text(text, encoding="utf-8")


def printed(installed: Path, code: str) -> str:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(installed)])}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return done.stdout


def test_where_the_package_is_gone_it_is_said_and_nothing_is_lost(workspace: Path) -> None:
    kept = ("data/synthetic/lottery1.jsonl", "reports/receipts/lottery1.json", "params.yaml", "dvc.yaml", "dvc.lock")
    before = {name: (workspace / name).read_bytes() for name in kept}
    told = called(workspace, None, "plan", status=1).stderr
    assert "runs.lengths is not a key of params.yaml" in told
    assert "what to do: Correct the values" in told
    assert "needs that package: install it, and nothing is lost" in told
    assert {name: (workspace / name).read_bytes() for name in kept} == before


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, installed: Path) -> None:
    broken = tmp_path / "broken"
    info = broken / "wreck-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wreck\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[palimpsest.methods]\nnone = wreck.method:NONE\n")
    told = called(tmp_path, broken, "params", "--keys", status=1).stderr
    assert "The package wreck brings 'none' (palimpsest.methods), which cannot be loaded" in told
    assert "Update wreck or uninstall it" in told


def test_one_name_from_two_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    group = extensions.METHODS
    points = EntryPoints(EntryPoint("lottery", f"{package}.method:LOTTERY", group) for package in ("one", "two"))
    monkeypatch.setattr(extensions, "_installed", lambda: points)
    with pytest.raises(ParamsError, match=r"Two packages bring 'lottery' .*: one\.method.* and two\.method"):
        extensions.find_entries(group)


@pytest.mark.parametrize(
    ("group", "value", "told"),
    [
        ("palimpsest.methods", "palimpsest.methods.select.declaration:SELECT", "brings a method 'select'"),
        ("palimpsest.stages", "palimpsest_lab.graph:STAGES", "brings a stage 'clipping_audit', and there is"),
        ("palimpsest.settings", "palimpsest_lab.settings:KEYS", "brings a key of the section"),
        ("palimpsest.pages", "wreck:PAGE", "cannot be loaded (ZeroDivisionError: division by zero)"),
    ],
)
def test_a_package_takes_the_place_of_nothing(tmp_path: Path, group: str, value: str, told: str) -> None:
    """A second `select` would price and charge as ours, and of two keys the second would count."""
    info = tmp_path / "wreck-1.dist-info"
    info.mkdir()
    (tmp_path / "wreck.py").write_text("PAGE = 1 / 0\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wreck\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nother = {value}\n")
    imports = [f"    import palimpsest.{name}" for name in ("graph.stages", "params.schema", "report.sections")]
    lines = ["from palimpsest.errors import PalimpsestError", "try:", *imports]
    code = "\n".join([*lines, "except PalimpsestError as error:", "    print(error.lines)"])
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert told in done.stdout
    assert "what to do:" in done.stdout


def test_what_a_package_would_add_unseen_is_refused() -> None:
    with pytest.raises(ValueError, match="packages add no keys to 'privacy'"):
        Keys(sections={"privacy": Settings})
    with pytest.raises(ValueError, match="end with `membership`, got 'lengths'"):
        MembershipKind("L", Metric("lengths", dict, lambda _: ()), "rows", "{}")


def test_a_method_that_begins_with_given_texts_has_a_key_for_them() -> None:
    with pytest.raises(ValueError, match="reads a first population: it needs a source and a setting `zero_shot`"):
        replace(method("select"), reads=frozenset({Reads.START}))


def test_a_model_that_a_package_names_in_any_section_is_seen_by_the_taint_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(taint, "model_keys", lambda: {"utility.rater": "utility.rater.model"})
    body = {"params": [{RESOLVED: ["utility.rater"]}]}
    values = {"utility": {"rater": {"model": "models/dp3"}}}
    assert list(taint._models(body, values, tmp_path)) == ["models/dp3"]  # noqa: SLF001
