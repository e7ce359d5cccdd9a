"""A named model is left as it is, and prompted in words; the embedded one learns prompts, and all stays as it was."""

from itertools import product
from typing import Any

import pytest

from palimpsest.errors import ParamsError
from palimpsest.graph.render import document, features
from palimpsest.models.settings import BARE, words_of
from palimpsest.params.load import file_of, resolve_params
from palimpsest.params.resolve import shorten, to_plain
from palimpsest.params.schema import Params
from palimpsest.params.sources import public_sources
from palimpsest.params.text import to_yaml
from palimpsest.workspace import BASE_LM, UNTOUCHED
from tests.params.test_resolve import body

NAMED = {"lm": "/models/gemma"}


def loaded(**models: Any) -> Params:
    return resolve_params(file_of(to_yaml(body(models=models))))


def files(params: Params, key: str) -> dict[str, list[str]]:
    """Of each stage that has some of both, those of the two folders."""
    stages = document(features(params))["stages"]
    found = {name: entry.get("do", entry).get(key, []) for name, entry in stages.items()}
    public = (str(BASE_LM), str(UNTOUCHED))
    return {name: [path for path in map(str, paths) if path in public] for name, paths in found.items()}


def test_prompts_are_learned_by_the_embedded_model_alone() -> None:
    params = loaded()
    assert params.models.prompts is not None
    assert (params.models.prompts.epochs, params.models.prompts.learning_rate) == (2, 0.002)
    assert (params.taught["similar"].learning_rate, params.learns_prompts) == (0.002, True)
    named = loaded(**NAMED)
    assert (named.models.prompts, named.taught["similar"].learning_rate, named.learns_prompts) == (None, None, False)
    assert params.untouched == named.untouched == BASE_LM
    assert not any(str(UNTOUCHED) in paths for one in (params, named) for paths in files(one, "outs").values())


def test_a_named_model_that_is_asked_to_learn_is_kept_beside_its_copy() -> None:
    params = loaded(**NAMED, prompts={"epochs": 1})
    assert params.models.prompts is not None
    assert params.models.prompts.learning_rate is None  # by its size
    assert (params.learns_prompts, params.untouched) == (True, UNTOUCHED)
    assert files(params, "outs")["pretrain"] == [str(BASE_LM), str(UNTOUCHED)]
    reads = files(params, "deps")
    assert str(UNTOUCHED) in reads["pplm_generate"]
    assert reads["dp_train"] == [str(BASE_LM)]
    assert loaded(**NAMED, prompts={"epochs": 0}).untouched == BASE_LM


def test_words_land_where_the_base_is_prompted() -> None:
    words, params = words_of("reviews"), loaded(**NAMED, words="reviews")
    head = words.prompt(labelled=True)
    assert {model.train.prompt for model in params.lms.values()} == {head}
    prompts = {name: to_plain(params.variants[name])["predict"]["prompt"] for name in ("plain3", "predict3")}
    assert (prompts["plain3"]["private"], prompts["plain3"]["public"]) == (
        words.prompt_with_example(labelled=True),
        head,
    )
    assert prompts["plain3"]["ends"] == "line"
    assert prompts["predict3"]["public"] == BARE  # a taught model knows this form
    author = to_plain(params.authors["base"])
    assert (author["prompt"], author["paraphrase"]) == (head, words.paraphrase(labelled=True))
    assert {"lms.dp3.prompt", "authors.base.prompt"} <= {source.key for source in public_sources(params)}
    assert resolve_params(file_of(to_yaml(shorten(params)))) == params


def test_a_record_of_json_is_asked_for_by_its_form() -> None:
    kinds = {"title": {"type": "string"}, "kind": {"enum": ["film", 3]}, "cast": {"type": "array", "items": True}}
    shown = {"type": "integer", "examples": [1998, 2003]}
    kinds |= {"of": {"type": "object", "properties": {"year": shown, "seen": {"type": "boolean"}}}}
    content = body(models={**NAMED, "words": "json"}, discriminators={})
    task = {"task": "json", "text": "*", "json_schema": {"type": "object", "properties": kinds}}
    content["dataset"] = {key: content["dataset"][key] for key in ("asset", "private", "public", "n_public")} | task
    content["variants"] = {"plain3": {"method": "predict", "epsilon": 3}, "dp3": {"method": "dp_lm"}}
    params = resolve_params(file_of(to_yaml(content)))
    form = '{"title": "...", "kind": "film", "cast": ["..."], "of": {"year": 1998, "seen": true}}'
    prompt, head = to_plain(params.variants["plain3"])["predict"]["prompt"], f"JSON record:\n{form}\n\nJSON record:\n"
    assert params.lms["dp3"].train.prompt.format() == prompt["public"].format() == head
    assert prompt["private"].format(text="{}") == f"{head}{{}}\n\nJSON record:\n"
    content["models"]["words"] = {"text": "Row", "form": "{}"}
    assert resolve_params(file_of(to_yaml(content))).lms["dp3"].train.prompt.format() == "Row:\n{}\n\nRow:\n"


