"""`palimpsest dataset`: the published files of a data set by its name, as the files that `palimpsest init` reads.

The printed output is public: the declaration, the names of files, the next line. Everything that follows from the rows
is in README.md, which lies beside them and which only its owner may read. A terminal is told that something recurs in
the public text.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import DataError, ParamsError
from palimpsest.files import atomic_path, make_folder, write_json, write_text
from palimpsest.params.text import to_yaml
from palimpsest.progress import track
from palimpsest.records.schema import combine_labels, join_parts
from palimpsest.work.console import Rows, console, show, tell_owner
from palimpsest_lab.datasets.declaration import Attribute, Item
from palimpsest_lab.datasets.known import KNOWN, find_dataset
from palimpsest_lab.datasets.prepare import (
    SENTENCE,
    Cut,
    Found,
    Seen,
    Tally,
    cut_of,
    evaluated_items,
    expected_rows,
    find,
    private_items,
    public_texts,
    sentences,
)

PRIVATE, TEST, PUBLIC = "private.jsonl", "test.jsonl", "public.jsonl"
LABELS, SCHEMA, README = "labels.yaml", "schema.json", "README.md"
_PERSON = "person"


@dataclass(frozen=True)
class Asked:
    """The request of a person."""

    folder: Path  # of the published files
    out: Path  # the folder to write to
    public: Path | None = None  # public text to bring along, if any
    # the attribute that a workspace learns, or several with commas between; None for the first
    label: str | None = None
    share: float | None = None  # of a test part that is cut anew; None keeps the publishers' parts
    seed: int = 0  # of that cut
    n_public: int | None = None  # public, approximate number of private records; None for the publishers' number
    # the most sentences of the public texts to use in place of the texts; None for the texts as they are
    sentences: int | None = None


@dataclass(frozen=True)
class Made:
    """A data set in a folder, and how it was asked for."""

    found: Found
    cut: Cut
    asked: Asked
    attribute: Attribute | None


def show_known() -> None:
    """Show the known data sets, each with a description and its origin."""
    rows = [(each.name, each.task, each.does, each.where) for each in KNOWN.values()]
    headings = ("name", "task", "what it is", "where its files come from")
    show(console(), Rows("Data sets by name", headings, rows, headings))


def make_dataset(name: str, asked: Asked, *, force: bool) -> None:
    """Write the private, test and public files of a data set, its labels and a page about it.

    Raises:
        ParamsError: an option is wrong.
        DataError: files are missing, are not of a published form, or would be overwritten.
    """
    dataset = find_dataset(name)
    _check(asked, force=force)
    made, rows = write_dataset(find(dataset, asked.folder), asked)
    _tell(made, rows)


def write_dataset(found: Found, asked: Asked) -> tuple[Made, Tally]:
    """Write files that were found, as `make_dataset` does; print nothing, and overwrite what is there.

    Raises:
        ParamsError: the label is none of the data set's.
        DataError: a record cannot be used, or a part has none.
    """
    made = Made(found, cut_of(found, asked.share, asked.seed), asked, _attribute(found, asked.label))
    make_folder(asked.out)
    seen = Seen()
    if asked.public is not None:
        _write_public(asked.out / PUBLIC, _read_public(found, asked, asked.public), seen)
    own = Seen()
    rows = _write_items(
        made, PRIVATE, _remember_items(private_items(found, made.cut), own), seen, expected_rows(found, made.cut)
    )
    tested = _write_items(made, TEST, evaluated_items(found, made.cut), own, found.form.others)
    _require_rows(made, rows, tested)
    _write_public_facts(made)
    write_text(asked.out / README, page(made, rows, tested))
    return made, rows


def _check(asked: Asked, *, force: bool) -> None:
    if not asked.folder.is_dir():
        raise ParamsError(f"--from is {str(asked.folder)!r}, which is no folder.", "Name the folder with the files.")
    if asked.share is not None and not 0 < asked.share < 1:
        raise ParamsError(f"--cut is {asked.share:g}; allowed is above 0 and below 1.", "Give 0.2 for 80:20.")
    if asked.sentences is not None and asked.sentences < 1:
        raise ParamsError(
            f"--sentences is {asked.sentences}; allowed is at least 1.", "Give a number, or leave it out."
        )
    if asked.sentences is not None and asked.public is None:
        raise ParamsError("--sentences is given without --public.", "Name the public text that they come from, too.")
    if asked.public is not None and not asked.public.exists():
        raise ParamsError(f"--public is {str(asked.public)!r}: there is no such file.", "Correct the path.")
    if (asked.out / PRIVATE).exists() and not force:
        raise DataError(
            f"{str(asked.out / PRIVATE)!r} is there already.", "Name another folder with --dir, or give --force."
        )


def _attribute(found: Found, label: str | None) -> Attribute | None:
    there = {each.name: each for each in found.dataset.attributes}
    if label is None:
        return next(iter(there.values()), None)
    chosen = [name.strip() for name in label.split(",")]
    if not set(chosen) <= there.keys():
        raise ParamsError(
            f"--label is {label!r}; {found.dataset.name} has {', '.join(there) or 'no label'}.",
            "Name one of its labels, or several with commas between, or leave --label out.",
        )
    return there[chosen[0]] if len(chosen) == 1 else _join_attributes([there[name] for name in chosen])


def _join_attributes(chosen: Sequence[Attribute]) -> Attribute:
    return Attribute(join_parts([each.name for each in chosen]), combine_labels([each.values for each in chosen]))


def _read_public(found: Found, asked: Asked, path: Path) -> Iterable[str]:
    texts = public_texts(path)
    return texts if asked.sentences is None else sentences(texts, found.dataset.max_length, asked.sentences)


def _write_public(path: Path, texts: Iterable[str], seen: Seen) -> None:
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as stream:
        for text in texts:
            seen.add(text)
            stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def _remember_items(items: Iterable[Item], own: Seen) -> Iterator[Item]:
    for item in items:
        own.same.add(own.key(item.text))
        yield item


def _write_items(made: Made, name: str, items: Iterable[Item], seen: Seen, total: int) -> Tally:
    """Write the records, and count them; none of the counts are shown."""
    tally, attributes = Tally(), made.found.dataset.attributes
    with atomic_path(made.asked.out / name) as draft, draft.open("w", encoding="utf-8", newline="\n") as stream:
        for item in track(items, name=name, total=total, private=True):
            tally.add(item, seen)
            stream.write(_line(item, attributes, json_record=made.found.dataset.schema is not None) + "\n")
    return tally


def _line(item: Item, attributes: tuple[Attribute, ...], *, json_record: bool) -> str:
    if json_record:
        return item.text
    labels = dict(zip((each.name for each in attributes), item.labels, strict=True))
    person = {} if item.person is None else {_PERSON: item.person}
    return json.dumps({"text": item.text, **labels, **person}, ensure_ascii=False)


def _require_rows(made: Made, rows: Tally, tested: Tally) -> None:
    if not rows.rows or not tested.rows:
        empty = PRIVATE if not rows.rows else TEST
        raise DataError(
            f"No record of {made.found.dataset.name} came into {empty}.",
            "Give the whole files as they are published, or another --cut.",
        )


def _write_public_facts(made: Made) -> None:
    """Write a workspace's facts about labels and records, only from the declaration."""
    out, schema = made.asked.out, made.found.dataset.schema
    if made.attribute is not None and made.attribute.values:
        write_text(out / LABELS, to_yaml(made.attribute.values, folded=False))
    if schema is not None:
        write_json(out / SCHEMA, dict(schema))


