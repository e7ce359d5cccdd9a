"""Fidelity: closed forms of each measure, what it notices, and that real texts come out at the floor."""

import json
import math
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import beta

from palimpsest.audit.fidelity import (
    EmbeddedTexts,
    FidelityAudit,
    Sides,
    diversities,
    fidelity,
    label_shares,
    length_bins,
)
from palimpsest.audit.measures import (
    compare_clusters,
    frontier_area,
    length_distance,
    manifold,
    mmd,
    quantise,
    radii,
    two_sample_auc,
    two_sample_words_auc,
)
from palimpsest.errors import DataError, ModelError
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import write_public, write_split, write_synthetic
from stages import fidelity_audit

ROOT = Path(__file__).parents[2]
LOWER = {"c2st", "c2st_words", "kl", "total_variation", "frechet", "mmd", "wasserstein", "length"}
HIGHER = {"mauve", "precision", "recall", "density", "coverage", "f1"}


def drawn(n: int, seed: int, d: int = 6, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, d)) * scale
    rows[:, 0] += shift
    return rows


def texts(n: int, seed: int, vocabulary: int = 60, longest: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{word}" for word in rng.integers(vocabulary, size=rng.integers(1, longest))) for _ in range(n)]


def sample(
    n: int, seed: int, shift: float = 0.0, scale: float = 1.0, words: int = 60, longest: int = 12
) -> EmbeddedTexts:
    return EmbeddedTexts(drawn(n, seed, shift=shift, scale=scale), texts(n, seed, words, longest))


# MAUVE.


def test_the_area_of_equal_distributions_is_one_and_of_disjoint_ones_the_smallest_there_is() -> None:
    first, other = np.array([0.2, 0.8, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])
    assert frontier_area(first, first) == pytest.approx(1.0)
    assert frontier_area(first, other) == pytest.approx(5 * beta(6, 5), rel=1e-3)


def test_the_area_is_that_of_the_frontier_point_by_point() -> None:
    """The same integral over the mixture's share, in closed form for the slope of one axis."""
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    share = (np.arange(200_000) + 0.5) / 200_000
    mixture = share[:, None] * p + (1 - share[:, None]) * q
    across = np.exp(-5 * (q * np.log(q / mixture)).sum(axis=1))
    up = np.exp(-5 * (p * np.log(p / mixture)).sum(axis=1))
    slope = across * 5 * (q * (p - q) / mixture).sum(axis=1)  # d across / d share
    beside = math.exp(-5 * (q * np.log(q / p)).sum())  # where P alone is left, to the axis
    assert frontier_area(p, q) == pytest.approx(beside - (up * slope).mean(), rel=1e-4)


def test_the_area_does_not_depend_on_sides_and_falls_with_the_distance() -> None:
    p, areas = np.array([0.5, 0.5]), []
    for shift in (0.0, 0.1, 0.2, 0.4):
        q = np.array([0.5 - shift, 0.5 + shift])
        areas.append(frontier_area(p, q))
        assert frontier_area(q, p) == pytest.approx(areas[-1], rel=1e-3)
    assert areas == sorted(areas, reverse=True)
    with pytest.raises(ValueError, match="first"):
        frontier_area(np.array([0.4, 0.4]), p)


def mauve(first: np.ndarray, second: np.ndarray, seed: int) -> float:
    return compare_clusters(first, second, seed).mauve


def test_mauve_of_sets_alike_and_apart() -> None:
    one, alike, apart = drawn(300, 0, shift=30.0), drawn(300, 1, shift=30.0), drawn(300, 2, shift=-30.0)
    assert mauve(one, one, 0) == pytest.approx(1.0)
    assert mauve(one, alike, 0) > 0.85
    assert mauve(one, apart, 0) == pytest.approx(5 * beta(6, 5), rel=0.01)
    assert mauve(one, alike, 0) == mauve(one, alike, 0)
    assert mauve(one * 7.0, alike * 0.1, 3) == mauve(one, alike, 3)  # unit vectors
    with pytest.raises(DataError):
        mauve(one[:19], alike, 0)


def test_shares_of_clusters_are_compared_as_defined() -> None:
    """Three corners, so three clusters: 20, 10 and 0 rows against 5, 5 and 20."""
    written, real = (np.repeat(np.eye(3), counts, axis=0) for counts in ([20, 10, 0], [5, 5, 20]))
    found = compare_clusters(written, real, 0)
    p, q = (np.array(counts) / 30 for counts in ([20, 10, 0], [5, 5, 20]))
    assert found.mauve == pytest.approx(frontier_area(p, q))
    assert found.total_variation == pytest.approx(20 / 30)
    half, other = (np.array(counts) / 31.5 for counts in ([20.5, 10.5, 0.5], [5.5, 5.5, 20.5]))
    assert found.kl == pytest.approx(sum(half * np.log(half / other)))
    assert compare_clusters(real, written, 0).kl != pytest.approx(found.kl)
    assert compare_clusters(real, real, 0).kl == compare_clusters(real, real, 0).total_variation == 0.0


def test_clusters_are_those_of_the_directions() -> None:
    corners = np.repeat(np.eye(3), 20, axis=0) * np.random.default_rng(0).uniform(1, 9, size=(60, 1))
    found = quantise(corners, 3, 0)
    assert [len(set(found[start : start + 20])) for start in (0, 20, 40)] == [1, 1, 1]
    assert len(set(found)) == 3
    assert (quantise(np.zeros((30, 4)), 1, 0) == 0).all()


# Precision, recall, density, coverage.


def by_pairs(written: np.ndarray, real: np.ndarray) -> tuple[float, float, float, float]:
    """The definitions, a pair at a time."""

    def reach(rows: np.ndarray, place: int, k: int) -> float:
        return sorted(float(np.linalg.norm(rows[place] - other)) for other in rows)[k]

    def inside(rows: np.ndarray, others: np.ndarray, k: int) -> np.ndarray:
        balls = [(other, reach(others, place, k)) for place, other in enumerate(others)]
        return np.array([[np.linalg.norm(row - centre) <= size for centre, size in balls] for row in rows])

    wide = inside(written, real, 5)
    return (
        inside(written, real, 3).any(axis=1).mean(),
        inside(real, written, 3).any(axis=1).mean(),
        wide.sum() / (5 * len(written)),
        wide.any(axis=0).mean(),
    )


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1.5, 1.0), (0.0, 0.3), (0.0, 3.0)])
def test_the_manifold_is_as_defined(shift: float, scale: float) -> None:
    written, real = drawn(25, 0, 3, shift, scale), drawn(30, 1, 3)
    found = manifold(written, real)
    assert (found.precision, found.recall, found.density, found.coverage) == pytest.approx(by_pairs(written, real))
    assert found.f1 == pytest.approx(2 / (1 / found.precision + 1 / found.recall))


