"""Lets an author write, shown no record, the texts that the evolution of embeddings begins with. Free."""

from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.errors import BackendError
from palimpsest.methods.evolve.author import UNLABELLED, Author
from palimpsest.methods.evolve.declaration import EVOLVE
from palimpsest.methods.evolve.fit import author_of
from palimpsest.methods.shared.method import Method
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import write_public
from palimpsest.workspace import ZERO_SHOT
from stages.common import start
from stages.public import public_texts
from stages.tools import OF_PUBLIC, Artifacts, encoders
from stages.vouching import resolve_vouched

_TRIES = 4  # requests for more where some texts were equal or empty


@dataclass(frozen=True)
class Writes:
    """Reads what an author needs, and hands it the same as a variant of `evolve` does."""

    name: str
    origin: str | None
    origins: tuple[str, ...] = ()
    method: Method = EVOLVE
    settings: None = None


def run(name: str, author: str) -> None:
    """data/public, what the author reads -> data/public/zero_shot/<name>.parquet.

    Guarantee: epsilon 0. The author is told the settings and the labels with their public descriptions, and where it
    shows examples, public texts. No record is read (Zhao, Song, Zhou 2024, section 3.1).

    Raises:
        BackendError: the author wrote fewer different texts of a label than asked for, or cannot be reached.
    """
    params = load()
    settings, read = params.zero_shot[name], Artifacts(params, Writes(name, author), resolve_vouched)
    writer = author_of(read, encoders(params, others=OF_PUBLIC).others)
    written = zero_shot(writer, tuple(params.dataset.labels) or (UNLABELLED,), settings.texts)
    beside = [Record(text) for text in public_texts()] if settings.beside else []
    write_public(ZERO_SHOT / f"{name}.parquet", [*written, *beside])


def zero_shot(author: Author, labels: Sequence[str], count: int) -> list[Record]:
    """Let the author write `count` different texts of each label, in the order of the labels.

    Raises:
        BackendError: the author wrote fewer, or cannot be reached.
    """
    asked = dict.fromkeys(labels, count)
    for _ in range(_TRIES):
        records = [record for record in dict.fromkeys(author.random(asked)) if record.text.strip()]
        found = {label: [row for row in records if (row.label or UNLABELLED) == label][:count] for label in labels}
        missing = {label: count - len(own) for label, own in found.items()}
        if not any(missing.values()):
            return [row for own in found.values() for row in own]
        asked = {label: number + 2 * missing[label] for label, number in asked.items()}
    raise BackendError(
        "The author wrote too few different texts of a label.",
        "Ask for fewer in zero_shot, raise its temperature, or mend its prompt, and run again: answers are kept.",
    )


if __name__ == "__main__":
    start(run)