def init_line(made: Made) -> str:
    """Return the line that makes a workspace of these files. Everything in it is public."""
    asked, dataset = made.asked, made.found.dataset
    public = asked.out / PUBLIC if asked.public is not None else Path("PUBLIC.jsonl")
    n_public = asked.n_public or expected_rows(made.found, made.cut)
    words = ["palimpsest", "init", str(asked.out / PRIVATE), "--task", dataset.task]
    words += ["--text", "text" if dataset.schema is None else "*", *_label_words(made)]
    words += ["--test", str(asked.out / TEST), "--public", str(public), "--rows-about", str(n_public)]
    if made.found.form.persons is not None:
        persons = round(made.found.form.persons * n_public / made.found.form.rows)
        words += ["--unit", _PERSON, "--persons", str(persons)]
    words += ["--max-length", str(dataset.max_length), "--asset", dataset.name]
    return shlex.join([*words, "--workspace", str(asked.out / "workspace")])


def _label_words(made: Made) -> list[str]:
    if made.found.dataset.schema is not None:
        return ["--json-schema", str(made.asked.out / SCHEMA)]
    if made.attribute is None:
        return []
    described = ["--labels-file", str(made.asked.out / LABELS)] if made.attribute.values else []
    return ["--label", made.attribute.name, *described]


