"""Where torch computes is chosen in one place, stands in nothing that is charged, and no two stages share a device."""

import re
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from palimpsest.devices import VARIABLE, device, exact_device, resolve_device
from palimpsest.errors import ParamsError
from palimpsest.graph import render
from palimpsest.graph.closure import code
from palimpsest.graph.expand import expand, fill_names, params_keys, value_at
from palimpsest.graph.stages import STAGES
from palimpsest.params.file import FILE
from palimpsest.params.load import device_of, parse, render_params
from palimpsest.params.schema import Params
from palimpsest.work import before
from palimpsest.work.before import check_device, describe_emulated, describe_idle
from stages.inputs import programs
from tests.settings_file import demo

ROOT = Path(__file__).parents[1]
_ASKS = re.compile(r"\b(exact_)?device\(\)")
_BY_ITSELF = re.compile(
    r"cuda\.(is_available|device_count|current_device)|mps\.is_available|\.cuda\(|\.to\([^)]*[\"'](cuda|mps)"
    r"|device=[\"'](?!cpu)|torch\.device\((?!\"cpu\"\))"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One with two CUDA devices and none of Apple's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in (VARIABLE, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_name_stands_for_a_device_of_the_machine(machine: pytest.MonkeyPatch) -> None:
    assert [resolve_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda:0", "cpu", "cuda:0", "cuda:1"]
    machine.setattr(torch.cuda, "is_available", lambda: False)
    machine.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (resolve_device("auto"), resolve_device("mps")) == (
        "cpu",
        "mps",
    )  # untried there, and without numbers of 64 bits
    machine.setenv(VARIABLE, "mps")
    assert (device().type, exact_device().type) == ("mps", "cpu")


def test_each_process_of_a_team_has_a_device_of_its_own(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("LOCAL_WORLD_SIZE", "2")
    machine.setenv("LOCAL_RANK", "1")
    assert device() == exact_device() == torch.device("cuda", 1)
    machine.setenv(VARIABLE, "cpu")
    assert device() == torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "rank", "size", "told"),
    [
        ("gpu", 0, 1, "compute.device is 'gpu'"),
        ("cuda:2", 0, 1, "CUDA devices: 2"),
        ("auto", 2, 3, "of its process 3"),
        ("cuda:1", 0, 2, "one device for 2 processes"),
        ("mps", 0, 1, "no such device"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_in_two_parts(
    machine: pytest.MonkeyPatch, wanted: str, rank: int, size: int, told: str
) -> None:
    with pytest.raises(ParamsError, match=told) as caught:
        resolve_device(wanted, rank, size)
    assert caught.value.remedy.endswith(".")


def test_the_environment_stands_above_what_is_written(tmp_path: Path, machine: pytest.MonkeyPatch) -> None:
    assert device_of(tmp_path) == "auto"
    (tmp_path / FILE).write_text("compute: {device: cuda:1}")
    assert device_of(tmp_path) == "cuda:1"
    machine.setenv(VARIABLE, "cpu")
    assert device_of(tmp_path) == "cpu"


def test_a_device_that_is_not_there_stops_a_run_before_its_first_stage(
    tmp_path: Path, machine: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_text("compute: {device: cuda:7}")
    with pytest.raises(ParamsError, match="no such device"):
        check_device(tmp_path)
    machine.setenv(VARIABLE, "cpu")
    check_device(tmp_path)


@pytest.mark.parametrize(("precision", "able", "said"), [("bf16", False, 1), ("bf16", True, 0), ("float32", False, 0)])
def test_a_training_in_halves_that_a_machine_emulates_is_told_of(
    precision: str, able: bool, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before, "has_bfloat16", lambda: able)
    body = demo()
    name = next(iter(body["lms"]))
    body["lms"][name]["train"]["precision"] = precision
    body["decoders"] = {"small": {"precision": precision}}
    params = parse(body)
    assert len(describe_emulated(params, [f"dp_train@{name}", "fit@select1"])) == said
    assert len(describe_emulated(params, [f"dp_train@{name}", "decoder_pretrain@small"])) == 2 * said
    assert describe_emulated(params, ["fit@select1"]) == []


@pytest.mark.parametrize(("precision", "said"), [("bf16", 3), ("float32", 0)])
def test_what_writes_in_halves_that_a_machine_emulates_is_told_of(
    precision: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before, "has_bfloat16", lambda: False)
    body = demo()
    names = [name for name, own in body["variants"].items() if own["method"] == "predict"]
    body["variants"][names[0]]["predict"]["precision"] = precision
    body["public_lm"] = {"max_tokens": 16, "precision": precision}
    body["authors"]["base"]["precision"] = precision
    params = parse(body)
    writing = [f"private_predict@{names[0]}", "public_lm", "private_evolve@evolve3"]
    assert [one.partition(":")[0] for one in describe_emulated(params, [*writing, "fit@select1"])] == sorted(writing)[
        ::-1
    ][:said]


@pytest.mark.parametrize(
    ("lm", "place", "rows", "said"),
    [
        ("models/base", "auto", 16, 1),
        ("models/base", "auto", 128, 0),
        ("models/base", "cpu", 16, 0),
        ("embedded", "auto", 16, 0),
    ],
)
def test_a_training_that_leaves_a_gpu_idle_is_told_of_before_it_is_charged(
    machine: pytest.MonkeyPatch, lm: str, place: str, rows: int, said: int
) -> None:
    machine.setenv(VARIABLE, place)
    body = demo()
    body["models"]["lm"] = lm
    name = next(iter(body["lms"]))
    body["lms"][name]["train"]["micro_batch"] = rows
    params = parse(body)
    assert len(describe_idle(params, [f"dp_train@{name}", "fit@select1"])) == said
    assert describe_idle(params, ["fit@select1"]) == []


def test_nothing_else_looks_for_an_accelerator() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "stages", "flows")
        for path in (ROOT / folder).rglob("*.py")
        if _BY_ITSELF.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"src/palimpsest/devices.py"}


def test_a_stage_that_computes_with_torch_asks_for_a_device() -> None:
    """But for pages, which read results by the classes beside the code that measured them."""
    by_all = code("stages.common").keys()  # which chooses where, and computes nothing
    asking = {
        name
        for name, modules in programs().items()
        if any(
            _ASKS.search(path.read_text(encoding="utf-8")) for one, path in code(*modules).items() if one not in by_all
        )
    }
    assert {stage.name for stage in STAGES if stage.gpus} == asking - {"report", "release"}


def changed(*keys: str, **values: object) -> Params:
    """The demo with other values of a section."""
    content = section = demo()
    for key in keys:
        section = section.setdefault(key, {})
    section.update(values)
    return parse(content)


def read(params: Params) -> dict[str, object]:
    """Stage -> what it depends on: its command, its files, and the values of its keys."""
    values = YAML(typ="safe", pure=True).load(render_params(params))
    graph = render.document(render.features(params), render.find_authored(params))["stages"]
    found = {}
    for one in expand(graph, values):
        own = [value_at(values, key) for key in fill_names(params_keys(one.body), one.values)]
        found[one.name] = (one.body["cmd"], one.known_paths("deps"), own)
    return found


def test_another_device_or_runner_leaves_every_stage_as_it_was() -> None:
    before, after = parse(demo()), changed("compute", device="cuda:1", runner="dask", workers=4)
    assert render_params(before) != render_params(after)
    assert read(before) == read(after)


def test_another_precision_of_a_fit_is_another_fit() -> None:
    before, after = read(parse(demo())), read(changed("lms", "dp3", "train", precision="bf16"))
    assert {name for name in before if before[name] != after[name]} == {"dp_train@dp3", "discriminator@judge3"}


def test_the_precision_of_measuring_reaches_nothing_that_is_charged() -> None:
    """Nor a public file or model that is made for it: the stages that read the key are read by pages alone."""
    reading = {stage.name for stage in STAGES if any(key.startswith("compute") for key in stage.params)}
    assert reading == {"baseline_eval", "downstream_eval", "fidelity_audit", "public_eval"}
