"""`palimpsest dataset`: files that `init` takes, a page for their owner, and nothing of the rows in what is printed."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_place import call
from click.testing import Result
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from palimpsest.models.settings import Named, Words, words_of
from palimpsest.params.load import loads
from palimpsest.work.check import check_source
from palimpsest.work.decisions import DataSource, params_text
from palimpsest_lab.commands import dataset
from palimpsest_lab.datasets.known import KNOWN
from tests.datasets.published import CASES, written


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "public.jsonl").write_text('{"text": "A public text."}\n{"text": "Dull ."}\n')
    return tmp_path


def made(home: Path, name: str, *more: object) -> Result:
    files = next(case[1] for case in CASES if case[0] == name)
    done = call("dataset", name, "--from", written(home / "from" / name, files), *more, ledger=home / "ledger.db")
    assert done.exit_code == 0, done.output
    return done


def next_line(done: Result) -> list[str]:
    return shlex.split(
        next(line for line in done.stdout.splitlines() if line.startswith("next: ")).removeprefix("next: ")
    )


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DataSource]]:
    """What `init` is told, instead of a workspace."""
    told: list[DataSource] = []
    monkeypatch.setattr("palimpsest.work.begin.init_workspace", lambda _, source, **__: told.append(source))
    return told  # type: ignore[return-value]


@pytest.mark.parametrize("name", KNOWN)
def test_the_printed_line_is_one_that_init_takes(home: Path, sources: list[DataSource], name: str) -> None:
    """Made files are small, so a test part may come out empty: nothing is refused for that here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_require_rows", lambda *_: None)
        line = next_line(made(home, name, "--public", home / "public.jsonl"))
    for file in ("private.jsonl", "test.jsonl"):  # which init looks into for the columns
        there = home / name / file
        there.write_text(there.read_text() or (home / name / "private.jsonl").read_text() or "")
    done = call(*line[1:], ledger=home / "ledger.db")
    assert done.exit_code == 0, done.output
    if all((home / name / file).stat().st_size for file in ("private.jsonl", "test.jsonl")):
        check_source(sources[0])
    assert loads(params_text(sources[0])).dataset.task == KNOWN[name].task


def test_the_words_of_each_are_some_that_models_take() -> None:
    found = [
        words for each in KNOWN.values() for words in (each.words, *(one.words for one in each.attributes)) if words
    ]
    for words in found:
        words_of(TypeAdapter(Words | Named).validate_python(YAML(typ="safe", pure=True).load(words)))


def test_the_files_the_labels_and_the_page(home: Path) -> None:
    made(home, "sst2", "--public", home / "public.jsonl")
    out = home / "sst2"
    assert [row["label"] for row in read(out / "private.jsonl")] == ["positive", "positive"]
    assert read(out / "test.jsonl") == [{"text": "Dull .", "label": "negative"}]
    assert read(out / "public.jsonl")[0] == {"text": "A public text."}
    assert "negative: " in (out / "labels.yaml").read_text()
    page = (out / "README.md").read_text()
    for said in ("Private records: 2,", "as they are: 0 (0.00%)", "Licence", "palimpsest init", "| positive | 2 | 0 |"):
        assert said in page
    assert {path.stat().st_mode & 0o077 for path in (out, *out.iterdir())} == {0}


def test_sentences_stand_for_public_texts(home: Path) -> None:
    (home / "long.jsonl").write_text(json.dumps({"text": "The first of its sentences. The second of them."}) + "\n")
    made(home, "sst2", "--public", home / "long.jsonl", "--sentences", 1)
    assert read(home / "sst2" / "public.jsonl") == [{"text": "The first of its sentences."}]


@pytest.mark.parametrize(
    ("options", "said"), [(("--sentences", 5), "without --public"), (("--sentences", 0), "--sentences is 0")]
)
def test_sentences_need_a_text_and_a_number(home: Path, options: tuple[str, int], said: str) -> None:
    done = call("dataset", "sst2", "--from", home, *options, ledger=home / "ledger.db")
    assert done.exit_code == 1
    assert said in done.stderr