def _words(made: Made) -> str:
    own = made.attribute.words if made.attribute is not None else ""
    return own or made.found.dataset.words


def _split(made: Made) -> str:
    if made.cut.share is None:
        return "the publishers' own: their training part is private, their test part is the test"
    unit = "text" if made.found.form.persons is None else "person"
    how = f"{made.cut.share:g} for the test, by a hash of each {unit}, --seed {made.cut.seed}"
    return f"cut anew from all labelled parts: {how}"


def _note_unverified(made: Made) -> str:
    if made.found.form.verified:
        return ""
    return " This form was not held against the files themselves: look at a few records before you rely on them."


def page(made: Made, rows: Tally, tested: Tally) -> str:
    """Write README.md of the folder. Private: it has numbers of rows, and how many of them recur."""
    dataset, form = made.found.dataset, made.found.form
    labels = "".join(f"| {label} | {rows.labels[label]} | {tested.labels[label]} |\n" for label in _list_labels(made))
    table = f"\n| label | {PRIVATE} | {TEST} |\n|---|---|---|\n{labels}" if labels else ""
    return f"""# {dataset.name}

{dataset.does} **This page and the rows are private**: it has numbers that follow from them. Share none of this folder.

* Read as: {form.says}. The form is described in {form.described}.{_note_unverified(made)}
* From: {dataset.where}
* Licence, as published: {dataset.licence}
* Split: {_split(made)}. {dataset.split}
* Private records: {rows.rows}, as published about {expected_rows(made.found, made.cut)}. Test records: {tested.rows}.
{table}
## Overlap

{_overlap(made, rows)}
Of the test records, {_share(tested.same, tested.rows)} have the letters and digits of a private record.

## How to go on

{_next_steps(made)}
"""


def _list_labels(made: Made) -> tuple[str, ...]:
    return tuple(label for attribute in made.found.dataset.attributes for label in attribute.values)


def _overlap(made: Made, rows: Tally) -> str:
    if made.asked.public is None:
        return f"No public text was given, so none was compared. {made.found.dataset.public}\n"
    return f"""How many private records recur in the public text, {PUBLIC}:

* as they are: {_share(rows.exact, rows.rows)}
* by their letters and digits: {_share(rows.same, rows.rows)}
* or by a sentence of at least {SENTENCE} letters and digits: {_share(rows.pieces, rows.rows)}

What recurs flatters every method that chooses or learns from public text. Bring another text where it matters. Take no
row out of the public file for it: what is left would tell which rows are private.
"""


def _share(count: int, rows: int) -> str:
    return f"{count} ({count / max(rows, 1):.2%})"


def _next_steps(made: Made) -> str:
    bring = "" if made.asked.public is not None else f"Bring public text first. {made.found.dataset.public}\n\n"
    return f"""{bring}    {init_line(made)}

For a named language model, write `words: {_words(made)}` under `models` in params.yaml."""


def _tell(made: Made, rows: Tally) -> None:
    """Say what was done, but nothing that follows from a row; only the owner's terminal is told that rows recur."""
    dataset, out = made.found.dataset, made.asked.out
    print(f"{dataset.name}: {dataset.does}")
    print(f"read as: {made.found.form.says}.{_note_unverified(made)}")
    print(f"split: {_split(made)}")
    print(f"written: {out}, with README.md; all of it is private but {PUBLIC}")
    if rows.pieces:
        tell_owner(f"note: private records recur in the public text; {out / README} says how many.")
    if made.asked.n_public is None and not 0.8 <= rows.rows / expected_rows(made.found, made.cut) <= 1.25:
        tell_owner(
            "note: these are far more or fewer records than published; give --rows-about a number that is public."
        )
    print(f"public text: {dataset.public}")
    print(f"next: {init_line(made)}")
    print(f"  for a named model, then write `words: {_words(made)}` under `models` in params.yaml")