def test_sets_with_nothing_in_common_have_no_f1() -> None:
    found = manifold(drawn(20, 0), drawn(20, 1, shift=100.0))
    assert (found.precision, found.recall, found.f1) == (0.0, 0.0, 0.0)


def test_too_narrow_is_precise_and_too_wide_recalls() -> None:
    real = drawn(400, 0)
    narrow, wide, alike = (manifold(drawn(400, 1, scale=scale), real) for scale in (0.2, 3.0, 1.0))
    assert narrow.precision > 0.99 > 0.2 > narrow.recall
    assert wide.recall > 0.9 > 0.3 > wide.precision
    assert narrow.density > 1.5 > alike.density > 0.8 > wide.density
    assert alike.coverage > 0.9 > 0.5 > max(narrow.coverage, wide.coverage)


def test_copies_lie_in_each_others_balls() -> None:
    real = drawn(40, 0, 200).astype(np.float32) + 100.0
    found = manifold(real, real)
    assert (found.precision, found.recall, found.coverage) == (1.0, 1.0, 1.0)
    assert found.density == pytest.approx(6 / 5)  # each ball holds its five neighbours and its own centre
    same = manifold(np.ones((9, 3)), np.ones((9, 3)))
    assert (same.precision, same.recall, same.coverage) == (1.0, 1.0, 1.0)


def test_neighbours_must_be_there() -> None:
    with pytest.raises(DataError):
        manifold(drawn(5, 0), drawn(30, 1))
    with pytest.raises(ValueError, match="neighbours"):
        radii(np.zeros((3, 3)), 3)


# Two-sample tests.


def test_a_classifier_sees_a_shift_and_nothing_where_there_is_nothing() -> None:
    nothing = [two_sample_auc(drawn(150, seed), drawn(150, 100 + seed), seed) for seed in range(20)]
    assert abs(np.mean(nothing) - 0.5) < 0.03
    shifted = two_sample_auc(drawn(300, 0), drawn(300, 1, shift=1.0), 0)
    assert shifted == pytest.approx(0.76, abs=0.05)  # Phi(1 / sqrt 2), the best there is
    assert two_sample_auc(drawn(100, 0), drawn(100, 1, shift=30.0), 0) == 1.0


def test_scale_of_a_feature_does_not_matter_to_the_classifier() -> None:
    one, other = drawn(100, 0), drawn(100, 1, shift=0.7)
    units = np.array([1e-3, 1.0, 50.0, 1.0, 1e4, 1.0])
    assert two_sample_auc(one * units + 5.0, other * units + 5.0, 3) == pytest.approx(two_sample_auc(one, other, 3))