def test_what_is_printed_is_the_same_whatever_the_rows_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other rows, another number of them, some that recur in the public text: that is said on the owner's terminal."""
    printed: list[str] = []
    told: list[str] = []
    for number, text in ((5000, "a private text"), (40, "Dull .")):
        rows = "".join(json.dumps({"text": f"{text}{n or ''}", "label": "human"}) + "\n" for n in range(number))
        files = {"trec_train.jsonl": rows, "trec_test.jsonl": rows}
        for terminal, kept in ((False, printed), (True, told)):
            monkeypatch.setattr("palimpsest.work.console.owners_terminal", lambda terminal=terminal: terminal)
            options = ("--from", written(home / "from", files), "--public", home / "public.jsonl", "--force")
            done = call("dataset", "trec", *options, ledger=home / "ledger.db")
            assert done.exit_code == 0, done.output
            kept.append(done.output)
    assert printed[0] == printed[1] == told[0]
    assert [line.split(";")[0] for line in told[1].splitlines() if line.startswith("note: ")] == [
        "note: private records recur in the public text",
        "note: these are far more or fewer records than published",
    ]


def test_a_cut_is_said_and_lowers_the_number_of_records(home: Path) -> None:
    files = {f"sst2_{part}.jsonl": "".join(f'{{"text": "{part} {n}", "label": "negative"}}\n' for n in range(50))
             for part in ("train", "dev", "test")}  # fmt: skip
    done = call("dataset", "sst2", "--from", written(home / "from", files), "--cut", 0.2, ledger=home / "ledger.db")
    assert "--seed 0" in done.stdout
    assert next_line(done)[next_line(done).index("--rows-about") + 1] == "7690"  # 9,613 less a fifth
    assert sum(len(read(home / "sst2" / name)) for name in ("private.jsonl", "test.jsonl")) == 150
    assert "Bring public text first" in (home / "sst2" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mnist",), "Name one of sst2"),
        (("sst2", "--from", "nowhere"), "no folder"),
        (("sst2",), "nlp.stanford.edu"),
        (("sst2", "--cut", 1.5), "above 0 and below 1"),
        (("sst2", "--public", "nothing.jsonl"), "no such file"),
    ],
)
def test_a_wrong_line_says_what_to_do(home: Path, arguments: tuple[object, ...], said: str) -> None:
    done = call("dataset", *arguments, ledger=home / "ledger.db")
    assert done.exit_code == 1
    assert said in done.output


def test_files_of_an_earlier_time_and_an_unknown_label_are_refused(home: Path) -> None:
    made(home, "yelp", "--label", "stars")
    assert "1.0" in (home / "yelp" / "labels.yaml").read_text()
    again = call("dataset", "yelp", "--from", home / "from" / "yelp", ledger=home / "ledger.db")
    assert "--force" in again.output
    other = call(
        "dataset", "yelp", "--from", home / "from" / "yelp", "--label", "mood", "--force", ledger=home / "ledger.db"
    )
    assert "category, stars" in other.output


def test_both_labels_of_a_review_are_learned_together(home: Path, sources: list[DataSource]) -> None:
    done = made(home, "yelp", "--public", home / "public.jsonl", "--label", "category,stars")
    call(*next_line(done)[1:], "--no-check", ledger=home / "ledger.db")
    told = loads(params_text(sources[0])).dataset
    assert told.label == "category; stars"
    assert len(told.labels) == 10 * 5
    assert told.labels["Restaurants; 5.0"] == "the category Restaurants; 5 of 5 stars"
    assert all(f"{row['category']}; {row['stars']}" in told.labels for row in read(home / "yelp" / "private.jsonl"))


def test_a_form_that_nobody_could_verify_says_so_and_no_other_does(home: Path) -> None:
    said = "was not held against the files themselves"
    assert said in made(home, "openreview").stdout
    assert said in (home / "openreview" / "README.md").read_text()
    assert said not in made(home, "yelp").stdout


def test_without_a_name_all_are_listed(home: Path) -> None:
    listed = call("dataset", ledger=home / "ledger.db").stdout
    assert all(name in listed for name in KNOWN)
