"""What a person writes stands for every value, and every value can be written short."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.methods.registry import METHODS
from palimpsest.params.load import file_of, resolve_params
from palimpsest.params.reference import settings_by_method
from palimpsest.params.resolve import shorten, to_plain
from palimpsest.params.schema import ChargedVariant, DiscriminatorSettings, DpLmVariant, Entry, LanguageModel, Params
from palimpsest.params.text import to_yaml

Body = dict[str, Any]


def body(**changes: Any) -> Body:
    """A short file with a variant of each kind of source."""
    found: Body = {
        "version": "1",
        "dataset": {
            "asset": "a", "task": "classify", "private": "a.csv", "public": "b.csv", "text": "text", "label": "label",
            "labels": {"x": "one", "y": "two"}, "n_public": 2400,
        },
        "privacy": {"budget": {"epsilon": 10}},
        "taught": {"similar": {}},
        "decoders": {"small": {}, "idle": {}},
        "lms": {"dp3": {"epsilon": 2}, "free": {"epsilon": math.inf}, "unused": {"epsilon": 1}},
        "discriminators": {"judge": {"from": "dp3", "epsilon": 3}, "idle": {"epsilon": 3}},
        "variants": {
            "guided": {"method": "dp_lm", "from": "judge", "variant": "filter", "best_of": 2},
            "free": {"method": "dp_lm"},
            "predict3": {"method": "predict", "epsilon": 3, "from": "taught/similar", "filters": {"min_words": 4}},
            "plain3": {"method": "predict", "epsilon": 3},
            "select3": {"method": "select", "epsilon": 3, "rows": 10},
            "evolve3": {"method": "evolve", "epsilon": 3},
            "voted": {"method": "vote_select", "epsilon": 3, "from": "select3"},
            "embed3": {"method": "embed", "epsilon": 3, "from": "small"},
        },
    }  # fmt: skip
    found["variants"]["voted"]["epsilon"] = 4
    return found | changes


def loaded(content: Body) -> Params:
    return resolve_params(file_of(to_yaml(content)))


def test_what_runs_follows_from_the_variants() -> None:
    params = loaded(body())
    run, names = to_plain(params.run), list(body()["variants"])
    assert params.methods == ["discriminator", "dp_lm", "embed", "evolve", "predict", "select", "vote_select"]
    assert set(run) > {method.run for method in METHODS}
    assert {key: value for key, value in run.items() if value} == {
        "dp_train": ["dp3", "free"],
        "discriminator": {"judge": "dp3"},
        "dp_lm": {"guided": "judge", "free": "free"},
        "teach_similar": ["similar"],
        "private_predict": {"predict3": "taught/similar", "plain3": "base"},
        "select": ["select3"],
        "private_evolve": {"evolve3": "base"},
        "vote_select": {"voted": "select3"},
        "decoder_pretrain": ["small"],
        "eda_evolve": {"embed3": "small"},
        "evaluate": names,
        "audit": names,
    }


def test_runs_narrow_what_runs_and_ask_for_more() -> None:
    chosen = {"evaluate": ["free", "select3"], "audit": [], "embedding_audit": ["unused"]}
    asked = {**chosen, "shadow_mia": ["free"], "prompt_mia": ["free"], "fit": ["judge"]}
    run = loaded(body(runs=asked, utility={"in_context": {}})).run
    assert (run.evaluate, run.audit) == (("free", "select3"), ())
    assert (run.dp_train, run.discriminator) == (("dp3", "free", "unused"), {"judge": "dp3"})
    assert run.dp_lm == {"free": "free"}
    assert (run.embedding_audit, run.shadow_mia, run.private_predict) == (("unused",), {"free": "free"}, {})
    assert (run.prompt_mia, run.in_context, run.in_context_baseline) == (("free",), (), ())


def test_settings_stand_flat_and_parts_of_a_section_keep_its_other_defaults() -> None:
    params = loaded(body())
    filters = to_plain(params.variants["predict3"])["predict"]["filters"]
    assert (filters["min_words"], filters["chain"]) == (4, ["length", "personal_data", "duplicates"])
    assert to_plain(params.variants["guided"])["generate"]["best_of"] == 2
    assert to_plain(params.variants["select3"])["select"]["rows"] == 10


def test_purpose_is_release_where_there_is_noise() -> None:
    params = loaded(body())
    assert (params.lms["dp3"].purpose, params.lms["free"].purpose) == ("release", "reference")


def test_sizes_follow_from_the_declared_units() -> None:
    params = loaded(body())
    assert (params.lms["dp3"].train.batch, params.discriminators["judge"].train.batch) == (128, 2400)
    assert (params.audit.size, to_plain(params.variants["plain3"])["predict"]["batch_size"]) == (480, 32)
    persons = body()
    persons["dataset"]["unit"] = {"column": "who", "persons": 240}
    params = loaded(persons)
    assert (params.lms["dp3"].train.batch, params.audit.size) == (16, 48)


@pytest.mark.parametrize(("task", "tokens"), [("json", [200] * 6), ("text", [64, 64, 40, 40, 30, 30])])
def test_a_record_of_json_is_read_and_written_whole(task: str, tokens: list[int]) -> None:
    """Cut at the tokens of a text, no record that is drawn would be a whole object."""
    content = body(taught={}, discriminators={}, runs={"evaluate": ["free", "plain3", "shown"]})
    content["dataset"] |= {"task": task, "label": None, "labels": {}}
    if task == "json":
        content["dataset"]["json_schema"] = {"type": "object", "properties": {"title": {"type": "string"}}}
    content["variants"] = {
        "free": {"method": "dp_lm", "from": "free"},
        "plain3": {"method": "predict", "from": "base", "epsilon": 3},
        "shown": {"method": "fewshot", "from": "base", "epsilon": 3},
    }
    params = loaded(content)
    drawn, predicted, shown = (to_plain(params.variants[name]) for name in content["variants"])
    found = [params.lms["free"].train.max_tokens, drawn["generate"]["max_tokens"]]
    for section in (predicted["predict"], shown["fewshot"]):
        found += [section["max_tokens"], section["prompt"]["text_tokens"]]
    assert found == tokens
    chain = ("personal_data",) if task == "json" else ("length", "personal_data", "duplicates")
    assert [predicted["predict"]["filters"]["chain"], shown["fewshot"]["filters"]["chain"]] == [[*chain]] * 2
    assert loaded(shorten(params)) == params


def test_a_discriminator_that_is_a_whole_model_trains_as_one() -> None:
    """What is written stands, though a head would have it by default."""
    content = body()
    content["discriminators"]["judge"] |= {"reads": "tuned", "micro_batch": 2048}
    params = loaded(content)
    own, model = params.discriminators["judge"].train, params.lms["dp3"].train
    for key in ("epochs", "batch", "learning_rate", "warmup", "clipping_norm"):
        assert getattr(own, key) == getattr(model, key)
        assert getattr(own, key) != getattr(params.discriminators["idle"].train, key)
    assert own.micro_batch == 2048
    assert loaded(shorten(params)) == params


def test_class_means_need_labels() -> None:
    content = body(taught={}, lms={}, discriminators={})
    content["dataset"] |= {"task": "text", "label": None, "labels": {}}
    content["variants"] = {name: content["variants"][name] for name in ("plain3", "evolve3", "embed3")}
    written = {name: to_plain(row) for name, row in loaded(content).variants.items()}
    assert written["plain3"]["predict"]["class_means"] is None
    assert written["evolve3"]["evolve"]["class_means"] is None
    assert written["embed3"]["embed"]["class_means"] is None
    labelled = {name: to_plain(row) for name, row in loaded(body()).variants.items()}
    assert labelled["evolve3"]["evolve"]["class_means"]["share"] == 0.5


REFUSED = {
    "no such method": ({"variants": {"a": {"method": "guess", "epsilon": 1}}}, ["variants.a.method", "guess"]),
    "no such source": (
        {"variants": {"a": {"method": "embed", "epsilon": 1, "from": "smal"}}},
        ["variants.a.from", "smal"],
    ),
    "no source": ({"variants": {"a": {"method": "embed", "epsilon": 1}}}, ["variants.a.from is missing"]),
    "a source for nothing": (
        {"variants": {"a": {"method": "select", "epsilon": 1, "from": "base"}}},
        ["variants.a.from", "base"],
    ),
    "a model of no name": ({"variants": {"a": {"method": "dp_lm"}}}, ["variants.a.from", "'a'"]),
    "a judge behind nothing": ({"discriminators": {"judge": {"epsilon": 3}}}, ["discriminators.judge.from is missing"]),
    "a model of nothing": ({"runs": {"fit": ["other"]}}, ["runs.fit", "other"]),
    "an audit of nothing": ({"runs": {"evaluate": ["other"]}}, ["runs.evaluate", "other"]),
    "a shadow of nothing": ({"runs": {"shadow_mia": ["select3"]}}, ["runs.shadow_mia", "select3"]),
    "unknown key": ({"sed": 3}, ["sed is not a key of params.yaml"]),
    "the old section": ({"run": {}}, ["run is not a key of params.yaml"]),
    "a missing section": ({"privacy": None}, ["privacy is null"]),
    "wrong setting": ({"variants": {"a": {"method": "select", "epsilon": 1, "rows": 0}}}, ["variants.a.rows is 0"]),
    "unknown setting": (
        {"variants": {"a": {"method": "select", "epsilon": 1, "row": 1}}},
        ["variants.a.row is not a key"],
    ),
    "settings a level deeper": (
        {"variants": {"a": {"method": "select", "epsilon": 1, "select": {"rows": 1}}}},
        ["variants.a.select is not a key"],
    ),
    "missing epsilon": ({"variants": {"a": {"method": "select"}}}, ["variants.a.epsilon is missing"]),
    "wrong setting of a model": ({"lms": {**body()["lms"], "dp3": {"epsilon": 2, "batch": 0}}}, ["lms.dp3.batch is 0"]),
    "wrong setting of an author": ({"authors": {"own": {"kind": "base", "masked": 2}}}, ["authors.own.masked is 2"]),
    "wrong data set": ({"dataset": {**body()["dataset"], "n_public": 1}}, ["dataset.n_public is 1"]),
}


@pytest.mark.parametrize(("changes", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_named_as_it_is_written(changes: Body, told: list[str]) -> None:
    with pytest.raises(ParamsError) as caught:
        loaded(body(**changes))
    assert [words for words in told if words not in str(caught.value)] == []


# The way back.


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.sampled_from(list(body()["variants"])), unique=True, min_size=1),
    audits=st.sampled_from([None, []]),
    epsilon=st.sampled_from([2.5, 3.0]),
    rows=st.integers(1, 5000),
    filters=st.sampled_from([{}, {"max_words": 9}, {"chain": []}]),
)
def test_every_value_can_be_written_short(
    names: list[str], audits: Any, epsilon: float, rows: int, filters: Body
) -> None:
    content = copy.deepcopy(body(runs={"evaluate": names, "audit": audits}))
    content["variants"]["predict3"] |= {"epsilon": epsilon, "filters": filters, "class_means": None}
    content["variants"]["select3"]["rows"] = rows
    if "voted" in names and "select3" not in names:
        names.remove("voted")
        content["runs"]["evaluate"] = names or ["select3"]
    params = loaded(content)
    assert loaded(shorten(params)) == params


def test_texts_of_an_author_run_where_a_variant_begins_with_them() -> None:
    content = body(authors={"writer": {"kind": "base"}})
    content["zero_shot"] = {"words": {"from": "writer", "texts": 400}, "idle": {"from": "base"}}
    assert loaded(content).run.zero_shot == {}
    content["variants"]["embed3"]["zero_shot"] = "words"
    params = loaded(content)
    assert (params.run.zero_shot, params.zero_shot["words"].texts) == ({"words": "writer"}, 400)
    short = shorten(params)
    assert short["zero_shot"]["words"] == {"from": "writer", "texts": 400}
    assert loaded(short) == params
    for wrong, told in (({"texts": 400}, "zero_shot.words.from is missing"), ({"from": "corpus"}, "'corpus'")):
        with pytest.raises(ParamsError, match=told):
            loaded(content | {"zero_shot": {"words": wrong}})


def test_what_is_written_short_holds_no_default() -> None:
    assert shorten(loaded(body()))["variants"] == {
        name: {**row, **({"epsilon": float(row["epsilon"])} if "epsilon" in row else {})}
        for name, row in body()["variants"].items()
    }


@pytest.mark.parametrize("kind", [LanguageModel, DiscriminatorSettings, DpLmVariant])
def test_settings_are_told_from_what_an_entry_is(kind: type[Entry]) -> None:
    inner = kind.model_fields[kind.holds].annotation
    assert inner is not None
    assert kind.model_fields.keys().isdisjoint(inner.model_fields)
    assert "from" not in inner.model_fields


@pytest.mark.parametrize("section", settings_by_method().values())
def test_settings_of_a_method_are_told_from_what_a_variant_is(section: type[BaseModel]) -> None:
    assert {*ChargedVariant.model_fields, "from"}.isdisjoint(section.model_fields)


# The text.

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@pytest.mark.parametrize("folded", [True, False])
@settings(max_examples=200, deadline=None)
@given(content=st.dictionaries(st.text(), _VALUES))
def test_the_text_reads_back(folded: bool, content: Body) -> None:
    assert YAML(typ="safe", pure=True).load(to_yaml(content, folded=folded) or "{}") == content
