"""The import contracts of .importlinter hold, and each would notice a breach; each folder says what is in it."""

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from importlinter import api
from importlinter.application.use_cases import FAILURE, lint_imports
from importlinter.configuration import configure

from palimpsest.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / ".importlinter"
FOLDERS = sorted(
    file.parent.relative_to(ROOT)
    for part in ("src", "stages", "flows")
    for file in (ROOT / part).rglob("__init__.py")
    if file.parent.parent.name != "src"  # the packages' own docstrings say how to begin
)
# The contract, the option that is turned against a part of the code that does what the contract forbids, its value.
BREACHES = [
    ("floors", "layers", "palimpsest.records\npalimpsest.privacy"),
    ("door", "source_modules", "stages"),
    ("prefect", "source_modules", "flows"),
    ("dvc", "source_modules", "flows"),
    ("tools", "forbidden_modules", "dvc"),
    ("params", "source_modules", "stages"),
    ("methods", "modules", "palimpsest.methods.select\npalimpsest.methods.shared"),
    ("shared", "source_modules", "palimpsest.params.resolve"),
    ("lab", "forbidden_modules", "palimpsest.work"),
    ("lab_floors", "layers", "settings\ncommands"),
]


def lint(config: Path, *contracts: str) -> bool:
    configure()
    return lint_imports(str(config), contracts, cache_dir=None, no_logo=True)


def test_every_contract_has_a_breach_to_notice():
    assert [name for name, _, _ in BREACHES] == [
        contract["id"] for contract in api.read_configuration(str(CONFIG))["contracts_options"]
    ]


@pytest.mark.parametrize(("contract", "option", "value"), BREACHES)
def test_a_contract_notices_a_breach(tmp_path, contract, option, value):
    parser = ConfigParser()
    parser.read(CONFIG)
    parser[f"importlinter:contract:{contract}"][option] = value
    with (tmp_path / "contracts.ini").open("w") as file:
        parser.write(file)
    assert lint(tmp_path / "contracts.ini", contract) is FAILURE


def test_the_contracts_of_methods_name_every_method():
    packages = {declared.module.rpartition(".")[0] for declared in METHODS}
    for contract in api.read_configuration(str(CONFIG))["contracts_options"]:
        named = {"methods": contract.get("modules"), "shared": contract.get("forbidden_modules")}.get(contract["id"])
        if named is not None:
            assert [one for one in packages if not any(f"{one}.".startswith(f"{part}.") for part in named)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_names_its_files(folder: Path) -> None:
    """README, folder, file: three steps to any of them."""
    told = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    fixed = {"declaration", "plan", "fit", "settings"} if "methods" in folder.parts else set[str]()
    files = {file.stem for file in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"} - fixed
    assert set(re.findall(r"^\* `(\w+)`: ", told, re.MULTILINE)) == files
