"""Whatever params.yaml names as public is on the list of what is checked, loaded and stated."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.params.load import loads, parse
from palimpsest.params.reference import settings_by_method
from palimpsest.params.schema import Params
from palimpsest.params.sources import describe_public_rows, public_sources
from palimpsest.settings import descriptions
from tests.models.chat.asked import LENGTH, PROMPTS
from tests.settings_file import FULL, demo

WORDS = (
    "folder",
    "file",
    "hub",
    "model's name",
    "path",
)  # what the description of a key says whose value may be a path
NOT_PUBLIC = {
    "dataset.private": "private", "dataset.test": "private", "dataset.text": "a column", "privacy.ledger": "a database",
    "stores.private": "a remote",
}  # fmt: skip
TALKS = {"prompts": PROMPTS, "length": LENGTH, "temperature": 1.0, "top_p": 1.0, "tries": 1}


def body(**models: Any) -> dict[str, Any]:
    """The demo's, with authors that talk, one of them in use."""
    found = demo()
    local = {"kind": "local", "model": "someone/chat@1", "batch": 1, **TALKS}
    cloud = {
        "kind": "endpoint", "url": "http://x/v1", "model": "writer", "key": None, "concurrency": 1, "timeout": 1,
        "requests_a_minute": None, "retries": 0, "most_tokens": None, "price": {"read": 0, "written": 0, "most": None},
        **TALKS,
    }  # fmt: skip
    found["authors"] |= {"here": local, "cloud": cloud}
    found["run"]["private_evolve"] = {"evolve3": "here"}
    judge = {"kind": "endpoint", "url": "http://x/v1", "model": "judge", "may_read_private_rows": True}
    named = {"lm": "/models/lm", "classifier": "someone/classifier", "judge": judge, "next_token": "someone/small"}
    found["models"] |= {**named, **models}
    return dict(found)


def test_every_source_is_named_once_with_its_key():
    found = {source.key: (source.kind, source.used) for source in public_sources(parse(body()))}
    assert found == {
        "dataset.public": ("text", True),
        "dataset.public_test": ("text", True),
        "models.lm": ("model", True),
        "models.encoder": ("model", True),
        "models.classifier": ("model", False),
        "models.judge.model": ("endpoint", False),
        "models.next_token": ("model", False),
        "authors.here.model": ("model", True),
        "authors.here.prompts": ("prompts", True),
        "authors.cloud.model": ("endpoint", False),
        "authors.cloud.prompts": ("prompts", False),
        "dataset.labels": ("prompts", True),
        "variants.predict3.prompt": ("prompts", True),
    }


@pytest.mark.parametrize(
    ("key", "value"), [("lm", "embedded"), ("classifier", None), ("judge", None), ("next_token", "embedded")]
)
def test_what_is_made_of_public_text_or_not_named_is_no_source(key: str, value: str | None):
    assert f"models.{key}" not in {source.key for source in public_sources(parse(body(**{key: value})))}


def said_of_rows(**sections: Any) -> dict[str, str]:
    """Variant of the demo -> what is said of its rows, with further entries of sections of its params.yaml."""
    content = YAML(typ="safe", pure=True).load(FULL.read_text(encoding="utf-8"))
    for name, entries in sections.items():
        content.setdefault(name, {}).update(entries)
    params = loads(json.dumps(content).replace("Infinity", ".inf"))
    said = {name: describe_public_rows(params, [name]).partition(" texts of the public")[0] for name in params.variants}
    return {name: words.removeprefix(f"Rows of {name} ") for name, words in said.items() if words}


def test_rows_that_are_public_texts_word_for_word_are_known():
    usual = {"select3": "are", "embed3": "can be"}
    corpus, base = {"kind": "corpus", "neighbours": 9}, {"kind": "base", "max_tokens": 48}
    assert said_of_rows() == said_of_rows(authors={"base": base | {"start": "corpus"}}) == usual
    assert said_of_rows(authors={"base": base | {"start": "whole"}}) == usual | {"evolve3": "can be"}
    assert said_of_rows(authors={"base": corpus}) == usual | {"evolve3": "are"}
    voted = {"method": "vote_select", "epsilon": 6.0}
    chosen = {"method": "choose", "epsilon": 9.0, "from": ["predict3", "embed3"]}
    further = {"voted": voted | {"from": "select3"}, "own": voted | {"from": "evolve3"}, "chosen": chosen}
    assert said_of_rows(variants=further) == usual | {"voted": "are", "chosen": "can be"}
    first = {"embed3": {"method": "embed", "epsilon": 3.0, "from": "small", "zero_shot": "fresh"}}
    for beside, said in ((False, {"select3": "are"}), (True, usual)):
        fresh = {"fresh": {"from": "base", "beside": beside}}
        assert said_of_rows(variants=first, zero_shot=fresh) == said


def test_rows_that_are_public_texts_are_told_together_with_their_licence():
    content = demo()
    content["dataset"]["public_license"] = "CC0-1.0"
    told = describe_public_rows(parse(content), ("dp3", "select3", "embed3"))
    assert told.startswith("Rows of select3 are texts of the public file word for word. Rows of embed3 can be texts")
    assert told.endswith("Licence of that file: CC0-1.0.")
    assert describe_public_rows(parse(content), ("dp3", "evolve3")) == ""


def leaves(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Key and description of each text that params.yaml may hold."""
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        for one in inner:
            yield from leaves(one, f"{above}{name}.")
        if not inner and str in _types(field.annotation):
            yield f"{above}{name}", descriptions(model)[name]


def _types(annotation: Any) -> set[Any]:
    return {annotation}.union(*map(_types, getattr(annotation, "__args__", ())))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    return (one for one in _types(annotation) if isinstance(one, type) and issubclass(one, BaseModel))


def test_no_key_that_may_name_a_file_or_a_model_is_missing():
    methods = (leaf for name, own in settings_by_method().items() for leaf in leaves(own, f"variants.{name}."))
    found = ((key, words.lower()) for key, words in (*leaves(Params), *methods))
    told = [(key, words) for key, words in found if any(word in words for word in WORDS)]
    params = parse(body())
    known = {
        source.key.replace("authors.here", "authors").replace("authors.cloud", "authors")
        for source in public_sources(params)
    }
    assert {key for key, _ in told} >= {
        "models.lm",
        "models.encoder",
        "authors.model",
        "dataset.public",
        "dataset.private",
    }
    assert [key for key, _ in told if key not in known | NOT_PUBLIC.keys()] == []
    assert {type(author) for author in params.authors.values()} >= {LocalChatSettings, Endpoint}
