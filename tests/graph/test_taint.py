"""Is every way from private data to a release found that passes no meter, and no other?"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from flows.graph import read_graph
from palimpsest.errors import DataError, ParamsError
from palimpsest.graph.render import document
from palimpsest.graph.stage import Feature
from palimpsest.graph.taint import Flow, Node, narrow_reads, nodes, taint
from palimpsest.params.load import load, parse
from palimpsest.params.sources import public_sources
from palimpsest.workspace import Zone
from stages.release import narrow_node, sources
from tests.report.release_world import STAGES
from tests.settings_file import demo

ROOT = Path(__file__).parents[2]
TRAIN, HOLDOUT = "data/private/train.parquet", "data/private/holdout.parquet"
SPLIT = Node("split", Zone.PRIVATE, ("rows.csv", "public.csv"), (TRAIN, HOLDOUT, "data/public/train.parquet"))
BASE = Node("base", Zone.PUBLIC, ("data/public",), ("models/base",))
FIT = Node("fit", Zone.PRIVATE, (TRAIN, "models/base"), ("models/fit", "receipts/fit.json"), receipt=True)
DRAW = Node("draw", Zone.DP, ("models/fit",), ("rows/fit",))
PACK = Node("pack", Zone.DP, ("rows", "receipts"), ("release",))
PUBLIC = "data/public/train.parquet"
NAMED = {PUBLIC: "split"}
SOUND = {node.name: node for node in (SPLIT, BASE, FIT, DRAW, PACK)}


def ways(*changed: Node, ledgered: tuple[str, ...] = ("fit",)) -> list[tuple[str, ...]]:
    """The paths in the sound graph with some nodes changed or added."""
    found = SOUND | {node.name: node for node in changed}
    return taint(Flow(tuple(found.values()), ("rows.csv",), frozenset(ledgered), NAMED))


def also(node: Node, *reads: str) -> Node:
    """The node with further inputs."""
    return replace(node, reads=(*node.reads, *reads))


def test_a_sound_graph_has_no_way():
    assert ways() == []


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        (also(PACK, "rows.csv"), ("rows.csv", "pack")),
        (also(PACK, TRAIN), ("rows.csv", "split", "pack")),
        (also(PACK, "data"), ("rows.csv", "split", "pack")),
        (also(DRAW, HOLDOUT), ("rows.csv", "split", "draw", "pack")),
        (also(BASE, TRAIN), ("rows.csv", "split", "base", "fit", "draw", "pack")),
        (also(FIT, HOLDOUT), ("rows.csv", "split", "fit", "draw", "pack")),
        (replace(FIT, receipt=False), ("rows.csv", "split", "fit", "draw", "pack")),
        (replace(SPLIT, writes=(*SPLIT.writes, "rows/split")), ("rows.csv", "split", "pack")),
        (Node("measure", Zone.PRIVATE, ("code",), ("rows/measured.json",)), ("measure", "pack")),
        (Node("measure", Zone.DP, (HOLDOUT,), ("rows/deep/inside",)), ("rows.csv", "split", "measure", "pack")),
        (Node("other", Zone.PUBLIC, ("rows.csv",), ("release/more",)), ("rows.csv", "other")),
    ],
)
def test_a_way_past_the_meter_is_told(changed: Node, path: tuple[str, ...]):
    assert path in ways(changed)


def test_a_receipt_that_the_ledger_does_not_know_is_no_meter():
    expected = ("rows.csv", "split", "fit", "draw", "pack")
    assert ways(ledgered=()) == [expected, (*expected[:3], "pack")]


def test_a_metered_stage_does_not_clear_a_reference_that_it_reads():
    reference = Node("inf", Zone.PRIVATE, (TRAIN,), ("models/inf",), receipt=True)
    told = [("rows.csv", "split", "inf", "fit", "draw", "pack"), ("rows.csv", "split", "inf", "fit", "pack")]
    assert ways(reference, also(FIT, "models/inf")) == sorted(told)
    assert ways(reference) == []


def test_what_a_private_stage_writes_is_public_only_where_it_is_named():
    assert ways(also(PACK, "data/public/train.parquet")) == []
    assert ways(also(PACK, "data/public_too.parquet"), replace(SPLIT, writes=("data/public_too.parquet",)))


def test_what_another_private_stage_writes_under_such_a_name_stays_private():
    other = Node("other", Zone.PRIVATE, (HOLDOUT,), ("data/public/train.parquet",))
    own = replace(SPLIT, writes=(TRAIN, HOLDOUT))
    assert ("rows.csv", "split", "other", "pack") in ways(own, other, also(PACK, "data/public/train.parquet"))


def test_a_declared_private_file_is_private_whoever_makes_it():
    maker = Node("maker", Zone.PUBLIC, (), ("rows.csv", "facts.json"))
    assert ways(maker) == []
    assert ways(maker, also(PACK, "rows.csv")) == [("maker", "pack")]
    assert ways(maker, also(PACK, "facts.json")) == [("maker", "pack")]
    metered = Node("fit2", Zone.PRIVATE, (TRAIN,), ("rows.csv",), receipt=True)
    assert ways(metered, also(PACK, "rows.csv"), ledgered=("fit", "fit2")) == [("rows.csv", "pack")]
    flow = Flow(
        (Node("world", Zone.PRIVATE, (), (PUBLIC,)), also(PACK, PUBLIC)), (PUBLIC,), frozenset(), {PUBLIC: "world"}
    )
    assert taint(flow) == [(PUBLIC, "pack")]


def test_a_file_of_the_private_folder_is_private_though_no_stage_makes_it():
    assert ways(also(PACK, "data/private/left.parquet")) == [("data/private/left.parquet", "pack")]


def test_every_way_is_told():
    found = ways(also(DRAW, HOLDOUT), also(PACK, TRAIN), also(FIT, "rows.csv"))
    assert found == [
        ("rows.csv", "fit", "draw", "pack"), ("rows.csv", "fit", "pack"), ("rows.csv", "split", "draw", "pack"),
        ("rows.csv", "split", "pack"),
    ]  # fmt: skip


def test_zones_are_what_the_graph_makes_of_them():
    flow = Flow(tuple(SOUND.values()), ("rows.csv",), frozenset({"fit"}), NAMED)
    made = {node.name: flow.zone(node) for node in flow.nodes}
    assert made == {"split": "private", "base": "public", "fit": "dp", "draw": "dp", "pack": "dp"}


@st.composite
def graphs(draw: st.DrawFn) -> Flow:
    """Up to eight stages, each reading some earlier ones; the last writes the release."""
    count, found = draw(st.integers(2, 8)), []
    for number in range(count):
        earlier = draw(st.lists(st.sampled_from(range(number)), unique=True)) if number else []
        reads = tuple(f"out/{one}" for one in earlier) + (("rows.csv",) if draw(st.booleans()) else ())
        writes = ("release",) if number == count - 1 else (f"out/{number}",)
        zone = draw(st.sampled_from([Zone.DP, Zone.PUBLIC]))
        found.append(Node(str(number), zone, reads, writes, draw(st.booleans())))
    metered = frozenset(draw(st.lists(st.sampled_from([node.name for node in found]), unique=True)))
    return Flow(tuple(found), ("rows.csv",), metered, public={}, door=("rows.csv", "out"))


def walks(flow: Flow) -> Iterator[tuple[str, ...]]:
    """The paths by another route: those of the graph without its metered stages."""
    free = [node for node in flow.nodes if not (node.receipt and node.name in flow.ledgered)]
    made = nx.DiGraph()
    made.add_nodes_from(["rows.csv", *(node.name for node in free)])
    made.add_edges_from((read.removeprefix("out/"), node.name) for node in free for read in node.reads)
    last = flow.nodes[-1].name
    if last in {node.name for node in free}:
        yield from map(tuple, nx.all_simple_paths(made, "rows.csv", last))


@given(graphs())
def test_exactly_the_ways_without_a_meter_are_told(flow: Flow):
    assert taint(flow) == sorted(walks(flow))


# The graph of the repository.


def read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text(encoding="utf-8"))


PARAMS = demo()
GRAPH = STAGES | read("dvc.yaml")["stages"]
VARIANTS = tuple(PARAMS["release"]["variants"]) if "release" in PARAMS else ("dp3", "predict3", "select3")


def real(variants: tuple[str, ...] = VARIANTS, **changed: Any) -> Flow:
    """The repository's graph after a run, with some stages changed, and what releases these variants."""
    params = load(ROOT)
    found = [narrow_node(node, variants) for node in nodes(GRAPH | changed, PARAMS)]
    good = [name for name, row in params.charged.items() if row.purpose == "release"]
    ledgered = frozenset(node.name for node in found if node.name.partition("@")[2] in good)
    return Flow(tuple(found), ("data/raw/private.jsonl", "data/raw/test.jsonl"), ledgered)


