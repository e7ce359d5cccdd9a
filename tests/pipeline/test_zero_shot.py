"""What an author writes for the first population of `embed`: shown no record, as much as asked for, no text twice."""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

import stages.zero_shot
from palimpsest.errors import BackendError
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import read_public, write_public
from palimpsest_lab.twins.attacks import save_base
from stages.spenders import spender
from stages.tools import Artifacts
from stages.zero_shot import zero_shot
from tests.pipeline.place import Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(300)]
WRITTEN = "data/public/zero_shot/words.parquet"


@pytest.fixture
def place(made: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]) -> Place:
    """A workspace of a named model in which nothing has run, without a private file."""
    place = entered(copy(made))
    words = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    save_base(words, 1.0, 1, place.workspace / "models/base")
    place.edit("models", lm=str(place.home / "lm"), prompts=None, words="tickets")
    place.edit("authors", writer={"kind": "base", "max_tokens": 8, "examples": 0})
    place.edit("decoders", small={})
    place.edit("zero_shot", words={"from": "writer", "texts": 12})
    evolved = {"method": "embed", "epsilon": 0.5, "from": "small", "zero_shot": "words", "start": 12, "parents": 5}
    place.edit("variants", begun=evolved)
    place.private.unlink()
    return place


def test_an_author_writes_for_each_label_and_reads_nothing_private(place: Place) -> None:
    assert not place.files("data")
    code, output = place.stage(stages.zero_shot, "words", "writer")
    assert code == 0, output
    rows, labels = read_public(WRITTEN), tuple(load().dataset.labels)
    assert Counter(row.label for row in rows) == dict.fromkeys(labels, 12)
    assert len(set(rows)) == len(rows)
    shutil.rmtree("data")
    assert place.stage(stages.zero_shot, "words", "writer")[0] == 0
    assert read_public(WRITTEN) == rows


def test_public_texts_stand_beside_them_for_any_label(place: Place) -> None:
    write_public("data/public/train.parquet", [Record("said in public", "some label"), Record("another")])
    place.edit("zero_shot", words={"from": "writer", "texts": 12, "beside": True})
    assert place.stage(stages.zero_shot, "words", "writer")[0] == 0
    rows = read_public(WRITTEN)
    assert rows[-2:] == [Record("said in public", None), Record("another", None)]
    assert all(row.label for row in rows[:-2])


class Repeating:
    """An author who says everything `often` times."""

    def __init__(self, often: int) -> None:
        self.often = often

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        return [
            Record(f"text {place // self.often}", label) for label, count in counts.items() for place in range(count)
        ]

    def vary(self, *_: object) -> list[list[Record]]:
        raise AssertionError


def test_what_was_written_twice_is_asked_for_again_and_not_for_ever() -> None:
    found = zero_shot(Repeating(2), ("a", "b"), 5)
    assert found == [Record(f"text {number}", label) for label in "ab" for number in range(5)]
    with pytest.raises(BackendError, match="wrote too few different texts"):
        zero_shot(Repeating(10**6), ("a",), 5)


def test_a_variant_begins_with_the_texts_that_it_names(place: Place) -> None:
    write_public("data/public/train.parquet", [Record("said in public", "some label")])
    write_public(WRITTEN, [Record("written", "some label")])
    place.edit("variants", plain={"method": "embed", "epsilon": 0.5, "from": "small"})
    params = load()
    begun, plain = (Artifacts(params, spender(params, name)) for name in ("begun", "plain"))
    assert begun.start() == [Record("written", "some label")]
    assert plain.start() == [Record("said in public", None)]
    write_public(WRITTEN, [Record("written anew", "some label")])
    assert begun.start() == [Record("written anew", "some label")]
    assert plain.start() == [Record("said in public", None)]
