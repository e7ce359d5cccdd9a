"""Mistakes that newcomers make with a file of their own, and what the command says of each.

`PYTHONPATH=. python tests/cli/mistakes.py` writes what is said to mistakes.txt; `test_mistakes.py` holds it.
"""

import contextlib
import gzip
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from cli_place import call
from dp_accounting import GaussianDpEvent

from palimpsest.cli.main import app
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.ledger.witness import VARIABLE
from palimpsest.privacy.planned import PlannedQuery

SAID = Path(__file__).with_suffix(".txt")  # mistake | what is said | what to do | exit status
FILES = {
    "own.csv": "".join(["body,team\n", *(f"ticket number {i},{'ab'[i % 2]}\n" for i in range(30))]),
    "public.csv": "body\n" + "".join(f"public text {i}\n" for i in range(9)),
}
OPTIONS = {
    "text": "body", "label": "team", "labels": "a,b", "public": "public.csv", "rows-about": 30, "asset": "notes",
}  # fmt: skip
ROWS = FILES["own.csv"]

Content = str | bytes
Edit = Callable[[], object]


@dataclass(frozen=True)
class Mistake:
    """One mistake."""

    name: str  # what was done, in a few words
    files: Mapping[str, Content] = field(default_factory=dict)  # name -> other content than in `FILES`
    options: Mapping[str, object] = field(default_factory=dict)  # other values than in `OPTIONS`; None leaves one out
    data: str = "own.csv"  # the private file's name
    edit: Edit = lambda: None  # what is done to the files in the current folder
    command: tuple[str, ...] = ()  # what is run once `init` has made the workspace `work`; none is `init` itself
    after: Edit = lambda: None  # what is done to the files before that
    ends: int = 1  # exit status


def _xlsx(name: str) -> Edit:
    return lambda: Path(name).write_bytes(b"PK\x03\x04" + bytes(60))


def _database(name: str) -> Edit:
    return lambda: sqlite3.connect(name).close()


def _parquet_named(name: str) -> Edit:
    return lambda: pq.write_table(pa.table({"body": ["t"], "team": ["a"]}), name)


def _changed(old: str, new: str) -> Edit:
    path = Path("work/params.yaml")
    return lambda: path.write_text(path.read_text().replace(old, new))


def _charge() -> None:
    run, asked = Run("fit", "a", "release", "rows", "plan"), PlannedQuery("votes", GaussianDpEvent(20.0))
    Ledger.open(f"sqlite:///{Path('ledger.db').resolve()}").reserve("notes", run, [asked])


