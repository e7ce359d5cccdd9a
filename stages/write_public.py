"""Lets an author write the public file from public words alone, where there is none. Free."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.errors import BackendError
from palimpsest.files import atomic_path
from palimpsest.methods.evolve.author import UNLABELLED, Author
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.fit import author_of
from palimpsest.params.load import load
from palimpsest.params.sources import writer_of
from palimpsest.params.written import counts_of, describe_writing
from palimpsest.privacy.query import plain_digest
from palimpsest.records.record import Record
from palimpsest.records.vouched import fingerprint_of
from palimpsest.records.write import read_public, write_lines, write_public
from palimpsest.workspace import WRITTEN
from stages.common import start
from stages.public import open_checkpoints
from stages.tools import Artifacts
from stages.vouching import resolve_vouched
from stages.zero_shot import Writes

_LEAST = 0.5  # share of what was asked for of a label: with less the author's prompt is at fault
_MOST = 2  # texts that a base model writes for each that is asked for
_TOGETHER = 128  # that it writes between two marks of a run that may stop


@dataclass(frozen=True)
class _Words(Artifacts):
    """Hands an author its settings without public text, and the base model as it was named: nothing is pretrained."""

    def author(self) -> Any:
        return writer_of(self.params)

    def base(self) -> Path:
        return resolve_vouched(self.params, "models.lm")


def run(name: str, author: str) -> None:
    """params.yaml, what it names as an author -> data/public/written.jsonl.

    Guarantee: epsilon 0. The author is told its settings, the labels with their public descriptions and the public
    words of `dataset.written`; the stage opens no file but these and the author's model, so the texts are a function of
    what is public (`graph.taint` holds it to that).

    Raises:
        BackendError: the author wrote less than half of what was asked for of a label, or cannot be reached.
    """
    params = load()
    print(f"write_public: {describe_writing(params)}", flush=True)
    tools = _Words(params, Writes("write_public", author), resolve_vouched)
    writer, wanted = author_of(tools, _refuse_texts), counts_of(params)
    with open_checkpoints("write_public") as kept:
        texts = select_texts(write(writer, wanted, tools, kept), wanted)
    with atomic_path(WRITTEN) as draft:
        write_lines(draft, texts, params.dataset.text, params.dataset.label if params.dataset.labels else None)


def select_texts(records: Iterable[Record], wanted: Mapping[str, int]) -> list[Record]:
    """Return at most so many different texts of each label, none empty, in the order of the labels.

    Raises:
        BackendError: there is less than half of what is wanted of a label.
    """
    found: dict[str, list[Record]] = {label: [] for label in wanted}
    for record in {record.text: record for record in records if record.text.strip()}.values():
        found[record.label or UNLABELLED].append(record)
    if any(len(own) < _LEAST * wanted[label] for label, own in found.items()):
        raise BackendError(
            "The author wrote too few different texts of a label.",
            "Ask for fewer in dataset.written, raise its temperature, or mend its prompt: what it answered is kept.",
        )
    return [record for label, own in found.items() for record in own[: wanted[label]]]


def write(writer: Author, wanted: Mapping[str, int], tools: _Words, kept: Path) -> Iterator[Record]:
    """Yield what the author writes. Answers of a chat model are kept as they come, texts of a base model in parts."""
    if not isinstance(writer, BaseAuthor):
        yield from writer.random(wanted)
        return
    told = [tools.author().model_dump(mode="json"), tools.schema.labels, tools.seed, fingerprint_of(tools.base())]
    folder, found = kept / plain_digest(told), {label: set[str]() for label in wanted}
    size = max(1, _TOGETHER // len(wanted))
    for begin in range(0, _MOST * max(wanted.values()), size):
        lacking = [label for label, own in found.items() if len(own) < wanted[label]]
        path = folder / f"{begin}.parquet"
        if lacking and not path.is_file():
            write_public(path, writer.write(dict.fromkeys(lacking, range(begin, begin + size))))
        for record in read_public(path) if lacking else ():
            found[record.label or UNLABELLED].add(record.text)
            yield record


def _refuse_texts(_texts: Sequence[str]) -> np.ndarray:
    """Stand in for an encoder of public texts: there are none yet."""
    raise ValueError("this author is shown no public text")


if __name__ == "__main__":
    start(run)