def changed(name: str, **values: Any) -> dict[str, Any]:
    """A stage of the graph, repeated or not, with some of its keys changed."""
    stage = GRAPH[name]
    own = {"do": stage["do"] | values} if "do" in stage else values
    return {name: stage | own}


def depends(name: str, *paths: str) -> dict[str, Any]:
    """A stage with further dependencies."""
    body = GRAPH[name].get("do", GRAPH[name])
    return changed(name, deps=[*body["deps"], *paths])


def test_no_private_data_reach_the_release_of_the_repository_past_the_meter():
    assert taint(real()) == []


def test_every_stage_of_the_repository_is_a_node_with_what_it_needs():
    flow, graph = real(()), {stage.name: stage for stage in read_graph(ROOT)}
    plain = Flow(tuple(nodes(read("dvc.yaml")["stages"], read("params.resolved.yaml"))), flow.private, flow.ledgered)
    needs = {node.name: {maker.name for maker, _ in plain.makers(node)} for node in plain.nodes}
    gated = {name for name, stage in read("dvc.yaml")["stages"].items() if "gates" in stage.get("do", stage)["meta"]}
    assert needs.keys() == graph.keys()
    for name in needs.keys() - {found for found in needs if found.partition("@")[0] in gated}:
        assert needs[name] == set(graph[name].needs), name


