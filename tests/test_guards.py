"""Guards over what must agree: dvc.yaml, its declarations, the imports, params.yaml, its schema, the flow, zones."""

import ast
import copy
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from flows.graph import read_graph
from palimpsest.graph.expand import expand, fill_names, params_keys
from palimpsest.graph.render import document
from palimpsest.graph.stage import Feature
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import load
from palimpsest.work.context import contents
from palimpsest.workspace import CODE, OWN, SOURCES
from stages import inputs

ROOT = Path(__file__).parents[1]

# Keys of params.yaml that no stage names, and why a change of them need not run one.
UNUSED_KEYS = {
    "models.words": "it fills in prompts, and stages depend on these",
    "preset": "`palimpsest plan` says by it what a paper's accounting leaves out; what it set stands beside it",
    "version": "`palimpsest run` compares it with the installed one; stages depend on their code itself",
    "models.judge": "its stages run where rows stand as demonstrations, and the demo has none that do",
    "audit.prompts.draws": "its stage runs for the variants of runs.prompt_mia, and the demo has none",
    "audit.prompts.shown": "the same",
    "audit.separation.max_tokens": "its stage runs for the models of runs.embedding_audit, and the demo has none",
    "audit.separation.projections": "its stage runs for the models of runs.embedding_audit, and the demo has none",
    "audit.separation.rows": "its stage runs for the models of runs.embedding_audit, and the demo has none",
    "audit.separation.trees": "its stage runs for the models of runs.embedding_audit, and the demo has none",
    "models.next_token": "its stage is there where the evaluator next_token is, and the demo has labels",
    "public_lm": "its stage is there where a language model is named, and the demo names none",
    "zero_shot": "its stage runs for what a variant of embed begins with, and the demo's begins with public text",
    "stores.private": "a check before `dvc push`; no stage runs again for it",
    "compute.device": "a workspace that moves to another device runs nothing again",
    "compute.runner": "the same of a cluster",
    "compute.workers": "the same",
}
# What private stages write that is public: they read it from a public file alone, or invent it as public.
PUBLIC_OUTPUTS = {
    "data/public/train.parquet": "preprocess: rows of dataset.public",
    "data/public/heldout.parquet": "preprocess: rows of dataset.public",
    "data/raw/public.jsonl": "world: invented as public text",
    "data/raw/public_test.jsonl": "world: invented as a public test file",
}
PRIVATE_INPUTS = {"${dataset.private}": "data/raw/private.jsonl", "${dataset.test}": "data/raw/test.jsonl"}
INPUTS = {**PRIVATE_INPUTS, "${dataset.public}": "data/raw/public.jsonl"}

Body = Mapping[str, Any]


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text())


STAGES: dict[str, Body] = read_yaml(ROOT / "dvc.yaml")["stages"]
EVERY: dict[str, Body] = document(frozenset(Feature))["stages"] | STAGES
DVC: dict[str, Body] = {name: stage.get("do", stage) for name, stage in EVERY.items()}
ONE = re.compile(r"\$\{(item|key|item\.\w+)\}")  # what stands for one of the names that a stage is repeated for


def outputs(stage: Body) -> dict[str, Body]:
    """Path -> options of everything a stage writes."""
    entries = [entry for key in ("outs", "metrics", "plots") for entry in stage.get(key, [])]
    pairs = [entry if isinstance(entry, dict) else {entry: {}} for entry in entries]
    return {any_name(path): options for pair in pairs for path, options in pair.items()}


def any_name(path: str) -> str:
    """The path with <name> for the names that its stage is repeated for, whatever they are called there."""
    return ONE.sub("<name>", path)


def inside(path: str, folder: str | Path) -> bool:
    return Path(path).is_relative_to(folder)


# Code.


@pytest.mark.parametrize("name", sorted(DVC.keys() - {inputs.STAGE}))
def test_a_stage_depends_on_its_own_code_and_on_no_other(name: str):
    named = [dep for dep in DVC[name]["deps"] if inside(dep, "src") or inside(dep, "stages") or inside(dep, CODE)]
    assert named == [f"{CODE}/{name}.json"]


def test_every_code_file_that_the_graph_names_is_written():
    named = {dep for stage in DVC.values() for dep in stage.get("deps", []) if inside(dep, CODE)}
    assert named == {path for path in inputs.contents() if inside(path, CODE)}


# Zones.


@pytest.mark.parametrize("name", DVC)
def test_no_private_output_is_pushed(name: str):
    stage = DVC[name]
    if stage["meta"]["zone"] == "public":
        return
    pushed = {path for path, options in outputs(stage).items() if options.get("push", True)}
    assert pushed <= set(PUBLIC_OUTPUTS)


