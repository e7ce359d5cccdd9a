"""Limits follow the public texts and never the private ones, and what is cut is told before a run."""

import json
from pathlib import Path

import pytest

from palimpsest.params.load import loads
from palimpsest.params.schema import Params
from palimpsest.work.begin import render_settings
from palimpsest.work.check import check_all, describe_cuts, fit_to_public
from palimpsest.work.decisions import DataSource

WORD = "weather "


def source(folder: Path, public: int, private: int, **changes: object) -> DataSource:
    """Files with texts of so many words."""
    for name, words, label in (("own", private, {"team": "a"}), ("public", public, {})):
        rows = [json.dumps({"body": WORD * (words - number % 7), **label}) for number in range(40)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    values = {
        "data": folder / "own.jsonl", "text": "body", "public": folder / "public.jsonl", "n_public": 600,
        "asset": "notes", "label": "team", "labels": {"a": "A", "b": "B"}, "wanted": "dp_lm",
    }  # fmt: skip
    return DataSource(**(values | changes))  # type: ignore[arg-type]


def settings(given: DataSource) -> Params:
    return loads(render_settings(fit_to_public(given))["params.yaml"])


@pytest.mark.parametrize(("public", "length", "tokens"), [(20, 1000, 64), (150, 1200, 200), (5000, 40_000, 400)])
def test_limits_keep_nearly_all_public_texts_whole(tmp_path: Path, public: int, length: int, tokens: int) -> None:
    params = settings(source(tmp_path, public, private=3000))
    assert params.dataset.max_length == length
    assert params.lms["dp3"].train.max_tokens == params.variants["dp3"].generate.max_tokens == tokens
    assert params.models.embedded_lm.context >= tokens + 64
    assert params == settings(source(tmp_path, public, private=10))  # whatever the private file holds


def test_a_given_limit_stays(tmp_path: Path) -> None:
    params = settings(source(tmp_path, 5000, 20, max_length=2000))
    assert (params.dataset.max_length, params.lms["dp3"].train.max_tokens) == (2000, 340)
    assert settings(source(tmp_path, 5000, 20, text_tokens=100)).lms["dp3"].train.max_tokens == 100


def test_a_plan_names_what_cuts_public_texts(tmp_path: Path) -> None:
    given = source(tmp_path, 200, 20)
    short = loads(render_settings(given)["params.yaml"])
    told = list(describe_cuts(short, tmp_path))
    assert told[0] == (
        "dataset.max_length is 1000 characters: it cuts 100% of the public texts. Half have up to 1576, 95% up to 1600."
    )
    assert any(line.startswith("lms.dp3.train.max_tokens is 64 tokens, about: it cuts 100%") for line in told)
    assert not any("max_length" in line for line in describe_cuts(settings(given), tmp_path))


def test_no_public_file_is_no_error_of_the_plan(tmp_path: Path) -> None:
    params = settings(source(tmp_path, 20, 20))
    (tmp_path / "public.jsonl").unlink()
    assert list(describe_cuts(params, tmp_path)) == []


def test_cut_texts_are_one_line_and_a_count_in_the_private_zone(tmp_path: Path) -> None:
    given = source(tmp_path, 20, 300, max_length=100)
    params = loads(render_settings(given)["params.yaml"])
    found = check_all(given, params.schema_of_data, tmp_path)["DATA"][1]
    assert (found.cut, [fault.row for fault in found.faults]) == (40, [1])


@pytest.mark.parametrize(
    ("language", "wrong"), [("en", False), ("pt-BR", False), ("zh-Hans-CN", False), ("English", True), ("e", True)]
)
def test_a_language_is_a_tag(language: str, wrong: bool) -> None:
    from palimpsest.work.check import find_problems

    given = DataSource(Path("a"), "t", Path("b"), 100, "notes", language=language)
    assert any("--language" in problem for problem, _ in find_problems(given)) == wrong


def test_an_instructed_author_is_told_the_language_and_nobody_is_told_of_english() -> None:
    author = "authors:\n  chat: {kind: local, model: /m}\nvariants:\n"
    for language, told in (("ja", True), ("en-GB", False)):
        given = DataSource(Path("a"), "t", Path("b"), 100, "notes", language=language)
        text = render_settings(given)["params.yaml"].replace("variants:\n", author, 1)
        author_settings = loads(text).authors["chat"]
        assert ("BCP 47 tag ja" in str(author_settings.prompts.system)) == told
