"""Are the stages there that the variants need, and no others, for each kind of data set and each method alone?"""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain, product
from typing import Any

import pytest

from palimpsest.graph.expand import MADE, Repetition, expand, fill_names, params_keys
from palimpsest.graph.render import document, features, find_authored
from palimpsest.methods.registry import METHODS
from palimpsest.models.chat.settings import Endpoint, LocalJudge, Price
from palimpsest.params.file import File
from palimpsest.params.load import resolve_params
from palimpsest.params.resolve import to_plain
from palimpsest.params.schema import Params
from palimpsest.params.sources import public_sources
from palimpsest.workspace import BASE_LM, METRICS, SYNTHETIC
from stages.spenders import settings_of, spender
from stages.tools import Artifacts
from tests.graph.test_render import meets

Body = dict[str, Any]

# What runs -> the variants, with what they are drawn from.
ALONE: Mapping[str, Body] = {
    "dp_lm": {"one": {"method": "dp_lm"}},
    "predict, of the base": {"one": {"method": "predict", "epsilon": 3}},
    "predict, of a taught one": {"one": {"method": "predict", "epsilon": 3, "from": "taught/similar"}},
    "fewshot": {"one": {"method": "fewshot", "epsilon": 3}},
    "phrases": {"one": {"method": "phrases", "epsilon": 3}},
    "select": {"one": {"method": "select", "epsilon": 3}},
    "evolve, by the corpus": {"one": {"method": "evolve", "epsilon": 3, "from": "corpus"}},
    "evolve, by the base": {"one": {"method": "evolve", "epsilon": 3, "from": "base"}},
    "evolve, by a base of another name": {"one": {"method": "evolve", "epsilon": 3, "from": "writer"}},
    "evolve, by both": {
        "one": {"method": "evolve", "epsilon": 3, "from": "corpus"},
        "two": {"method": "evolve", "epsilon": 3, "from": "writer"},
    },
    "embed": {"one": {"method": "embed", "epsilon": 3, "from": "small"}},
    "sentdp": {"one": {"method": "sentdp", "epsilon": 3}},
    "custext": {"one": {"method": "custext", "epsilon": math.inf, "purpose": "reference", "token_epsilon": 3}},
    "vote_select": {
        "two": {"method": "select", "epsilon": 3},
        "one": {"method": "vote_select", "epsilon": 4, "from": "two"},
    },
    "restate": {
        "two": {"method": "select", "epsilon": 3},
        "one": {"method": "restate", "epsilon": 4, "from": "two", "attributes": {"word": {"pattern": "[A-Z]+"}}},
    },
}
PROMPTS_THE_BASE = {"dp_lm", "predict, of the base", "fewshot", "phrases"}
WITHOUT_A_MODEL = {"select", "evolve, by the corpus", "sentdp", "custext", "vote_select", "restate"}
OBJECT = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
TASKS: Mapping[str, Body] = {
    "classify": {"task": "classify", "text": "body", "label": "team", "labels": {"a": "A", "b": "B"}},
    "text": {"task": "text", "text": "body"},
    "json": {"task": "json", "text": "*", "json_schema": OBJECT},
}


def able(variants: Body, task: str) -> bool:
    """Whether the methods of these variants can do the task."""
    used = {row["method"] for row in variants.values()}
    return all(task in known.tasks for known in METHODS if known.name in used)


def settings(variants: Body, task: str = "classify", world: bool = False, **files: str) -> Params:
    """Everything that a params.yaml of one method stands for."""
    data: Body = {"asset": "notes", "private": "own.csv", "public": "public.csv", "n_public": 2400, "max_length": 600}
    body: Body = {
        "version": "0",
        "dataset": data | TASKS[task] | files,
        "privacy": {"budget": {"epsilon": 9}},
        "models": {"lm": "someone/model", "encoder": "embedded"},
        "taught": {"similar": {}},
        "decoders": {"small": {}},
        "authors": {"writer": {"kind": "base"}},
        "zero_shot": {"words": {"from": "writer"}},
        "lms": {"one": {"epsilon": 3}} if variants["one"]["method"] == "dp_lm" else {},
        "variants": variants,
    }
    if world:
        body["world"] = "demo"
        named = {key: f"data/raw/{key}.jsonl" for key, path in body["dataset"].items() if str(path).endswith(".csv")}
        body["dataset"] |= named
    return resolve_params(File.model_validate(body))