def leaks(stages: Mapping[str, Body]) -> Iterator[str]:
    """What would let private data past the meter.

    Files that stem from private input are untrusted until a stage with a receipt, which reads through the metered view,
    has made something of them. Whoever reads an untrusted file is private, and so is all that it writes.
    """
    zones = {path: stage["meta"]["zone"] for stage in stages.values() for path in outputs(stage)}
    untrusted = _untrusted(stages)
    public = {path for path, zone in zones.items() if zone == "public"} | set(PUBLIC_OUTPUTS)
    for name, stage in stages.items():
        zone, reads = stage["meta"]["zone"], _reads(stage, zones)
        if zone == "dp":
            yield from (f"{name} (dp) reads {path}" for path in reads if path in untrusted)
        if zone == "public":
            yield from (f"{name} (public) reads {path}" for path in reads if path in {*zones, *untrusted} - public)
        pushed = [path for path, options in outputs(stage).items() if options.get("push", True)]
        yield from (f"{name} pushes {path}" for path in pushed if path in untrusted)


def _untrusted(stages: Mapping[str, Body]) -> set[str]:
    """The private inputs and all that unmetered stages make of them."""
    written = {path for stage in stages.values() for path in outputs(stage)}
    unmetered = [stage for stage in stages.values() if "receipt" not in stage["meta"]]
    found, before = {*PRIVATE_INPUTS.values(), "data/raw/facts.json"}, set[str]()
    while found != before:
        before = set(found)
        readers = (stage for stage in unmetered if not before.isdisjoint(_reads(stage, written)))
        found |= {path for stage in readers for path in outputs(stage)} - set(PUBLIC_OUTPUTS)
    return found


def _reads(stage: Body, written: Collection[str]) -> set[str]:
    """The files of the graph that a stage depends on, those in a folder that it names included."""
    releases = any(inside(path, "release") for path in outputs(stage))
    gates = stage["meta"].get("gates", []) if releases else []  # they can stop it, and reach nothing that it writes
    found = [dependency for dependency in stage.get("deps", []) if dependency not in gates]
    paths = {any_name(INPUTS.get(dependency, dependency)) for dependency in found}
    return paths | {path for path in written if any(inside(path, folder) for folder in paths)}


def test_every_way_out_of_the_private_zone_passes_the_meter():
    assert list(leaks(DVC)) == []


@pytest.mark.parametrize(
    ("stage", "dependency", "told"),
    [
        ("pretrain", "${dataset.private}", "pretrain (public) reads data/raw/private.jsonl"),
        ("pretrain", "data/private/train.parquet", "pretrain (public) reads data/private/train.parquet"),
        ("public_only", "data/private/report.json", "public_only (public) reads data/private/report.json"),
        ("public_only", "models/${item}", "public_only (public) reads models/<name>"),
        ("pplm_generate", "data/private/holdout.parquet", "pplm_generate (dp) reads data/private/holdout.parquet"),
        ("pplm_generate", "reports/metrics", "pplm_generate (dp) reads reports/metrics/real/utility.json"),
    ],
)
def test_the_guard_notices_a_way_past_the_meter(stage: str, dependency: str, told: str):
    stages = copy.deepcopy(DVC)
    stages[stage]["deps"].append(dependency)
    assert told in list(leaks(stages))


def test_the_guard_notices_a_meter_that_is_gone():
    stages = copy.deepcopy(DVC)
    del stages["dp_train"]["meta"]["receipt"]
    del stages["discriminator"]["meta"]["receipt"]
    assert "pplm_generate (dp) reads models/<name>" in list(leaks(stages))


def test_a_receipt_is_an_output_of_its_stage():
    receipts = {name: stage["meta"]["receipt"] for name, stage in DVC.items() if "receipt" in stage["meta"]}
    assert receipts == {
        "dp_train": "reports/receipts/models/${item.model}.json",
        "discriminator": "reports/receipts/models/${key}.json",
        "phrases": "reports/receipts/${item.variant}.json",
        "private_predict": "reports/receipts/${key}.json",
        "restate": "reports/receipts/${key}.json",
        "select": "reports/receipts/${item.variant}.json",
        "steer": "reports/receipts/${item.variant}.json",
        "private_evolve": "reports/receipts/${key}.json",
        "tabulate": "reports/receipts/${key}.json",
        "vote_select": "reports/receipts/${key}.json",
        "eda_evolve": "reports/receipts/${key}.json",
        "choose": "reports/receipts/${key}.json",
        "custext": "reports/receipts/${item.variant}.json",
        "sentdp": "reports/receipts/${item.variant}.json",
    }
    assert [name for name, path in receipts.items() if any_name(path) not in outputs(DVC[name])] == []


# One graph.


def test_what_follows_from_params_is_rendered():
    assert {name: (ROOT / name).read_text() for name in ("params.resolved.yaml", "dvc.yaml")} == contents(load(ROOT))


def test_stages_of_other_tasks_are_guarded_too():
    assert EVERY.keys() - STAGES.keys() == {
        "familiarity_audit",
        "fields_audit",
        "next_token_base",
        "public_lm",
        "structure_audit",
        "write_public",
    }


def test_the_flow_runs_the_stages_that_dvc_lists():
    with Repo(str(ROOT)) as repo:
        listed = [stage.addressing for stage in repo.index.stages]
    assert sorted(stage.name for stage in read_graph(ROOT)) == sorted(listed)


# params.yaml.


