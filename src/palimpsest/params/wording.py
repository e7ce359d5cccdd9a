"""Prompts in words, which `models.words` fills in for a variant, a model or an author with no prompt of its own.

The words are written into the settings that they stand for. So a stage's dependencies and a run's key hold the prompts
themselves, and a change of words reruns only what is prompted by them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from palimpsest.methods.registry import method
from palimpsest.models.words import BARE, Words, words_of
from palimpsest.params.extension import brought

_EXAMPLES = 2  # public texts that an author is shown


def put_into_words(body: dict[str, Any], labelled: bool, form: str | None = None) -> None:
    """Fill in the prompts of models, base authors, variants that read the base model as it is, and what packages bring.

    `form` is the form of records of JSON, if there are such records.
    """
    words = _chosen(body.get("models", {}).get("words"))
    if words is None:
        return
    words = words.model_copy(update={"form": words.form or form})
    for entry in body["lms"].values():
        _fill(entry.get("train"), {"prompt": words.prompt(labelled)})
    for entry in body["authors"].values():
        _fill(entry if entry.get("kind") == "base" else None, _authors(words, labelled))
    for section, key, prompt in ((*at, said) for keys in brought() for at, said in keys.words(words).items()):
        _fill(body.get(section, {}).get(key), prompt)
    for name in body["run"]["steer"]:
        _fill(body["variants"][name].get("steer"), {"prompt": words.prompt(labelled), "ends": "line"})
    for name in body["run"]["phrases"]:
        asked = {"about": words.about(labelled), "plain": words.prompt(labelled), "ends": "line"}
        _fill(body["variants"][name]["phrases"].setdefault("prompt", {}), asked)
    for name, source in body["run"]["private_predict"].items():
        row = body["variants"][name]
        settings = row.get(row["method"])
        if source == "base" and isinstance(settings, dict):
            _fill(settings.setdefault("prompt", {}), method(row["method"]).worded(words, labelled))


def prompt_alone(body: dict[str, Any]) -> None:
    """Fill in the prompt of `public_lm`: the first one given to the base model where private rows are read."""
    for prompt in _asked(body):
        _fill(body["public_lm"], {"prompt": prompt, "ends": "eos" if prompt == BARE else "line"})


def _asked(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the prompts without a private text that models and variants give to the base as it is."""
    run, variants = body["run"], body["variants"]
    yield from (body["lms"][name]["train"].get("prompt", BARE) for name in run["dp_train"])
    yield from (variants[name]["steer"].get("prompt", BARE) for name in run["steer"])
    for said in (variants[name]["phrases"].get("prompt", {}) for name in run["phrases"]):
        yield said.get("plain", BARE) if isinstance(said, Mapping) else BARE
    for row in (variants[name] for name, source in run["private_predict"].items() if source == "base"):
        said = row[row["method"]].get("prompt")
        if isinstance(said, Mapping) and not said.get("chat"):
            yield said.get("public") or said.get("head") or BARE


def _chosen(said: Any) -> Words | None:
    """Return the words; None where there are none, or where the schema will report what is wrong with them."""
    try:
        return None if said is None else Words(**said) if isinstance(said, Mapping) else words_of(said)
    except (KeyError, TypeError, ValidationError):
        return None


def _authors(words: Words, labelled: bool) -> dict[str, Any]:
    return {
        "start": "prompt",
        "prompt": words.prompt(labelled),
        "paraphrase": words.paraphrase(labelled),
        "blanks": words.blanks(labelled),
        "examples": _EXAMPLES,
        "ends": "line",
    }


def _fill(section: Any, defaults: Mapping[str, Any]) -> None:
    """Fill in what is missing; a prompt for a chat model stays as it is written."""
    if isinstance(section, dict) and not section.get("chat"):
        for key, value in defaults.items():
            section.setdefault(key, value)
