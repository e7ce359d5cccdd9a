"""Declarations of data sets: the publisher, the form of its files, and the facts that a workspace for it needs.

Everything in a declaration is public. It comes from the publishers' words, and never from the rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")


class Item(NamedTuple):
    """One record as it is written to a file.

    Attributes:
        text: its text; where records are JSON objects, the object's one text.
        labels: one for each attribute of the data set, in their order.
        person: the publisher's name for its writer, where the form has one.
    """

    text: str
    labels: tuple[str, ...] = ()
    person: str | None = None


Reader = Callable[[Sequence[Path], Part], Iterator[Item]]


@dataclass(frozen=True)
class Form:
    """One form in which a data set is published.

    Attributes:
        says: a description of the files.
        files: the files of each part, as names or patterns. A file name may have .gz behind it.
        read: (the paths of a part, the part) -> its records.
        rows: about how many records the training part has, as published; `--rows-about` unless a person says otherwise.
        others: about how many records its other parts have together.
        described: where the form is described.
        folder: the folder that its archive unpacks into, if any; the files may also lie beside each other.
        persons: about how many persons wrote them, where the form names them.
        needed: the parts without which it is not this form.
        verified: False where the description could not be checked against the files or a program that reads them.
    """

    says: str
    files: Mapping[Part, tuple[str, ...]]
    read: Reader
    rows: int
    described: str
    folder: str = ""
    others: int = 0
    persons: int | None = None
    needed: tuple[Part, ...] = PARTS
    verified: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its files."""
        return tuple(dict.fromkeys(name for names in self.files.values() for name in names))


@dataclass(frozen=True)
class Attribute:
    """A label that records carry.

    Attributes:
        name: its column in the written files.
        values: label -> its public description; empty where a label is free text of its own.
        words: a value of `models.words` for this label; none: that of the data set.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set that papers measure on.

    Attributes:
        name: the name in commands, and the asset's name in the ledger.
        does: a description in one sentence.
        task: as for `palimpsest init`: classify, span, text or json.
        forms: the forms in which it is published; the first whose files are all there is read.
        where: where the files come from.
        licence: as its publishers state it.
        max_length: of a text, in characters.
        words: a fitting value of `models.words`, as params.yaml writes it.
        public: which public text fits, and which does not because rows recur in it.
        attributes: the labels of a record, in the order of `Item.labels`; a workspace learns the first unless told.
        schema: the public JSON schema of a record, for the task json.
        split: how papers split it, where that differs from its publishers.
    """

    name: str
    does: str
    task: str
    forms: tuple[Form, ...]
    where: str
    licence: str
    max_length: int
    words: str
    public: str
    attributes: tuple[Attribute, ...] = ()
    schema: Mapping[str, object] | None = None
    split: str = ""
