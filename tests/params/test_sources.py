"""Whatever params.yaml names as public is on the list of what is checked, loaded and stated."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.params.load import parse
from palimpsest.params.schema import Params
from palimpsest.params.sources import public_sources
from palimpsest.settings import descriptions
from tests.models.chat.asked import LENGTH, PROMPTS
from tests.settings_file import demo

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
    told = [(key, words.lower()) for key, words in leaves(Params) if any(word in words.lower() for word in WORDS)]
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
