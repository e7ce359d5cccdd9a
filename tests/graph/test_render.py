"""Does dvc.yaml follow from the declarations, for every kind of data set?"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from palimpsest.graph.expand import MADE, expand
from palimpsest.graph.render import document, features, render
from palimpsest.graph.stage import PUBLIC_TEST_FILE, TEST_FILE, Feature, Stage
from palimpsest.graph.stages import SPENDERS, STAGES
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import load
from palimpsest.workspace import CODE, PUBLIC_FILES, SOURCES, Zone

ROOT = Path(__file__).parents[2]
EVERY = frozenset(Feature)
_OF_MODELS = {Feature.BASE, Feature.NEXT_TOKEN}
_OF_DATA = sorted(EVERY - _OF_MODELS)
_CHOSEN = chain.from_iterable(combinations(_OF_DATA, n) for n in range(len(_OF_DATA) + 1))
KINDS = [frozenset({*found, *_OF_MODELS}) for found in _CHOSEN]
OWN = re.compile(r"\$\{(item|key|item\.\w+)\}")


def with_every_entry() -> list[frozenset[Feature]]:
    """Kinds among which each stage stands with every entry that any kind gives it."""
    seen, found = set[tuple[str, str]](), []
    for has in reversed(KINDS):
        own = {(name, json.dumps(entry)) for name, entry in document(has)["stages"].items()}
        found += [has] if own - seen else []
        seen |= own
    return found


@cache
def entries(has: frozenset[Feature]) -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of a repetition of each stage, with * for what it is repeated for."""
    found = json.loads(OWN.sub("*", json.dumps(document(has)["stages"])))
    return {name: entry.get("do", entry) for name, entry in found.items()}