def running(params: Params) -> list[Repetition]:
    """Every stage that runs, with its names written out."""
    graph = document(features(params), find_authored(params))["stages"]
    return expand(graph, to_plain(params))


def entry(one: Repetition) -> tuple[Any, ...]:
    """What DVC compares of a stage: its command, its keys, and the files that it reads and writes."""
    texts = fill_names([one.body["cmd"], *params_keys(one.body)], one.values)
    return texts, *(sorted(one.known_paths(key)) for key in ("deps", *MADE))


def spending(params: Params) -> dict[str, tuple[Any, ...]]:
    """Each stage that is charged, and what DVC compares of it."""
    return {one.name: entry(one) for one in running(params) if "receipt" in one.body["meta"]}


def kinds() -> Iterator[tuple[str, str, Params]]:
    """Each method with each task, its files own or invented; which files there are asks no method anything."""
    files = [{"test": "test.csv"}, {"public_test": "seen.csv"}, {"test": "test.csv", "public_test": "seen.csv"}]
    every = product(ALONE, TASKS, (False, True), [{}])
    for name, task, world, named in chain(every, product(("dp_lm",), TASKS, (False, True), files)):
        if able(ALONE[name], task):
            yield name, f"{name}, {task}, {world}, {sorted(named)}", settings(ALONE[name], task, world, **named)


def test_whatever_runs_reads_what_a_stage_that_runs_makes_and_a_public_model_is_there_only_to_be_read() -> None:
    for name, told, params in kinds():
        stages = running(params)
        made = {path for one in stages for path in one.known_paths(*MADE)}
        given = {path for path in to_plain(params.dataset).values() if isinstance(path, str)}
        read = {path for one in stages for path in one.known_paths("deps")} - given
        missing = [path for path in read if not any(meets(path, one) for one in made)]
        assert missing == [], told
        names = {one.stage for one in stages}
        assert ("pretrain" in names) == (str(BASE_LM) in read) == (name not in WITHOUT_A_MODEL), told
        assert ("familiarity_audit" in names) == (name not in WITHOUT_A_MODEL), told
        assert ("public_lm" in names) == (name in PROMPTS_THE_BASE), told
        (baselines,) = (one for one in stages if one.stage == "baseline_eval")
        paths = {"deps": f"{SYNTHETIC}/public_lm.parquet", "metrics": f"{METRICS}/public_lm/utility.json"}
        scored = [path in baselines.known_paths(kind) for kind, path in paths.items()]
        assert scored == [name in PROMPTS_THE_BASE] * 2, told


@pytest.mark.parametrize("name", ALONE)
def test_a_model_that_nothing_reads_is_not_fetched(name: str) -> None:
    (used,) = (source.used for source in public_sources(settings(ALONE[name])) if source.key == "models.lm")
    assert used == (name not in WITHOUT_A_MODEL)


def test_what_a_variant_that_spends_depends_on_is_the_same_whatever_comes_to_it() -> None:
    """Else it would run, and be charged, again because of another variant."""
    both = ALONE["evolve, by both"] | {"three": {"method": "embed", "epsilon": 3, "from": "small"}}
    alone, more = (spending(settings(variants)) for variants in (ALONE["evolve, by the corpus"], both))
    assert alone.keys() == {"private_evolve@one"} < more.keys()
    assert {name: more[name] for name in alone} == alone
    assert "models/base" not in more["private_evolve@one"][1]
    assert "models/base" in more["private_evolve@two"][1]


