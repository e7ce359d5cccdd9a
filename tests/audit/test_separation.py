"""Separation: full where states differ by label, chance where they do not, and drawings that keep clusters apart."""

import json
from collections.abc import Iterator

import numba
import numpy as np
import pytest
import torch

from palimpsest.audit.statistics import wilson
from palimpsest.errors import DataError, ModelError
from palimpsest.files import read_json, write_json
from palimpsest_lab.audits.separation import ForestSettings, Projection, SeparationAudit, project, separation

LABELS = ("bug", "praise", "question")
SETTINGS = ForestSettings(trees=30, seeds=(0, 1, 2))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """UMAP's threads become torch's, for all tests that follow."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def states(count, seed, apart=3.0, width=8):
    """States around one corner per label, and their labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, count)
    found = apart * np.eye(3, width)[truth] + rng.normal(0, 0.5, (count, width))
    return found.astype(np.float32), [LABELS[index] for index in truth]


def test_states_that_differ_by_label_are_told_apart():
    found = separation(*states(300, 0), *states(200, 1), LABELS, SETTINGS)
    assert found.accuracy.value > 0.98
    assert found.accuracy.low < found.accuracy.value <= found.accuracy.high
    assert (found.train_rows, found.test_rows) == (300, 200)


@pytest.mark.parametrize("apart", [0.0, 3.0])
def test_what_says_nothing_of_the_label_gives_chance(apart):
    """States that do not differ, and states whose training labels are permuted."""
    train, labels = states(600, 0, apart)
    shuffled = np.random.default_rng(2).permutation(labels).tolist()
    found = separation(train, shuffled, *states(600, 1, apart), LABELS, SETTINGS)
    assert 0.2 < found.accuracy.value < found.chance + 0.1


def test_chance_is_the_share_of_the_commonest_test_label():
    test, _ = states(10, 1)
    truth = ["praise"] * 6 + ["bug"] * 3 + ["question"]
    assert separation(*states(90, 0), test, truth, LABELS, SETTINGS).chance == 0.6


def test_the_forest_is_fitted_on_the_training_states_alone():
    """A label without training rows is never named, however the test rows are labelled."""
    train, labels = states(200, 0)
    seen = [label != "bug" for label in labels]
    known = [label for label in labels if label != "bug"]
    test, truth = states(150, 1)
    found = separation(train[seen], known, test, truth, LABELS, SETTINGS)
    assert found.accuracy.value == pytest.approx(1 - truth.count("bug") / 150, abs=0.02)


def test_one_training_label_is_named_everywhere():
    test, truth = states(90, 1)
    found = separation(states(30, 0)[0], ["praise"] * 30, test, truth, LABELS, SETTINGS)
    assert found.per_seed == pytest.approx([truth.count("praise") / 90] * 3)


def test_the_accuracy_is_the_mean_over_seeds_with_an_interval_over_test_rows():
    found = separation(*states(300, 0, apart=0.7), *states(200, 1, apart=0.7), LABELS, SETTINGS)
    assert len(set(found.per_seed)) > 1
    assert found.accuracy.value == pytest.approx(np.mean(found.per_seed))
    interval = wilson(found.accuracy.value * 200, 200, 0.95)
    assert (found.accuracy.low, found.accuracy.high) == pytest.approx(interval)
    assert found == separation(*states(300, 0, apart=0.7), *states(200, 1, apart=0.7), LABELS, SETTINGS)


@pytest.mark.parametrize(("rows", "label"), [(10, "unheard-of"), (0, "bug")])
def test_unusable_rows_are_errors_that_quote_nothing(rows, label):
    with pytest.raises(DataError) as caught:
        separation(np.zeros((rows, 8)), [label] * rows, *states(10, 1), LABELS, SETTINGS)
    assert label not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_states_of_a_diverged_model_are_an_error(value):
    train, labels = states(20, 0)
    train[3, 2] = value
    with pytest.raises(ModelError, match="diverged"):
        separation(train, labels, *states(10, 1), LABELS, SETTINGS)
    with pytest.raises(ModelError, match="diverged"):
        project(train, "pca", 0)


def test_fewer_than_three_forests_are_refused():
    with pytest.raises(ValueError, match="number_of_seeds"):
        ForestSettings(trees=10, seeds=(0, 1))


@pytest.mark.parametrize("method", ["pca", "umap"])
def test_drawings_keep_clusters_apart_and_repeat(method, monkeypatch):
    """The one test of UMAP, as plain Python: it would compile for half a minute to place so few points."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    found, labels = states(30, 0, apart=8.0)
    points = project(found, method, seed=1)
    assert (points.shape, points.dtype) == ((30, 2), np.float64)
    assert np.array_equal(points, project(found, method, seed=1))
    names = np.array(labels)
    centres = {label: points[names == label].mean(axis=0) for label in LABELS}
    nearest = [min(LABELS, key=lambda label: np.linalg.norm(point - centres[label])) for point in points]
    assert nearest == labels


def test_pca_keeps_the_distances_of_what_lies_in_a_plane():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(30, 2))
    lifted = flat @ np.linalg.qr(rng.normal(size=(12, 2)))[0].T + 5.0
    points = project(lifted, "pca", seed=0)
    apart = [np.linalg.norm(rows[:, None] - rows[None], axis=-1) for rows in (flat, points)]
    assert np.allclose(*apart)


def test_too_few_rows_and_unknown_methods_are_refused():
    with pytest.raises(DataError, match="too few"):
        project(np.zeros((3, 8)), "pca", 0)
    with pytest.raises(ValueError, match="method"):
        project(np.zeros((30, 8)), "tsne", 0)


@pytest.mark.parametrize("loss", [3.25, None])
def test_the_document_goes_to_disk_and_back(tmp_path, loss):
    test, truth = states(40, 1)
    score = separation(*states(60, 0), test, truth, LABELS, SETTINGS)
    points = project(test, "pca", 0)
    document = SeparationAudit(score, loss, {"pca": Projection.of(points, truth)}).to_json("dp3")
    write_json(tmp_path / "dp3.json", document)
    back = read_json(tmp_path / "dp3.json")
    assert back == document == json.loads(json.dumps(document))
    assert SeparationAudit.from_json(back).to_json("dp3") == document
    assert set(back) == {"model", "zone", "separation", "lm_loss", "projections"}
    assert (back["model"], back["zone"], back["lm_loss"]) == ("dp3", "internal", loss)
    assert {"accuracy", "low", "high", "per_seed", "chance"} <= set(back["separation"])
    drawn = back["projections"]["pca"]
    assert drawn["label"] == truth
    assert np.array_equal(np.column_stack([drawn["x"], drawn["y"]]), points.round(3))