_PLAN = ("plan", "-w", "work")
MISTAKES = (
    Mistake("no option at all, in a script", options=dict.fromkeys(OPTIONS), data=""),
    Mistake("an option that is needed left out", options={"rows-about": None}),
    Mistake("a wrong path", data="owm.csv"),
    Mistake("a folder instead of a file", edit=lambda: Path("folder").mkdir(), data="folder"),
    Mistake("a wrong column", options={"text": "text"}),
    Mistake("a column with another case", options={"label": "Team"}),
    Mistake("a file without a header", {"own.csv": ROWS.removeprefix("body,team\n")}),
    Mistake("semicolons between the columns", {"own.csv": ROWS.replace(",", ";")}),
    Mistake("tabs between the columns", {"own.csv": ROWS.replace(",", "\t")}),
    Mistake('UTF-16, as Excel\'s "Unicode text"', {"own.csv": ROWS.encode("utf-16")}),
    Mistake("a byte order mark, as Excel's UTF-8", {"own.csv": ROWS.encode("utf-8-sig")}, ends=0),
    Mistake("Latin-1", {"own.csv": ROWS.replace("ticket", "café").encode("latin-1")}),
    Mistake("an Excel file renamed to .csv", edit=_xlsx("own.csv")),
    Mistake("a damaged Excel file", edit=_xlsx("own.xlsx"), data="own.xlsx"),
    Mistake("an old Excel file", edit=_xlsx("own.xls"), data="own.xls"),
    Mistake("a Parquet file renamed to .csv", edit=_parquet_named("own.csv")),
    Mistake("a gzipped file renamed to .csv", {"own.csv": gzip.compress(ROWS.encode(), mtime=0)}),
    Mistake("a JSON array instead of lines", {"own.jsonl": '[\n{"body": "t", "team": "a"}\n]\n'}, data="own.jsonl"),
    Mistake("lines of JSON named .json", {"own.json": '{"body": "t", "team": "a"}\n' * 30}, data="own.json"),
    Mistake("a JSON list without an end", {"own.json": '[{"body": "t", "team": "a"}, {"body": "u"'}, data="own.json"),
    Mistake("a line that is no JSON", {"own.jsonl": '{"body": "t", "team": "a"}\n{oops\n'}, data="own.jsonl"),
    Mistake("NaN in a JSON file", {"own.jsonl": '{"body": NaN, "team": "a"}\n'}, data="own.jsonl"),
    Mistake("a number in a JSON file for a text", {"own.jsonl": '{"body": 7.5, "team": "a"}\n'}, data="own.jsonl"),
    Mistake(
        "turns of a chat for a text",
        {"own.jsonl": '{"body": [{"role": "user", "content": "t"}], "team": "a"}\n'},
        data="own.jsonl",
    ),
    Mistake("several labels in a list", {"own.jsonl": '{"body": "t", "team": ["a", "b"]}\n'}, data="own.jsonl"),
    Mistake("no label in a JSON file", {"own.jsonl": '{"body": "t", "team": null}\n'}, data="own.jsonl"),
    Mistake("semicolons and decimal commas", {"own.csv": "body;hours;team\n" + "some text;1,5;a\n" * 30}),
    Mistake("semicolons between the columns of the public file", {"public.csv": "body;hours\n" + "text;1,5\n" * 9}),
    Mistake("Excel's line about separators", {"own.csv": "sep=,\n" + ROWS}),
    Mistake("an address of a database", data="postgresql://me@host/notes"),
    Mistake("a database that does not answer", data="postgresql://me:secret@127.0.0.1:1/notes#tickets"),
    Mistake("a database that there is not", data="sqlite:///notes.db#tickets"),
    Mistake("a table that there is not", edit=_database("notes.db"), data="sqlite:///notes.db#tickets"),
    Mistake("a kind of address that there is not", data="postgre://me:secret@host/notes#tickets"),
    Mistake("an address in a cloud, whose package is missing", options={"public": "gs://bucket/public.csv"}),
    Mistake("an address of the web that does not answer", data="https://me:secret@127.0.0.1:1/own.csv?key=secret"),
    Mistake("an address without a format", data="https://host/export?format=csv"),
    Mistake(
        "lines of JSON named .ndjson", {"own.ndjson": '{"body": "t u", "team": "a"}\n' * 30}, data="own.ndjson", ends=0
    ),
    Mistake("private texts without a word", {"own.csv": "body,team\n" + "!!,a\n??,b\n" * 15}, ends=0),
    Mistake("public texts without a word", {"public.csv": "body\n!!\n??\n"}),
    Mistake("an empty file", {"own.csv": ""}),
    Mistake("a header and no rows", {"own.csv": "body,team\n"}),
    Mistake("two columns of one name", {"own.csv": "body,team,body\nt,a,u\n"}),
    Mistake("an unquoted comma in a text", {"own.csv": ROWS + "one, two,a\n"}),
    Mistake("a quote that is never closed", {"own.csv": ROWS + '"open,a\nnext,b\n'}),
    Mistake("a field longer than any text", {"own.csv": ROWS + "x" * 2000 + ",a\n"}),
    Mistake("a label in the data that is not listed", {"own.csv": ROWS + "one,c\n"}),
    Mistake("labels with spaces around them in the data", {"own.csv": ROWS.replace(",a", ", a")}),
    Mistake("a label with a comma in it", {"own.csv": ROWS + 'one,"c, d"\n'}, {"labels": "a,b,c, d"}),
    Mistake(
        "a label column with a comma in its name",
        {"own.csv": ROWS.replace("team", '"team, now"', 1)},
        {"label": "team, now"},
        ends=0,
    ),
    Mistake("accents written in two ways", {"own.csv": ROWS.replace(",a", ",cafe\u0301")}, {"labels": "caf\u00e9,b"}),
    Mistake("a label of three records", {"own.csv": ROWS.replace("b\n", "a\n", 12)}, ends=0),
    Mistake("spaces around listed labels", options={"labels": " a , b "}, ends=0),
    Mistake("a label listed twice", options={"labels": "a,b,a"}),
    Mistake("one label alone", options={"labels": "a"}),
    Mistake("labels with semicolons between them", options={"labels": "a;b"}),
    Mistake("a label column without its labels", options={"labels": None}),
    Mistake("empty texts", {"own.csv": ROWS + ",a\n"}, ends=0),
    Mistake("bad records, left out by choice", {"own.csv": ROWS + "one,c\n,a\n"}, {"bad-rows": "drop"}, ends=0),
    Mistake("the public file is the private one", options={"public": "own.csv"}),
    Mistake("the public file is a copy of the private one", {"public.csv": ROWS}),
    Mistake("the test file is the private one", options={"test": "own.csv"}),
    Mistake("no private records", options={"rows-about": 0}),
    Mistake("ten times as many records as declared", options={"rows-about": 300}, ends=0),
    Mistake("epsilon 0", options={"epsilon": 0}),
    Mistake("epsilon 1000", options={"epsilon": 1000}),
    Mistake("filter unknown", options={"filter": "zcdp"}),
    Mistake("epsilon in words", options={"epsilon": "three"}, ends=2),
    Mistake("a budget below epsilon", options={"budget": 1}),
    Mistake("a budget that the total passes", options={"budget": 3.01, "method": "select"}),
    Mistake("a delta above 1 / n", options={"delta": 0.5}),
    Mistake("the text for the person", options={"unit": "body", "persons": 30}),
    Mistake("a person column without a number of persons", options={"unit": "team"}),
    Mistake("a method that there is not", options={"method": "gpt"}),
    Mistake("a method for another task", options={"method": "select", "label": None, "labels": None}),
    Mistake("a name with capitals and spaces", options={"asset": "My Notes"}),
    Mistake("the same folder twice", command=("init",)),
    Mistake("a command outside a workspace", command=("plan",)),
    Mistake("a release that names no variant", command=("run", "release", "-w", "work")),
    Mistake("a private file that has moved", command=("run", "-w", "work"), after=Path("own.csv").unlink),
    Mistake("a wrong value in params.yaml", command=_PLAN, after=_changed("epsilon: 3.0", "epsilon: three")),
    Mistake("a key of params.yaml misspelt", command=_PLAN, after=_changed("n_public:", "n_publik:")),
    Mistake(
        "another size for a data set that was charged",
        command=("init", "--rows-about", "25", "--force"),
        after=_charge,
    ),
    Mistake("the same in params.yaml", command=_PLAN, after=_changed("n_public: 30", "n_public: 25")),
)


