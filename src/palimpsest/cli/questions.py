"""The questions of `palimpsest init` on a terminal, one at a time, for what was not given as an option."""

import re
import shlex
import sys
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from palimpsest.errors import ParamsError
from palimpsest.params.sections import NAME

_NEEDED = ("data", "text", "public", "n_public")  # these cannot be known in any other way
Given = Mapping[str, Any]


def _always(_: Given) -> bool:
    return True


def _nothing(_: Given) -> None:
    return None


def _labelled(given: Given) -> bool:
    return given["label"] is not None and given["labels_file"] is None


def _of_persons(given: Given) -> bool:
    return given["unit"] is not None


def _file(answer: str) -> Path:
    path = Path(answer).expanduser()
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def _name(answer: str) -> str:
    if not re.fullmatch(NAME, answer):
        raise ValueError("a name is lower-case letters, digits and _, a letter first")
    return answer


def _of_file(given: Given) -> str:
    """Return a name for a data set: its file's without accents; a checksum stands for letters that are not Latin."""
    stem = unicodedata.normalize("NFKD", given["data"].name.partition(".")[0].lower())
    name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"[\u0300-\u036f]", "", stem)).strip("_")
    if any(letter.isalpha() and not letter.isascii() for letter in stem):
        name = f"{name or 'data'}_{zlib.crc32(stem.encode('utf-8', 'replace')):08x}"
    return name if re.fullmatch(NAME, name) else f"data_{name}".strip("_")


def _whole(answer: str) -> int:
    if not answer.isdecimal():
        raise ValueError("that is no whole number")
    return int(answer)


def _number(answer: str) -> float:
    try:
        return float(answer)
    except ValueError:
        raise ValueError("that is no number") from None


@dataclass(frozen=True)
class _Question:
    """One thing to ask.

    Attributes:
        name: the option's, as `init` has it.
        words: the question, in a line.
        kind: how an answer is read.
        needed: whether an empty answer is asked again.
        asked: whether it is asked, given what is known so far.
        again: the words for an empty answer where one is needed.
        offered: the meaning of an empty answer where there is no default.
    """

    name: str
    words: str
    kind: Callable[[str], Any] = str
    needed: bool = True
    asked: Callable[[Given], bool] = _always
    again: str = "This is needed."
    offered: Callable[[Given], Any] = _nothing


_QUESTIONS = (
    _Question("data", "The private file: CSV, TSV, JSONL or Parquet.", _file),
    _Question("public", "Public text of the same kind, in a file of its own, with the same text column.", _file),
    _Question("text", "The column that holds the text."),
    _Question("label", "The column that holds the label; leave it empty for text without labels.", needed=False),
    _Question(
        "labels",
        "All labels, separated by commas; name=description describes one. They are public and come from you.",
        asked=_labelled,
        again="Labels are never taken from the data: a rare one would tell that somebody has it. Name them all.",
    ),
    _Question(
        "n_public",
        "About how many private records there are. It is public: noise follows from it. A round number is best.",
        _whole,
    ),
    _Question("unit", "The column that names the person, where one has several rows; else empty.", needed=False),
    _Question(
        "persons",
        "About how many persons that column names. It is public: noise and delta follow from it.",
        _whole,
        asked=_of_persons,
    ),
    _Question(
        "max_rows",
        "How many rows are kept of a person. It is public: the rest are left out.",
        _whole,
        needed=False,
        asked=_of_persons,
    ),
    _Question(
        "asset",
        "A name for the data set in the ledger: lower-case letters, digits and _. It is public.",
        _name,
        needed=False,
        offered=_of_file,
    ),
    _Question(
        "epsilon",
        "How much the first variant may tell of one record, or person: 1 is strict, 8 is loose. It is public.",
        _number,
        False,
    ),
    _Question("budget", "The cap on epsilon over all that is ever made of these data. It is public.", _number, False),
)


def complete(given: Given, chosen: Mapping[str, bool], command: str) -> dict[str, Any]:
    """Return the options after asking for what was missing; if nothing is missing, nothing is asked.

    Args:
        given: name -> value, None where there is none.
        chosen: name -> whether the user gave the option, of those that have a default.
        command: the command that they are for.

    Raises:
        ParamsError: something is missing, and there is no terminal to ask on.
    """
    missing = [name for name in _NEEDED if given[name] is None]
    if not missing:
        return {**given, "asset": _of_file(given) if given["asset"] is None else given["asset"]}
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        option = "DATA" if missing[0] == "data" else f"--{missing[0].replace('_', '-')}"
        remedy = (
            f"`palimpsest {command} --help` has an example; on a terminal, `palimpsest {command}` asks for each thing."
        )
        raise ParamsError(f"{option} is missing.", remedy)
    answers = dict(given)
    for question in _QUESTIONS:
        if _open(question, answers, chosen):
            answers[question.name] = _answer(question, answers[question.name] or question.offered(answers))
    typer.echo(f"\nthe same without questions, beside what else you gave: palimpsest {command} {_line(answers)}\n")
    return answers


def _line(answers: Given) -> str:
    """Return the options of the command line that give these answers."""
    named = {question.name: answers[question.name] for question in _QUESTIONS if question.name != "data"}
    told = {name: value for name, value in named.items() if value is not None}
    if told.get("unit") is None:
        told.pop("max_rows", None)
    options = [part for name, value in told.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join([str(answers["data"]), *options])


def _open(question: _Question, known: Given, chosen: Mapping[str, bool]) -> bool:
    told = chosen.get(question.name, known[question.name] is not None)
    return not told and question.asked(known)


def _answer(question: _Question, default: Any) -> Any:
    typer.echo(f"\n{question.words}")
    while True:
        text = typer.prompt(question.name, default="" if default is None else str(default), show_default=bool(default))
        if not text.strip():
            if not question.needed:
                return default
            typer.echo(question.again)
            continue
        try:
            return question.kind(text.strip())
        except ValueError as error:
            typer.echo(f"{text.strip()!r}: {error}.")
