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
    """One record as it is written to a file."""

    text: str  # its text; where records are JSON objects, the object's one text
    labels: tuple[str, ...] = ()  # one for each attribute of the data set, in their order
    person: str | None = None  # the publisher's name for its writer, where the form has one


Reader = Callable[[Sequence[Path], Part], Iterator[Item]]


@dataclass(frozen=True)
class Form:
    """One form in which a data set is published."""

    says: str  # a description of the files
    # the files of each part, as names or patterns. A file name may have .gz behind it.
    files: Mapping[Part, tuple[str, ...]]
    read: Reader  # (the paths of a part, the part) -> its records
    # about how many records the training part has, as published; `--rows-about` unless a person says otherwise
    rows: int
    described: str  # where the form is described
    folder: str = ""  # the folder that its archive unpacks into, if any; the files may also lie beside each other
    others: int = 0  # about how many records its other parts have together
    persons: int | None = None  # about how many persons wrote them, where the form names them
    needed: tuple[Part, ...] = PARTS  # the parts without which it is not this form
    # False where the description could not be checked against the files or a program that reads them
    verified: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its files."""
        return tuple(dict.fromkeys(name for names in self.files.values() for name in names))


@dataclass(frozen=True)
class Attribute:
    """A label that records carry."""

    name: str  # its column in the written files
    # label -> its public description; empty where a label is free text of its own
    values: Mapping[str, str] = field(default_factory=dict)
    words: str = ""  # a value of `models.words` for this label; none: that of the data set


@dataclass(frozen=True)
class DataSet:
    """A data set that papers measure on."""

    name: str  # the name in commands, and the asset's name in the ledger
    does: str  # a description in one sentence
    task: str  # as for `palimpsest init`: classify, span, text or json
    forms: tuple[Form, ...]  # the forms in which it is published; the first whose files are all there is read
    where: str  # where the files come from
    licence: str  # as its publishers state it
    max_length: int  # of a text, in characters
    words: str  # a fitting value of `models.words`, as params.yaml writes it
    public: str  # which public text fits, and which does not because rows recur in it
    # the labels of a record, in the order of `Item.labels`; a workspace learns the first unless told
    attributes: tuple[Attribute, ...] = ()
    schema: Mapping[str, object] | None = None  # the public JSON schema of a record, for the task json
    split: str = ""  # how papers split it, where that differs from its publishers