def test_a_reference_never_reaches_the_release():
    assert any(path[-2] == "pplm_generate@inf" for path in taint(real((*VARIANTS, "inf"))))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (depends("pplm_generate", "data/private/holdout.parquet"), "pplm_generate@dp3"),
        (depends("pretrain", "${dataset.private}"), "pretrain"),
        (depends("dp_train", "models/inf"), "dp_train@inf"),
        (changed("discriminator", meta={"zone": "private"}), "discriminator@judge3"),
        (depends("encode_public", "data/private/report.json"), "encode_public"),
    ],
)
def test_a_planted_way_past_the_meter_is_told(change: dict[str, Any], told: str):
    found = taint(real(("dp3",), **change))
    assert found
    assert any(told in path for path in found)


def test_a_measurement_of_private_rows_among_the_sources_is_told():
    flow = real()
    (pack,) = (node for node in flow.nodes if "release" in node.writes)
    leaking = narrow_reads(pack, [*sources(VARIANTS), "reports/metrics/dp3/utility.json"])
    found = taint(replace(flow, nodes=tuple(leaking if node is pack else node for node in flow.nodes)))
    assert any("downstream_eval@dp3" in path for path in found)


# Edits of dvc.yaml that hide a way.


def gated(name: str, *paths: str) -> dict[str, Any]:
    """A stage with further dependencies that it calls gates."""
    body = depends(name, *paths)
    return {name: body[name] | {"meta": body[name]["meta"] | {"gates": list(paths)}}}


def also_read(name: str, *entries: Any) -> dict[str, Any]:
    """A stage with further entries in `params`."""
    return changed(name, params=[*GRAPH[name]["params"], *entries])