def leaves(body: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(body, dict) or not body:  # a mapping that names nothing yet is a value
        yield prefix
        return
    for key, value in body.items():
        yield from leaves(value, (*prefix, str(key)))


def used_keys(params: Body) -> list[tuple[str, ...]]:
    """The keys that stages name, written out for every name that their stage is repeated for."""
    written = [key for one in expand(STAGES, params) for key in fill_names(params_keys(one.body), one.values)]
    return [tuple(key.split(".")) for key in dict.fromkeys(written)]


def test_params_are_valid_and_private():
    params = load(ROOT)
    assert params.testing.noise_seed is None
    assert params.flags() == []


def test_every_key_of_params_is_used_by_a_stage():
    params = read_yaml(ROOT / RESOLVED)
    used = used_keys(params)
    unused = [".".join(leaf) for leaf in leaves(params) if not any(leaf[: len(key)] == key for key in used)]
    assert sorted(unused) == sorted(UNUSED_KEYS)


def test_every_key_that_a_stage_names_is_in_params():
    params = read_yaml(ROOT / RESOLVED)
    known = list(leaves(params))
    assert [key for key in used_keys(params) if not any(leaf[: len(key)] == key for leaf in known)] == []


# Models.

LOADERS = ("from_pretrained", "from_config", "SentenceTransformer", "CrossEncoder", "SparseEncoder")


@cache
def trees() -> dict[Path, ast.Module]:
    """The source, read once, and not where tests are only collected."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("src", "stages", "flows", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def loads() -> Iterator[tuple[str, str, dict[str | None, Any]]]:
    """File, what is called, and its keywords, of every load of a model, a tokenizer or their settings."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called.rpartition(".")[2] in LOADERS:
                yield path.name, called, {word.arg: getattr(word.value, "value", None) for word in node.keywords}


def test_no_model_is_loaded_with_code_of_its_own():
    found = list(loads())
    assert {name for name, _, _ in found} >= {"lm.py", "encoder.py", "finetune.py"}
    assert [(name, called) for name, called, given in found if given.get("trust_remote_code") is not False] == []


def test_no_weights_are_pickled():
    weights = [(name, given) for name, called, given in loads() if "Model" in called]
    assert weights
    assert [name for name, given in weights if given.get("use_safetensors") is not True] == []
    opened = {
        ast.unparse(node) for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    assert opened.isdisjoint({"torch.load", "pickle.load", "pickle.loads", "joblib.load", "transformers.pipeline"})


def shipped() -> list[tuple[Path, ast.Module]]:
    return [(path, tree) for path, tree in trees().items() if not path.is_relative_to(ROOT / "bench")]


def test_nothing_goes_through_a_shell_and_no_table_but_a_blinded_sheet_is_written_as_csv():
    """A name becomes no command, nor a text a spreadsheet's formula: `ratings.make_blind_sheet` leaves none."""
    calls = [(path.name, node) for path, tree in shipped() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [ast.unparse(each) for _, each in calls if any(word.arg == "shell" for word in each.keywords)] == []
    called = {(name, ast.unparse(each.func)) for name, each in calls}
    assert {each for _, each in called}.isdisjoint(
        {"os.system", "os.popen", "eval", "exec", "csv.DictWriter", "yaml.load"}
    )
    assert [name for name, each in called if each == "csv.writer"] == ["ratings.py"]
    assert [each for _, each in called if each.endswith((".to_csv", ".to_excel"))] == []


def test_servers_listen_on_loopback_alone():
    texts = {node.value for _, tree in shipped() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert "127.0.0.1" in texts
    assert texts.isdisjoint({"0.0.0.0", "::"})


FINDERS = ("resolve_source", "resolve_encoder", "known_source", "snapshot_download")


def test_models_are_found_through_the_one_check():
    for path, tree in trees().items():
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        if named & set(FINDERS):
            assert path.name in ("sources.py", "vouching.py") or path.is_relative_to(ROOT / "bench"), path


def test_public_files_are_read_through_the_one_check():
    """The check names a public file by its key; elsewhere a stage asks no more than whether there is one."""
    for path in (ROOT / "stages").glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "data.public" in line and "public_labels" not in line:
                assert "is None" in line or path.name == "release.py", (path.name, line)


def test_what_is_not_public_is_refused_by_its_path():
    """Every output of a stage that reads private rows, or answers about them, is the workspace's own."""
    made = {path for stage in DVC.values() if stage["meta"]["zone"] != "public" for path in outputs(stage)}
    open_to_all = {*PUBLIC_OUTPUTS, *PRIVATE_INPUTS.values()}  # the private inputs are known by their names
    assert [path for path in made - open_to_all if not any(inside(path, folder) for folder in OWN)] == []


@pytest.mark.parametrize("name", DVC)
def test_a_stage_depends_on_what_is_written_of_the_models_that_its_keys_name(name: str):
    named = set(params_keys(DVC[name]))
    models = {f"models.{name}" for name in ("lm", "encoder", "classifier", "judge", "next_token")}
    keys = named & {*models, "authors.${item.from}"}
    assert {f"{SOURCES}/{key}.json" for key in keys} == {
        dep for dep in DVC[name].get("deps", []) if f"{SOURCES}/" in dep
    }
