from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from palimpsest.methods.evolve.authors import Base, Corpus
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.params.file import File, Runs
from palimpsest.params.reference import render, settings_by_method
from palimpsest.params.schema import Audit, Dataset, DiscriminatorSettings, LanguageModel, Models, Params, Utility


def described(page: str) -> set[str]:
    return {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The keys of a section and of all that it may hold."""
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        named = "<name>." if get_origin(field.annotation) in (dict, Mapping) else ""
        for inner in sections(field.annotation):
            yield from keys(inner, f"{prefix}{name}.{named}")


def sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections(part)


def test_every_setting_of_every_method_has_its_row() -> None:
    _, *parts = render().split("\n## Settings of variants of method ")
    pages = {part.split("`")[1]: part for part in parts}
    assert pages.keys() == settings_by_method().keys()
    for method, section in settings_by_method().items():
        assert described(pages[method]) == set(keys(section))


def test_every_key_that_a_file_can_hold_has_its_row() -> None:
    found = described(render().partition("\n## ")[0])
    assert {key.partition(".")[0] for key in found} == {*Params.model_fields, *File.model_fields} - {"run"}
    for name, kind in (("lms", LanguageModel), ("discriminators", DiscriminatorSettings)):
        settings = next(sections(kind.model_fields[kind.holds].annotation))
        own = {f"{name}.<name>.{key}" for key in ("purpose", "epsilon", *settings.model_fields)}
        assert {key for key in found if key.startswith(f"{name}.<name>.")} - {f"{name}.<name>.from"} == own
    for name, kind in (
        ("dataset", Dataset),
        ("models", Models),
        ("audit", Audit),
        ("utility", Utility),
        ("runs", Runs),
    ):
        assert {key for key in found if key.startswith(f"{name}.")} == set(keys(kind, f"{name}."))
    for kind in (Corpus, Base, LocalChatSettings, Endpoint):
        assert {f"authors.<name>.{key}" for key in keys(kind)} <= found


def test_every_key_is_described() -> None:
    empty = [line for line in render().splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert empty == []


def test_defaults_are_shown() -> None:
    page = render()
    assert "| `lms.<name>.learning_rate` | number | > 0, finite | `0.002` |" in page
    assert "| `lms.<name>.batch` | integer | ≥ 1 | about a twelfth of the units of privacy" in page
    assert "| `rows` | integer | ≥ 1 | `4000` | Synthetic rows over all labels. |" in page  # of select


def test_ranges_are_shown() -> None:
    page = render()
    assert "| `privacy.budget.delta` | number or null | > 0, < 1 | `null` |" in page
    assert "| `dataset.task` | one of `classify`, `span`, `text`, `json` |" in page
    assert "| `dataset.json_schema` | text → anything or null |" in page