def say(mistake: Mistake) -> tuple[str, str, int]:
    """What is said, what to do, and the exit status of a mistake that is made in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _a_terminal():
        for name, content in {**FILES, **mistake.files}.items():
            Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        mistake.edit()
        made = _init(mistake)
        ledger = Path(folder, "ledger.db").resolve()
        done = call(*made, ledger=ledger)
        if mistake.command:
            assert done.exit_code == 0, done.output
            mistake.after()
            again = (
                [*_init(mistake, mistake.command), *mistake.command[1:]]
                if mistake.command[0] == "init"
                else mistake.command
            )
            done = call(*again, ledger=ledger)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return *_parts(done.stderr.replace(folder, "..."), done.exit_code), done.exit_code


def _init(mistake: Mistake, other: Sequence[str] = ()) -> list[object]:
    """The line that makes the workspace, without options that `other` gives otherwise."""
    given = {f"--{name}": value for name, value in {**OPTIONS, **mistake.options}.items() if value is not None}
    options = [str(part) for name, value in given.items() if name not in other for part in (name, value)]
    return ["init", *[mistake.data] * bool(mistake.data), *options, "--workspace", "work"]


@contextlib.contextmanager
def _a_terminal() -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        for name in ("console", "check"):
            patches.enter_context(patch(f"palimpsest.work.{name}.owners_terminal", lambda: True))
        patches.enter_context(patch.object(app, "rich_markup_mode", "rich"))
        patches.enter_context(patch.dict(os.environ, {VARIABLE: str(Path("witnesses").resolve())}))
        patches.enter_context(patch("palimpsest.records.formats.FIELD_LIMIT", 1000))
        yield


def _parts(shown: str, code: int) -> tuple[str, str]:
    """An error's two parts; of what is no error of ours its words, without a frame."""
    problem, _, remedy = shown.removeprefix("error: ").partition("\n  what to do: ")
    words = [" ".join(re.sub(r"[\u2500-\u257f]", " ", part).split()) for part in (problem, remedy)]
    return words[0] or "(nothing)", words[1]


def row(mistake: Mistake) -> str:
    """Its line of `SAID`."""
    problem, remedy, code = say(mistake)
    return f"| {mistake.name} | {problem} | {remedy} | {code} |".replace("\\", "\\\\")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    SAID.write_text("".join(f"{row(each)}\n" for each in MISTAKES), encoding="utf-8")