def test_copies_mislead_the_classifier() -> None:
    rows = drawn(60, 0, 40)
    assert two_sample_auc(rows, rows, 0) < 0.4


def test_words_tell_sets_apart_that_share_no_encoder() -> None:
    plain, marked = texts(100, 0), [f"{text} always" if index % 2 else text for index, text in enumerate(texts(100, 1))]
    assert two_sample_words_auc(plain, marked, 0) == pytest.approx(0.75, abs=0.08)
    assert two_sample_words_auc(plain, texts(100, 2), 0) == pytest.approx(0.5, abs=0.12)
    shouted = [text.upper() + "!" for text in texts(100, 2)]
    assert two_sample_words_auc(plain, shouted, 0) == two_sample_words_auc(plain, texts(100, 2), 0)


def test_mmd_is_its_definition() -> None:
    one, two = drawn(7, 0, 2), drawn(9, 1, 2, shift=1.0)
    pairs = [np.linalg.norm(two[i] - two[j]) for i in range(9) for j in range(i)]
    width = np.median(np.square(pairs))

    def kernel(x: np.ndarray, y: np.ndarray) -> float:
        return math.exp(-((x - y) ** 2).sum() / (2 * width))

    within = [
        np.mean([kernel(rows[i], rows[j]) for i in range(len(rows)) for j in range(len(rows)) if i != j])
        for rows in (one, two)
    ]
    between = np.mean([kernel(x, y) for x in one for y in two])
    assert mmd(one, two) == pytest.approx(sum(within) - 2 * between)
    assert mmd(np.ones((5, 3)), np.ones((4, 3))) == pytest.approx(0.0)


def test_mmd_has_no_bias_and_sees_a_shift() -> None:
    values = [mmd(drawn(20, seed), drawn(20, 1000 + seed)) for seed in range(200)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200)
    assert min(values) < 0
    assert mmd(drawn(50, 0), drawn(50, 1, shift=2.0)) > 5 * np.std(values)


# Lengths and diversity.


def test_the_distance_of_lengths_is_in_words() -> None:
    assert length_distance(["a b", "a b c"], ["a b c d", "a b c d e"]) == pytest.approx(2.0)
    assert length_distance(["a, b!"], ["a b"]) == 0.0


def test_diversity_counts_words_duplicates_and_ngrams() -> None:
    found = diversities({"one": ["a b a b", "A b, a b", "c"], "other": ["a b c d", "e f g", "h i"]})
    assert found["one"].words == 3.0
    assert found["one"].duplicates == pytest.approx(1 / 3)
    assert found["one"].distinct_1 == pytest.approx(3 / 9)
    assert found["one"].distinct_2 == pytest.approx(2 / 6)
    assert (found["other"].distinct_1, found["other"].distinct_2, found["other"].distinct_3) == (1.0, 1.0, 1.0)
    assert found["one"].deciles[4] == 4.0
    assert math.isnan(diversities({"short": ["a", "b"]})["short"].distinct_2)


def test_a_longer_set_is_not_less_diverse_for_its_length() -> None:
    short, long = texts(200, 0, 500, 6), texts(200, 1, 500, 40)
    alone, beside = diversities({"long": long})["long"], diversities({"long": long, "short": short})
    assert alone.distinct_1 < 0.7 * beside["long"].distinct_1
    assert beside["long"].distinct_1 == pytest.approx(beside["short"].distinct_1, abs=0.05)


def test_bins_of_lengths_hold_every_text_once() -> None:
    sets = {"one": [*texts(200, 0, longest=70), "x " * 900], "other": texts(50, 1, longest=10)}
    bins = length_bins(sets)
    assert all(after.first == before.last + 1 for before, after in pairwise(bins))
    assert (bins[0].first, bins[-1].last) == (0, 900)
    assert bins[-1].first < 100
    for name, side in sets.items():
        assert sum(one.shares[name] for one in bins) == pytest.approx(1.0)
        counted = [sum(one.first <= len(text.split()) <= one.last for text in side) / len(side) for one in bins]
        assert [one.shares[name] for one in bins] == pytest.approx(counted)


# All together.


def audit(synthetic: EmbeddedTexts, public: EmbeddedTexts | None = None, seed: int = 0) -> FidelityAudit:
    others = (sample(120, 1), sample(130, 2), public or sample(200, 3, shift=2.5, words=90, longest=25))
    return fidelity(Sides(synthetic, *others), seed, repeats=2)


