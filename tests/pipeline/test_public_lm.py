"""The row of the public language model alone: made of public things, even over the labels, and compared with."""

import shutil
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import stages.public_lm
from palimpsest.audit.statistics import Estimate
from palimpsest.audit.utility import Evaluation, Scored
from palimpsest.params.load import load
from palimpsest.records.write import read_synthetic
from palimpsest_lab.twins.attacks import save_base
from stages.downstream_eval import compare_with_baselines
from tests.pipeline.place import Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(300)]


@pytest.fixture
def place(made: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]) -> Place:
    """A workspace of a named model in which nothing has run, without a private file."""
    place = entered(copy(made))
    words = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    save_base(words, 1.0, 1, place.workspace / "models/base")
    place.edit("models", lm=str(place.home / "lm"), prompts=None, words="tickets")
    place.edit("public_lm", max_tokens=8, filters={"chain": ["length", "duplicates"]})
    place.private.unlink()
    return place


def test_the_public_model_writes_as_many_rows_of_each_label_and_reads_nothing_private(place: Place) -> None:
    assert not place.files("data")
    code, output = place.stage(stages.public_lm)
    assert code == 0, output
    params = load()
    rows = read_synthetic("data/synthetic/public_lm", params.dataset.text, params.dataset.label)
    labels = tuple(params.dataset.labels)
    counts = Counter(row.label for row in rows)
    assert sorted(counts) == sorted(labels)
    assert {max(counts.values()), min(counts.values())} <= {50 // len(labels), 50 // len(labels) + 1}
    shutil.rmtree("data")
    assert place.stage(stages.public_lm)[0] == 0
    assert read_synthetic("data/synthetic/public_lm", params.dataset.text, params.dataset.label) == rows


def test_what_private_rows_add_is_paired_by_test_row() -> None:
    right = np.array([[True, True, True, False]])
    scored = Scored(Estimate(0.75, 0.5, 1.0), (0.75,), (3,), {}, None)
    known = {"real": {"own": [1, 1, 1, 1]}, "public_only": {"own": [0, 0, 1, 0]}}
    assert compare_with_baselines(Evaluation(right, scored), known, "own", 1).over_public_lm is None
    found = compare_with_baselines(Evaluation(right, scored), known | {"public_lm": {"own": [1, 1, 0, 0]}}, "own", 1)
    assert found.over_public_lm is not None
    assert found.over_public_lm.value == 1.5
    assert Scored.from_json(found.to_json()).over_public_lm == found.over_public_lm