def outputs(entry: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and options of all that a stage writes."""
    for one in (one for key in ("outs", "metrics", "plots") for one in entry.get(key, [])):
        yield from [(one, {})] if isinstance(one, str) else one.items()


@cache
def meets(read: str, made: str) -> bool:
    """Whether a file that is read is one that is made, lies in a folder that is, or is a folder that has one."""
    inside = Path(read).is_relative_to(made) or Path(made).is_relative_to(read)
    return inside or fnmatch(read, made)


def named(has: frozenset[Feature]) -> str:
    return "-".join(sorted(has)) or "plain"


@pytest.mark.parametrize("has", with_every_entry(), ids=named)
def test_the_text_reads_back_as_what_it_says(has: frozenset[Feature]) -> None:
    """An entry is laid out alike wherever it stands."""
    assert YAML(typ="safe", pure=True).load(render(has)) == document(has)


def test_every_file_that_is_read_is_made_or_named_in_params() -> None:
    for has in KINDS:
        found = entries(has).values()
        made = {path for entry in found for path, _ in outputs(entry)}
        read = {dep for entry in found for dep in entry.get("deps", []) if not dep.startswith("${")}
        lost = [dep for dep in read - {"*"} if not any(meets(dep, path) for path in made)]  # *: see test_needs
        assert lost == [], named(has)


def test_what_params_does_not_name_is_not_read() -> None:
    for has in KINDS:
        read = {dep for entry in entries(has).values() for dep in entry.get("deps", []) if dep.startswith("${")}
        there = (Feature.TEST in has, Feature.PUBLIC_TEST in has)
        assert (TEST_FILE in read, PUBLIC_TEST_FILE in read) == there, named(has)


def test_what_is_not_public_is_not_pushed() -> None:
    for has in KINDS:
        for name, entry in entries(has).items():
            pushed = {path for path, options in outputs(entry) if options.get("push", True)}
            own = {path for path, stage in PUBLIC_FILES.items() if stage == name}
            assert entry["meta"]["zone"] == Zone.PUBLIC or pushed <= own, named(has)


def test_with_a_remote_what_is_not_public_names_it_and_is_pushed_to_no_other() -> None:
    plain, named = document(EVERY)["stages"], document(EVERY, remote="vault")["stages"]
    for name, entry in named.items():
        before = dict(outputs(plain[name].get("do", plain[name])))
        for path, options in outputs(entry.get("do", entry)):
            same = before[path].get("push", True) or not before[path].get("cache", True)
            kept = {key: value for key, value in before[path].items() if key != "push"}
            assert options == (before[path] if same else {**kept, "remote": "vault"})


def test_a_name_of_a_public_file_is_one_stages_alone() -> None:
    other = Stage("other", "", Zone.PRIVATE)
    assert [path for path in PUBLIC_FILES if other.may_push(path)] == []
    assert {stage.name for stage in STAGES if set(stage.writes) & PUBLIC_FILES.keys()} == set(PUBLIC_FILES.values())


def test_every_stage_but_the_one_that_looks_at_code_names_its_own() -> None:
    named = {
        name: [dep for dep in entry.get("deps", []) if Path(dep).is_relative_to(CODE)]
        for name, entry in entries(EVERY).items()
    }
    assert named.pop("inputs") == []
    assert named == {stage.name: [f"{CODE}/{stage.name}.json"] for stage in STAGES if stage.name != "inputs"}


def test_whatever_is_started_as_a_stage_is_declared() -> None:
    folders = {"stages": ROOT / "stages", "palimpsest_lab.stages": ROOT / "src/palimpsest_lab/stages"}
    files = [(package, path) for package, folder in folders.items() for path in folder.glob("*.py")]
    started = {f"{package}.{path.stem}" for package, path in files if '__name__ == "__main__"' in path.read_text()}
    others = {"stages.warm", "stages.packaged"}  # which run stages
    pages = {"stages.samples", "palimpsest_lab.stages.ratings"}  # rows for people to read: no stage leaves a copy
    assert started == {stage.code for stage in STAGES} | others | pages


def test_a_workspaces_own_folder_of_stages_stands_not_before_ours(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    for name in ("__init__", "inputs"):
        (tmp_path / f"stages/{name}.py").write_text("raise SystemExit('its own')")
    command = [sys.executable, *document(EVERY)["stages"]["inputs"]["cmd"].partition(" #")[0].split()[1:]]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, "There is no params.yaml here" in done.stderr, "its own" in done.stderr) == (
        1,
        True,
        False,
    )


def test_names_are_unique_and_no_two_stages_write_one_file() -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    once = [path for stage in STAGES for path in stage.writes if "{name}" not in path]
    assert len(set(once)) == len(once)


def test_models_that_no_stage_makes_are_read_with_the_keys_that_name_them() -> None:
    one = Stage("one", "", Zone.PUBLIC, params=("seed", "models.encoder", "models.prompts", "authors.{below}"))
    assert one.reads == (f"{CODE}/one.json", f"{SOURCES}/models.encoder.json", f"{SOURCES}/authors.{{below}}.json")


def test_only_what_reads_no_private_row_is_tried_again() -> None:
    assert {stage.zone for stage in STAGES if stage.retries} == {Zone.PUBLIC}
    assert {stage.zone for stage in STAGES if stage.name in SPENDERS} == {Zone.PRIVATE}


def test_the_demo_has_all_but_records_of_json_rows_without_labels_and_a_named_model() -> None:
    named = {Feature.NAMED, Feature.UNTOUCHED, Feature.PUBLIC_LM}
    others = {Feature.JSON, Feature.FIELDS, Feature.NEXT_TOKEN, Feature.WRITTEN}
    assert features(load(ROOT)) == EVERY - others - named


def test_a_run_changes_nothing_that_git_knows_and_dvc_allows_for_it() -> None:
    graph, values = (YAML(typ="safe").load((ROOT / name).read_text()) for name in ("dvc.yaml", RESOLVED))
    paths = ["dvc.lock", *(path for one in expand(graph["stages"], values) for path in one.paths(*MADE))]
    made = {f"{path}/part" for path in paths}  # a folder need not be there
    done = subprocess.run(["git", "check-ignore", "--stdin"], cwd=ROOT, input="\n".join(made), stdout=-1, text=True)
    assert set(done.stdout.splitlines()) == made
    with Repo(str(ROOT)) as repo:  # beside a lock file that it knows git to ignore, it would run nothing
        assert repo.config["core"]["no_scm"]