def test_a_judge_is_asked_in_the_same_words() -> None:
    content = body(models={**NAMED, "words": "reviews"}) | {"utility": {"in_context": {"draws": 2}}}
    asked = resolve_params(file_of(to_yaml(content))).utility.in_context
    assert asked is not None
    assert (asked.item, asked.answer, asked.draws) == ("Review: {text}\nSentiment:", " {label}\n\n", 2)
    content["utility"]["in_context"]["item"] = "{text} It was"
    own = resolve_params(file_of(to_yaml(content))).utility.in_context
    assert own is not None
    assert own.item == "{text} It was"
    assert loaded(**NAMED, words="reviews").utility.in_context is None


def test_the_base_writes_alone_behind_the_first_prompt_that_it_is_given_for_private_rows() -> None:
    content = body(models={**NAMED, "words": "reviews"})
    content["lms"]["dp3"]["prompt"] = "{description}: "
    found = [resolve_params(file_of(to_yaml(content))).public_lm]
    content |= {"lms": {}, "discriminators": {}, "public_lm": {"top_p": 0.5}}
    content["variants"] = {"plain3": {"method": "predict", "epsilon": 3}}
    found.append(resolve_params(file_of(to_yaml(content))).public_lm)
    content["variants"]["plain3"]["prompt"] = {"public": BARE}
    found.append(resolve_params(file_of(to_yaml(content))).public_lm)
    head = words_of("reviews").prompt(labelled=True)
    assert [one and (one.prompt, one.ends, one.top_p) for one in found] == [
        ("{description}: ", "line", 0.95), (head, "line", 0.5), (BARE, "eos", 0.5)
    ]  # fmt: skip


def test_a_named_model_writes_alone_unless_that_is_taken_out_and_the_embedded_one_where_it_is_asked() -> None:
    for models, given in product((NAMED, {}), ({}, {"public_lm": {}}, {"public_lm": None})):
        params = resolve_params(file_of(to_yaml(body(models=models) | given)))
        there = bool(models) if not given else given["public_lm"] is not None
        assert (params.public_lm is not None, params.writes_alone) == (there, there)
        assert resolve_params(file_of(to_yaml(shorten(params)))) == params
    chat = body(models=NAMED, lms={}, discriminators={})
    chat["variants"] = {"plain3": {"method": "predict", "epsilon": 3, "prompt": {"chat": True, "public": "Write."}}}
    assert not resolve_params(file_of(to_yaml(chat))).writes_alone  # an instruction is not gone on with


def test_what_is_written_out_stays_and_words_may_be_ones_own() -> None:
    content = body(models={"lm": "x", "words": {"text": "Recipe", "label": "Cuisine"}})
    content["variants"]["plain3"]["prompt"] = {"public": "Say {label}:"}
    content["lms"]["dp3"]["prompt"] = "{description}: "
    params = resolve_params(file_of(to_yaml(content)))
    prompt = to_plain(params.variants["plain3"])["predict"]["prompt"]
    assert (prompt["public"], prompt["private"].splitlines()[0]) == ("Say {label}:", "Cuisine: {description}")
    assert [params.lms[name].train.prompt for name in ("dp3", "free")] == [
        "{description}: ", "Cuisine: {description}\nRecipe:\n"
    ]  # fmt: skip
    assert resolve_params(file_of(to_yaml(shorten(params)))) == params


def test_without_words_the_form_is_the_one_that_public_text_teaches() -> None:
    params = loaded()
    prompt = to_plain(params.variants["plain3"])["predict"]["prompt"]
    assert {model.train.prompt for model in params.lms.values()} == {prompt["public"]} == {BARE}
    assert not any(source.key.startswith(("lms", "authors")) for source in public_sources(params))
    author = to_plain(params.authors["base"])
    assert (author["paraphrase"], author["blanks"], author["examples"], author["ends"]) == (None, None, 0, "eos")


def test_a_model_that_learns_one_form_of_prompt_is_not_prompted_in_another() -> None:
    for models in ({}, {**NAMED, "prompts": {"epochs": 1}}):
        with pytest.raises(ParamsError, match="another form"):
            loaded(**models, words="news")
    assert loaded(words="news", prompts=None).learns_prompts is False


@pytest.mark.parametrize("words", ["poems", 3, {"label": "x"}])
def test_words_that_there_are_not_are_refused(words: Any) -> None:
    with pytest.raises(ParamsError, match=r"models\.words"):
        loaded(**NAMED, words=words)