def test_real_texts_are_at_the_floor_and_others_are_not() -> None:
    real, other = audit(sample(150, 9)), audit(sample(150, 9, shift=2.5, scale=0.4, words=90, longest=25))
    assert {name for name, one in real.measures.items() if one.better == "lower"} == LOWER
    assert {name for name, one in real.measures.items() if one.better == "higher"} == HIGHER
    assert list(real.measures) == list(other.measures)
    for name, alike in real.measures.items():
        unlike, sign = other.measures[name], 1.0 if alike.better == "lower" else -1.0
        assert alike.n == 120
        assert alike.floor == unlike.floor
        assert alike.floor_low <= alike.floor <= alike.floor_high
        assert alike.value == pytest.approx(alike.unseen, abs=0.25 * max(1.0, abs(alike.floor)))
        if name not in ("precision", "density"):  # narrower texts are more precise
            assert sign * (unlike.value - alike.floor) > 2 * abs(alike.value - alike.floor)
        assert alike.public is not None
        assert sign * (alike.public - alike.floor) > 0


def test_copies_of_members_are_nearer_to_them_than_to_the_holdout() -> None:
    found = audit(sample(120, 1)).measures
    for name in ("frechet", "wasserstein", "mmd", "c2st", "c2st_words"):
        assert found[name].value < found[name].floor_low
        assert found[name].value < found[name].unseen
    assert found["wasserstein"].value == pytest.approx(0.0, abs=1e-9)
    assert found["mauve"].value > found["mauve"].unseen
    assert found["coverage"].value == 1.0


def test_too_few_public_texts_are_left_out() -> None:
    found = audit(sample(60, 9), public=sample(30, 3))
    assert {one.public for one in found.measures.values()} == {None}
    assert set(found.diversity) == {"synthetic", "train", "holdout"}
    assert found.n == 60


def test_a_limit_bounds_every_measure() -> None:
    sides = Sides(sample(80, 0), sample(90, 1), sample(70, 2), sample(60, 3))
    assert {one.n for one in fidelity(sides, 0, most=40, repeats=1).measures.values()} == {40}


def test_shares_of_labels_are_those_of_the_public_list() -> None:
    found = label_shares(("a", "b"), {"synthetic": ["a", "a", "b", None], "train": ["b"]})
    assert found == {"synthetic": {"a": 0.5, "b": 0.25}, "train": {"a": 0.0, "b": 1.0}}
    assert label_shares((), {"train": ["what somebody wrote"]}) == {}


def test_json_has_the_published_shape_and_no_text() -> None:
    document = replace(audit(sample(60, 9)), labels={"train": {"a": 0.25, "b": 0.75}}).to_json("dp3")
    assert FidelityAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert (document["variant"], document["zone"], document["diversity"]["n"]) == ("dp3", "internal", 60)
    assert set(document["measures"]) == LOWER | HIGHER
    assert set(document["measures"]["mauve"]) == {
        "better", "n", "value", "unseen", "public", "floor", "floor_low", "floor_high",
    }  # fmt: skip
    assert set(document["lengths"][0]) == {"first", "last", "synthetic", "train", "holdout", "public"}
    assert set(document["diversity"]["train"]) == {
        "words", "deciles", "duplicates", "distinct_1", "distinct_2", "distinct_3",
    }  # fmt: skip
    assert "w1" not in json.dumps(document)


def test_samples_that_cannot_be_measured_are_errors() -> None:
    with pytest.raises(DataError):
        audit(sample(19, 0))
    with pytest.raises(ModelError):
        EmbeddedTexts(np.full((1, 2), np.nan), ["a"])
    with pytest.raises(ValueError, match="1 and 2"):
        EmbeddedTexts(np.zeros((1, 2)), ["a", "b"])


def test_the_stage_measures_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (FILE, RESOLVED):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("private", "public", "synthetic"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    own = texts(75, 0)
    write_split(
        "data/private/train.parquet", [SplitRow(text, None, guess=row < 25) for row, text in enumerate(own[:30])]
    )
    write_split("data/private/holdout.parquet", [SplitRow(text, None, guess=True) for text in own[30:55]])
    write_public("data/public/train.parquet", [Record(text) for text in texts(30, 1)])
    apart = drawn(30, 1, 384).astype(np.float32) + 9.0
    np.savez("data/public/embeddings.npz", texts=apart, descriptions=np.zeros((1, 384)))
    write_synthetic([Record(text, "returns") for text in own[55:]], "data/synthetic/dp3", "text", "label")
    fidelity_audit.run("dp3")
    found = json.loads(Path("reports/metrics/dp3/fidelity.json").read_text())
    assert {one["n"] for one in found["measures"].values()} == {20}
    assert found["measures"]["c2st"]["public"] > 0.95 > found["measures"]["c2st"]["value"]
