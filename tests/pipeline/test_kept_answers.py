"""What was paid for is made again, free: changed code, a free part that was mended, other public texts; and no more."""

import json
import shutil
from collections.abc import Callable, Iterator

import pytest

from palimpsest.methods.select.fit import Select
from palimpsest.methods.shared.base import Made
from palimpsest.privacy import planned
from palimpsest.workspace import PRIVATE, SYNTHETIC
from stages import encode_public, fit, inputs, preprocess
from tests.pipeline.place import Place, asked_word

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(600)]

CHOSEN, VOTED = "chosen", "voted"


@pytest.fixture(scope="module")
def paid(made: Place, copy: Callable[[Place], Place]) -> Place:
    """A workspace after `select`, and a vote among what it chose."""
    place = copy(made)
    place.edit("variants", **{CHOSEN: {"method": "select", "epsilon": 1.0, "rows": 30, "batch": 64}})
    place.edit("variants", **{VOTED: {"method": "vote_select", "epsilon": 1.5, "from": CHOSEN, "keep": 0.5}})
    with place.entered():
        for stage, *arguments in ((inputs,), (preprocess,), (encode_public,), (fit, CHOSEN), (fit, VOTED)):
            code, output = place.stage(stage, *arguments)
            assert code == 0, output
    return place


@pytest.fixture
def place(paid: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """A copy of it, from which DVC has removed the rows."""
    place = copy(paid)
    with place.entered():
        yield place


def rows(name: str) -> bytes:
    return (SYNTHETIC / f"{name}.jsonl").read_bytes()


def removed(name: str) -> bytes:
    """What DVC does before it starts a stage anew; the rows as they were."""
    before = rows(name)
    for path in SYNTHETIC.glob(f"{name}.*"):
        path.unlink()
    return before


@pytest.mark.parametrize("name", [CHOSEN, VOTED])
def test_a_stage_that_runs_again_makes_the_same_rows_of_the_answers_that_were_paid_for(place: Place, name: str) -> None:
    before, charges = removed(name), place.charges
    shutil.rmtree(PRIVATE / "vectors")  # no private text is read
    code, output = place.stage(fit, name)
    assert (code, rows(name), place.charges) == (0, before, charges), output
    assert "made again from answers that were paid for, and nothing is charged" in output
    assert not (PRIVATE / "vectors").exists()


def test_a_free_part_that_was_mended_reaches_rows_that_exist(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before, charges, made = removed(CHOSEN), place.charges, Select.made

    def mended(self: Select, artifact: object) -> Made:
        found = made(self, artifact)  # type: ignore[arg-type]
        return Made([row for row in found.rows if "order" not in row.text], found.drawn)

    monkeypatch.setattr(Select, "made", mended)
    code, output = place.stage(fit, CHOSEN)
    assert (code, place.charges) == (0, charges), output
    kept = [line for line in before.decode().splitlines() if "order" not in json.loads(line)["body"]]
    assert sorted(rows(CHOSEN).decode().splitlines()) == sorted(kept)
    assert len(kept) < len(before.decode().splitlines())


def test_class_means_choose_among_other_public_texts_free(place: Place) -> None:
    before, charges = removed(CHOSEN), place.charges
    texts = place.public.read_text().splitlines()
    place.public.write_text("\n".join(texts[: len(texts) // 2]) + "\n")
    place.edit("dataset", public=str(place.public))
    for stage, *arguments in ((preprocess,), (encode_public,), (fit, CHOSEN)):
        code, output = place.stage(stage, *arguments)
        assert code == 0, output
    assert place.charges == charges
    assert rows(CHOSEN) != before


def test_votes_are_not_replayed_onto_other_candidates(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen from is another set of texts: the stage stops, says so, and asks for a word."""
    removed(VOTED)
    charges, made = place.charges, Select.made
    monkeypatch.setattr(Select, "made", lambda self, artifact: Made(made(self, artifact).rows[1:], 9))
    assert place.stage(fit, CHOSEN)[0] == 0
    code, output = place.stage(fit, VOTED)
    assert "was answered about other candidates" in output
    assert asked_word(code, output)
    assert place.charges == charges
    assert not list(SYNTHETIC.glob(f"{VOTED}.*"))


def test_a_raised_version_asks_for_a_word(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    charges = place.charges
    now = planned.TOOLS["encoder"] + 1
    monkeypatch.setitem(planned.TOOLS, "encoder", now)  # type: ignore[index]
    code, output = place.stage(fit, CHOSEN)
    assert asked_word(code, output)
    assert f"encoder is version {now} now and was {now - 1}" in output
    assert place.charges == charges


def test_another_setting_of_the_same_variant_asks_for_a_word(place: Place) -> None:
    charges = place.charges
    place.edit("variants", CHOSEN, epsilon=0.9)
    code, output = place.stage(fit, CHOSEN)
    assert asked_word(code, output)
    assert place.charges == charges
