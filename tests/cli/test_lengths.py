"""Limits follow the public texts and never the private ones, and what is cut is told before a run."""

import json
from pathlib import Path

import pytest

from palimpsest.models.settings import Words
from palimpsest.params.load import loads
from palimpsest.params.schema import Params
from palimpsest.work.begin import init_workspace, render_settings
from palimpsest.work.check import check_all, fit_to_public
from palimpsest.work.decisions import DataSource
from palimpsest.work.lengths import describe_cuts
from palimpsest.work.plan import tell_language
from tests.models.test_usable import save_slow_encoder

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


@pytest.mark.parametrize(("positions", "tokens"), [(100, 64), (256, 192), (300, 200), (1024, 200)])
def test_limits_leave_a_prompt_room_in_a_named_model(
    tmp_path: Path, positions: int, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"n_positions": positions}))
    params = settings(source(tmp_path, 150, 20, lm=str(tmp_path)))
    assert params.lms["dp3"].train.max_tokens == tokens
    assert ("has room for" in capsys.readouterr().out) == (tokens < 200)
    assert not any("positions" in line for line in describe_cuts(params, tmp_path))


@pytest.mark.parametrize("order", ["short first", "long first", "in turn"])
def test_limits_follow_the_whole_file_in_whatever_order_it_is(tmp_path: Path, order: str) -> None:
    given = source(tmp_path, 20, 20)
    sizes = [10] * 9_000 + [500] * 9_000
    sizes = {"short first": sizes, "long first": sizes[::-1], "in turn": [10, 500] * 9_000}[order]
    (tmp_path / "public.jsonl").write_text("".join(json.dumps({"body": "word " * size}) + "\n" for size in sizes))
    assert settings(given).dataset.max_length == 2500
    (said,) = [
        line for line in describe_cuts(loads(render_settings(given)["params.yaml"]), tmp_path) if "max_l" in line
    ]
    assert float(said.split("cuts ")[1].split("%")[0]) == pytest.approx(50, abs=1)


def test_init_names_what_cuts_public_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_LEDGER", f"sqlite:///{tmp_path}/ledger.db")
    given = source(tmp_path, 200, 20, max_length=2000, text_tokens=100)
    init_workspace(tmp_path / "workspace", given, force=False)
    assert "limits: lms.dp3.train.max_tokens is 100 tokens, about: it cuts 100%" in capsys.readouterr().out


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


@pytest.mark.parametrize(("public", "told"), [(20, False), (150, True)])
def test_a_plan_names_an_encoder_that_reads_beginnings_alone(tmp_path: Path, public: int, told: bool) -> None:
    save_slow_encoder(tmp_path / "slow", positions=64)
    params = settings(source(tmp_path, public, 20, wanted="select"))
    models = params.models.model_copy(update={"encoder": "slow"})
    said = [line for line in describe_cuts(params.model_copy(update={"models": models}), tmp_path) if "windows" in line]
    assert ["100% of the public texts are cut, after 64 tokens" in line for line in said] == [True] * told


@pytest.mark.parametrize(("positions", "told"), [(64, True), (65, False), (None, False)])
def test_a_plan_names_limits_that_leave_a_prompt_no_room(tmp_path: Path, positions: int | None, told: bool) -> None:
    params = settings(source(tmp_path, 20, 20))
    assert not any("positions" in line for line in describe_cuts(params, tmp_path))  # the embedded model grows
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "config.json").write_text(json.dumps({"n_positions": positions} if positions else {}))
    models = params.models.model_copy(update={"lm": "lm"})
    said = [line for line in describe_cuts(params.model_copy(update={"models": models}), tmp_path) if "has 64" in line]
    assert any(line.startswith("lms.dp3.train.max_tokens is 64 tokens") for line in said) is told
    assert not any(line.startswith("utility.") for line in said)


@pytest.mark.parametrize(
    ("author", "positions", "told"),
    [
        ({}, 191, "shows 2 texts of up to 64"), ({}, 192, None), ({"examples": 0}, 65, None),
        ({"examples": 0, "vary": "blanks", "shots": 1}, 255, "shows 3 texts"), ({"vary": "paraphrase"}, 192, None),
    ],
)  # fmt: skip
def test_a_plan_names_an_author_that_shows_more_than_its_model_reads(
    tmp_path: Path, author: dict[str, object], positions: int, told: str | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"n_positions": positions}))
    text = render_settings(source(tmp_path, 20, 20, wanted="evolve", lm=str(tmp_path)))["params.yaml"]
    author = {"base": {"kind": "base", **author}}
    params = loads(text.replace("variants:\n", f"authors: {json.dumps(author)}\nvariants:\n", 1))
    said = [line for line in describe_cuts(params, tmp_path) if line.startswith("authors.base shows")]
    assert len(said) == bool(told)
    assert all(str(told) in line for line in said)


@pytest.mark.parametrize(
    ("language", "words", "told"),
    [
        ("de", "reviews", True), ("en-GB", "reviews", False), ("de", None, False),
        ("de", Words(text="Rezension", label="Meinung"), False),
    ],
)  # fmt: skip
def test_a_plan_says_where_prompts_are_english_and_texts_are_not(
    language: str, words: str | Words | None, told: bool, tmp_path: Path
) -> None:
    params = settings(source(tmp_path, 20, 20))
    models, data = params.models.model_copy(update={"words": words}), params.dataset
    params = params.model_copy(update={"models": models, "dataset": data.model_copy(update={"language": language})})
    assert [("models.words is reviews" in line, " de:" in line) for line in tell_language(params)] == [
        (True,) * 2
    ] * told


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