def command(text: Any) -> dict[str, Any]:
    """A public stage that runs something else."""
    return changed("pretrain", cmd=text)


REFUSED = {
    "a dot": depends("pretrain", f"./{TRAIN}"),
    "a slash at the end": depends("pretrain", "data/private/"),
    "up and down": depends("pretrain", "data/public/../private/train.parquet"),
    "two slashes": depends("pretrain", "data//private/train.parquet"),
    "two slashes in front": depends("pretrain", f"/{ROOT}/{TRAIN}"),
    "everything": depends("pretrain", "."),
    "from the root": depends("pretrain", f"{ROOT}/{TRAIN}"),
    "from above": depends("pretrain", f"../{ROOT.name}/{TRAIN}"),
    "all above": depends("pretrain", ".."),
    "outside, undeclared": depends("pretrain", "/elsewhere/rows.csv"),
    "an output by another name": changed("pretrain", outs=["models/base", "./data/public/more"]),
    "a working directory": changed("pretrain", wdir="data/private", deps=["train.parquet"]),
    "a working directory of all repetitions": {"pplm_generate": GRAPH["pplm_generate"] | {"wdir": "data/private"}},
    "a working directory of a repetition": changed("pplm_generate", wdir="data/private", deps=["train.parquet"]),
    "a stage's vars": changed("pretrain", vars=[{"hidden": TRAIN}], deps=["${hidden}"]),
    "a stage that always runs": changed("pretrain", always_changed=True),
    "an unknown name": depends("pretrain", "${hidden}"),
    "an unknown name in a known section": depends("pretrain", "data/${dataset.hidden}/train.parquet"),
    "a name with blanks": depends("pretrain", "${ dataset.private }"),
    "a name with brackets": depends("pretrain", "${dataset['private']}"),
    "an unknown list": {"pplm_generate": GRAPH["pplm_generate"] | {"foreach": "${hidden}"}},
    "an unknown matrix": changed("dp_train", matrix={"model": "${hidden}"}),
    "a parameter file by another name": also_read("pretrain", {"./data/private/report.json": ["rows"]}),
    "a command": command(f"python -P -m stages.pretrain && cp {TRAIN} models/base"),
    "a command on the folder": command(["python -P -m stages.pretrain", "cp -r ./data/public/../private/ models/base"]),
    "a command on the input": command("python -P -m stages.pretrain --from=${dataset.private}"),
    "a command from the root": command(f"python -c 'open(\"{ROOT}/{TRAIN}\")'"),
}  # fmt: skip


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_a_graph_that_could_hide_a_way_is_refused(edit: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises((DataError, ParamsError)) as told:
        nodes(GRAPH | edit, PARAMS)
    assert told.value.problem
    assert told.value.remedy


FACTS, REPORT = "data/raw/facts.json", "data/private/report.json"
FOUND = {
    "the file itself": (depends("pretrain", TRAIN), "pretrain"),
    "its folder": (depends("pretrain", "data/private"), "pretrain"),
    "what no stage makes": (depends("pretrain", "data/private/left.parquet"), "pretrain"),
    "gates of another stage": (gated("pretrain", TRAIN), "pretrain"),
    "gates of another stage, by a known name": (gated("pretrain", FACTS), "pretrain"),
    "another gate of the release": (gated("release", TRAIN), "release"),
    "a parameter file": (also_read("pretrain", {REPORT: ["rows"]}), "pretrain"),
    "a whole parameter file": (also_read("pretrain", {"params.yaml": ["seed"], REPORT: None}), "pretrain"),
    "the second of two outputs": (
        changed("baseline_eval", outs=[{"data/private/baselines.json": {}, "data/public/more": {}}])
        | depends("pretrain", "data/public/more"), "pretrain",
    ),
    "a public name from another private stage": (
        changed("preprocess", outs=[TRAIN, HOLDOUT, "data/private/manifest.json"])
        | changed("baseline_eval", outs=[PUBLIC]), "baseline_eval",
    ),
    "a public name from the wrong one of the two": (
        changed("preprocess", outs=[*GRAPH["preprocess"]["outs"], "data/raw/public_test.jsonl"])
        | depends("pretrain", "data/raw/public_test.jsonl"), "preprocess",
    ),
    "the input, its maker public": (
        changed("world", meta={"zone": "public"}) | depends("pretrain", "${dataset.private}"), "pretrain",
    ),
    "what is written beside the input, its maker public": (
        changed("world", meta={"zone": "public"}) | depends("pretrain", FACTS), "world",
    ),
    "the split, its maker public and without a word on what it reads": (
        changed("preprocess", meta={"zone": "public"}, deps=["${dataset.public}"]) | depends("pretrain", HOLDOUT),
        "preprocess",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "told"), FOUND.values(), ids=FOUND)
def test_a_hidden_way_is_found(edit: dict[str, Any], told: str):
    found = taint(real(**edit))
    assert found
    assert any(told in path for path in found)


def test_what_is_declared_may_lie_outside_the_workspace_and_inside(tmp_path: Path):
    for rows in map(str, (tmp_path / "rows.csv", tmp_path / "own/rows.csv")):
        stage = {"copy": {"deps": ["${dataset.private}"], "outs": ["release"], "meta": {"zone": "public"}}}
        found = nodes(stage, {"dataset": {"private": rows, "test": None}}, tmp_path / "own")
        assert taint(Flow(tuple(found), (rows,), frozenset())) == [(rows, "copy")]


@pytest.mark.parametrize(
    ("rows", "dep"),
    [
        ("own/rows.csv", "rows.csv"),
        ("own/rows.csv", "../own/rows.csv"),
        ("own/data/rows.csv", "data"),
        ("rows.csv", "../rows.csv"),
        ("own/data/private/train.parquet", "data/private/train.parquet"),
    ],
)
def test_a_declared_file_has_no_other_name(tmp_path: Path, rows: str, dep: str):
    stage = {"copy": {"deps": [dep], "outs": ["release"], "meta": {"zone": "public"}}}
    with pytest.raises(DataError):
        nodes(stage, {"dataset": {"private": str(tmp_path / rows), "test": None}}, tmp_path / "own")


@pytest.mark.parametrize("world", [True, False])
def test_no_graph_of_the_declarations_is_refused(world: bool, tmp_path: Path):
    graph = document(frozenset(Feature) if world else frozenset(Feature) - {Feature.WORLD})["stages"]
    own = {name: str(tmp_path / name) for name in ("private", "test", "public", "public_test")}
    found = nodes(graph, PARAMS | {"dataset": PARAMS["dataset"] | own}, tmp_path)
    assert {own["private"], own["test"]} <= {path for node in found for path in node.reads}


def releasing(params: dict[str, Any] = PARAMS, **edit: Any) -> Node:
    (node,) = (node for node in nodes(GRAPH | edit, params) if node.name == "release")
    return node


def test_the_answer_key_of_the_invented_world_is_the_one_gate():
    assert FACTS not in releasing().reads
    listed = [path for path in GRAPH["release"]["deps"] if path != FACTS and "$" not in path]
    others = [*listed, "reports/metrics", "reports/summary.json"]
    assert {*others} <= {*releasing(**gated("release", *others)).reads}


def test_where_no_world_is_invented_nothing_is_a_gate():
    with pytest.raises(DataError, match="no invented world") as told:
        nodes(GRAPH, PARAMS | {"world": None})
    assert told.value.remedy


def test_no_audit_of_private_rows_has_to_succeed_before_a_release():
    """That a stage fails can be a function of the rows that it reads."""
    behind = {stage.name.partition("@")[0] for stage in read_graph(ROOT, ["release"])}
    assert {"world", "preprocess", "public_eval", "release"} <= behind
    private = {name for name in behind if GRAPH[name].get("do", GRAPH[name])["meta"]["zone"] == "private"}
    charging = {name for name in private if "receipt" in GRAPH[name].get("do", GRAPH[name])["meta"]}
    assert private - charging == {"world", "preprocess"}


# Models that params.yaml names.


def naming(section: str, **values: Any) -> Flow:
    """The repository's graph where its params.yaml names other models."""
    params = PARAMS | {section: PARAMS[section] | values}
    found = [narrow_node(node, VARIANTS) for node in nodes(GRAPH, params)]
    return replace(real(), nodes=tuple(found))


LATER = {"kind": "local", "model": "models/inf/lm"}
NAMING = {
    "the language model": (("models", {"lm": "models/inf/lm"}), "pretrain"),
    "the encoder": (("models", {"encoder": "models/inf"}), "encode_public"),
    "the encoder, by another name": (("models", {"encoder": "./models/../models/inf"}), "private_predict@predict3"),
    "the encoder, from the root": (("models", {"encoder": f"{ROOT}/models/inf/lm"}), "pplm_generate@dp3"),
    "the classifier": (("models", {"classifier": "data/private"}), "public_eval"),
    "an author's model": (("authors", {"base": LATER}), "private_evolve@evolve3"),
}


@pytest.mark.parametrize(("edit", "told"), NAMING.values(), ids=NAMING)
def test_a_models_folder_is_read_by_whatever_names_it(
    edit: tuple[str, dict[str, Any]], told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    assert any(told in path for path in taint(naming(edit[0], **edit[1])))


@pytest.mark.parametrize("name", ["embedded", "someone/model@main", "/elsewhere/model", "models2/gpt2"])
def test_a_model_that_no_stage_wrote_is_no_way(name: str):
    assert taint(naming("models", lm=name, encoder=name, classifier=name)) == []


def test_every_key_that_names_a_model_is_read_where_a_stage_depends_on_it(tmp_path: Path):
    judge, writer = ({"kind": "local", "model": name} for name in ("models/judge", "models/writer"))
    others = {
        "lm": "models/lm",
        "encoder": "models/e",
        "classifier": "models/c",
        "next_token": "models/small",
        "judge": judge,
    }
    params = PARAMS | {"models": PARAMS["models"] | others, "authors": PARAMS["authors"] | {"other": writer}}
    named = [source for source in public_sources(parse(params)) if source.kind == "model"]
    assert len(named) == 6
    for source in named:
        section = source.key.removesuffix(".model")
        stage = {"copy": {"params": [section], "outs": ["release"], "meta": {"zone": "public"}}}
        (node,) = nodes(stage, params, tmp_path)
        assert source.name in node.reads, source.key


def test_an_author_that_nothing_asks_is_not_read():
    assert taint(naming("authors", other=LATER)) == []


def test_a_model_behind_a_link_is_where_the_link_leads(tmp_path: Path):
    (tmp_path / "models/inf").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("models/inf")
    stage = {"copy": {"params": ["models.lm"], "outs": ["release"], "meta": {"zone": "public"}}}
    (node,) = nodes(stage, {"models": {"lm": "linked"}}, tmp_path)
    assert node.reads == ("linked", "models/inf")


@pytest.mark.parametrize("name", [".", "..", "/", "models/.."])
def test_a_model_does_not_hold_the_workspace(name: str, tmp_path: Path):
    stage = {"copy": {"params": ["models.lm"], "outs": ["release"], "meta": {"zone": "public"}}}
    with pytest.raises(DataError):
        nodes(stage, {"models": {"lm": name}}, tmp_path)


@pytest.mark.parametrize("entry", ["models", "models.lm", "models.lm.deeper"])
def test_whatever_entry_covers_the_key_names_the_model(entry: str, tmp_path: Path):
    stage = {"copy": {"params": [entry, "dataset"], "outs": ["release"], "meta": {"zone": "public"}}}
    (node,) = nodes(stage, {"models": {"lm": "own"}}, tmp_path)
    assert node.reads == ("own",)