def test_what_begins_with_an_authors_texts_reads_these_and_changes_no_other() -> None:
    one = {"method": "embed", "epsilon": 3, "from": "small"}
    both = {"one": one, "two": {**one, "zero_shot": "words"}}
    alone, params = spending(settings({"one": one})), settings(both)
    more = spending(params)
    assert more["eda_evolve@one"] == alone["eda_evolve@one"]
    given = {name: set(more[f"eda_evolve@{name}"][1]) for name in both}
    assert given["one"] - given["two"] == {"data/public/train.parquet"}
    assert given["two"] - given["one"] == {"data/public/zero_shot/words.parquet"}
    (wrote,) = (stage for stage in running(params) if stage.stage == "zero_shot")
    assert str(BASE_LM) in wrote.known_paths("deps")
    assert "data/private/train.parquet" not in wrote.known_paths("deps")


def test_the_public_model_is_there_where_it_is_asked_about() -> None:
    params = settings(ALONE["select"])
    assert "pretrain" not in {one.stage for one in running(params)}
    asked = params.model_copy(update={"run": params.run.model_copy(update={"embedding_audit": ("base",)})})
    assert {"pretrain", "embedding_audit"} <= {one.stage for one in running(asked)}


def test_the_embedded_model_writes_alone_where_it_is_asked_to_and_then_alone() -> None:
    """Nobody asks what it has read: it is made of the public text."""
    params = settings(ALONE["dp_lm"])
    own = params.model_copy(update={"models": params.models.model_copy(update={"lm": "embedded"})})
    added = {"public_lm", "familiarity_audit"}
    assert added & {one.stage for one in running(own)} == {"public_lm"}
    assert added & {one.stage for one in running(own.model_copy(update={"public_lm": None}))} == set()
    assert spending(params) == spending(params.model_copy(update={"public_lm": None}))


def test_a_judge_of_its_own_needs_no_public_model() -> None:
    params = settings(ALONE["select"])
    judges = {"the base": None, "its own": LocalJudge(kind="local", model="someone/judge")}
    for asks, (name, judge) in product(({"in_context_baseline": ("real",)}, {"prompt_mia": ("one",)}), judges.items()):
        run, models = params.run.model_copy(update=asks), params.models.model_copy(update={"judge": judge})
        asked = params.model_copy(update={"run": run, "models": models})
        assert ("pretrain" in {one.stage for one in running(asked)}) == (name == "the base")


def artifacts(author: str) -> Artifacts:
    """What a variant of evolve is built with, by this author."""
    params = settings(ALONE[author])
    return Artifacts(params, spender(params, "one"))


def test_a_model_that_an_author_spares_is_not_handed_out() -> None:
    assert artifacts("evolve, by a base of another name").base() == BASE_LM
    with pytest.raises(ValueError, match="does not declare that it reads the public language model"):
        artifacts("evolve, by the corpus").base()


def known_by(**changes: Any) -> str:
    """What a run of `evolve` is known by of its author at an endpoint."""
    author = Endpoint.model_validate({"kind": "endpoint", "url": "http://here/v1", "model": "m"} | changes)
    params = settings(ALONE["evolve, by the corpus"]).model_copy(update={"authors": {"corpus": author}})
    return json.dumps(settings_of(params, spender(params, "one"))["from"])


def test_a_run_is_the_same_however_an_endpoint_is_asked_and_another_where_another_writes() -> None:
    means = {"key": "K", "concurrency": 2, "requests_a_minute": 9, "timeout": 5, "retries": 1, "most_tokens": 10_000}
    means |= {"price": Price(read=1.0)}
    assert means.keys() == Endpoint.means
    assert {known_by(**{name: value}) for name, value in means.items()} == {known_by()}
    others = ({"url": "http://there/v1"}, {"model": "n"}, {"temperature": 0.5}, {"prompts": {"system": "Write."}})
    assert len({known_by(), *(known_by(**other) for other in others)}) == 1 + len(others)
