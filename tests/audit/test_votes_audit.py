"""Rounds of embedding evolution as its audit sees them: exact votes, parents, distances, and the file between."""

import json
from pathlib import Path

import numpy as np
import pytest

from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.params.load import load
from palimpsest.records.evolved import EvolvedRound, read_evolved, write_evolved
from palimpsest.records.private import SplitRow
from palimpsest.records.write import write_split
from palimpsest_lab.audits.rounds import (
    MEASURES,
    EvolutionAudit,
    Turnout,
    audit_rounds,
    draw_mixed,
    exact_votes,
    measure_rounds,
    turnouts,
)
from palimpsest_lab.stages import eda_audit

ROOT = Path(__file__).parents[2]
AXES = np.eye(4)


def near(center: int, n: int, seed: int, spread: float = 0.05) -> np.ndarray:
    """Vectors around one axis."""
    return AXES[center] + spread * np.random.default_rng(seed).normal(size=(n, 4))


def a_round(population: dict[str, np.ndarray], parents: dict[str, list[int]], dropped: int = 0) -> EvolvedRound:
    """The last `dropped` parents of each label are not readable."""
    return EvolvedRound(
        {label: rows.astype(np.float16) for label, rows in population.items()},
        {label: np.array(chosen, dtype=np.int64) for label, chosen in parents.items()},
        {label: np.arange(len(chosen)) < len(chosen) - dropped for label, chosen in parents.items()},
    )


# Votes.


def test_every_row_votes_for_the_nearest_candidate_by_cosine() -> None:
    candidates = np.stack([5.0 * AXES[0], 0.1 * AXES[1], AXES[2]])
    rows = np.concatenate([near(0, 3, 0), 7.0 * near(1, 4, 1), near(1, 1, 2)])
    assert exact_votes(rows, candidates).tolist() == [3, 5, 0]


def test_no_row_is_no_vote_and_one_that_is_zero_votes_for_none() -> None:
    assert exact_votes(np.zeros((0, 4)), AXES).tolist() == [0, 0, 0, 0]
    assert exact_votes(np.zeros((2, 4)), AXES).tolist() == [0, 0, 0, 0]


def test_a_label_votes_among_its_own_candidates() -> None:
    one = a_round({"a": AXES, "b": AXES[:2]}, {"a": [0, 3, 2], "b": [1]}, dropped=1)
    rows = {"a": np.concatenate([near(0, 6, 0), near(2, 2, 1)]), "b": near(1, 5, 2)}
    together, first, second = turnouts(one, rows)
    assert first == Turnout("a", 4, 2.0, 6.0, 3, 2)  # votes 6, 0, 2, 0
    assert second == Turnout("b", 2, 2.5, 6.25, 1, 0)  # votes 0, 5
    assert together == Turnout(None, 6, pytest.approx(13 / 6), pytest.approx((4 * 6.0 + 2 * 6.25) / 6), 4, 2)


def test_labels_of_unequal_size_that_vote_evenly_have_no_variance() -> None:
    one = a_round({"a": AXES, "b": AXES}, {"a": [0], "b": [0]})
    rows = {"a": np.repeat(AXES, 5, axis=0), "b": AXES}
    assert [found.variance for found in turnouts(one, rows)] == [0.0, 0.0, 0.0]


def test_a_label_without_rows_has_candidates_without_votes() -> None:
    together, alone = turnouts(a_round({"a": AXES}, {"a": []}), {})
    assert (together.mean, together.variance, together.selected, alone.candidates) == (0.0, 0.0, 0, 4)


# Labels in the private proportions.


def counted(rows: np.ndarray) -> list[int]:
    return np.bincount(rows.argmax(axis=1), minlength=3).tolist()


@pytest.mark.parametrize(
    ("sizes", "weights", "found"),
    [
        ((100, 100, 100), (10, 10, 10), [100, 100, 100]),
        ((100, 100, 100), (600, 300, 60), [100, 50, 10]),
        ((100, 100, 5), (10, 10, 1), [50, 50, 5]),
        ((100, 0, 50), (1, 5, 1), [50, 0, 50]),
        ((100, 60, 50), (1, 0, 1), [50, 0, 50]),
        ((0, 0, 0), (1, 1, 1), [0, 0, 0]),
    ],
)
def test_labels_are_mixed_as_private_rows_are(
    sizes: tuple[int, ...], weights: tuple[int, ...], found: list[int]
) -> None:
    rows = {label: np.repeat(AXES[place : place + 1], sizes[place], axis=0) for place, label in enumerate("abc")}
    drawn = draw_mixed(rows, dict(zip("abc", weights, strict=True)), (0,))
    assert (counted(drawn) if len(drawn) else [0, 0, 0]) == found


def test_mixing_draws_rows_once_and_by_its_seed() -> None:
    rows = {"a": np.arange(50.0)[:, None], "b": 100 + np.arange(10.0)[:, None]}
    first, again, other = (draw_mixed(rows, {"a": 3, "b": 1}, seed).ravel() for seed in ((0, 1), (0, 1), (0, 2)))
    assert len(set(first)) == len(first) == 40
    assert first.tolist() == again.tolist() != other.tolist()


# Rounds.


def world(skew: int = 1) -> tuple[list[EvolvedRound], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two rounds of which the second is nearer; the second's first 12 candidates of each label are its parents."""
    private = {"a": near(0, 60 * skew, 0), "b": near(1, 60, 1)}
    others = {"a": near(0, 50 * skew, 2), "b": near(1, 50, 3)}
    far = {"a": near(0, 40, 4, 0.6), "b": near(1, 40, 5, 0.6)}
    close = {"a": near(0, 40, 6, 0.2), "b": near(1, 40, 7, 0.2)}
    chosen = {
        label: np.argsort(np.linalg.norm(rows - AXES[place], axis=1))
        for place, (label, rows) in enumerate(close.items())
    }
    first = a_round(far, {"a": [1, 2], "b": [5]})
    second = a_round(close, {label: order[:12].tolist() for label, order in chosen.items()}, dropped=4)
    return [first, second], private, others


def test_a_nearer_round_is_nearer_and_its_parents_are_nearest() -> None:
    found = audit_rounds(*world(), seed=0)
    by_name = [{one.name: one for one in each} for each in found.populations]
    assert [list(each) for each in by_name] == [list(MEASURES)] * 2
    assert by_name[0]["wasserstein"].value > 2 * by_name[1]["wasserstein"].value
    assert by_name[1]["wasserstein"].value > by_name[1]["wasserstein"].floor
    parents = {one.name: one for one in found.parents[1]}
    assert parents["wasserstein"].value < by_name[1]["wasserstein"].value
    assert (parents["wasserstein"].n, by_name[0]["wasserstein"].n) == (24, 80)
    assert parents["wasserstein"].floor != by_name[1]["wasserstein"].floor
    assert [(each[0].selected, each[0].readable) for each in found.votes] == [(3, 3), (24, 16)]


def test_too_few_parents_have_no_distance() -> None:
    assert audit_rounds(*world(), seed=0).parents[0] == ()


def test_no_parents_at_all_are_no_error() -> None:
    rounds, train, holdout = world()
    empty = a_round(dict(rounds[0].population), {"a": [], "b": []})
    found = audit_rounds([empty], train, holdout, 0)
    assert (found.parents, found.votes[0][0].selected) == (((),), 0)
    assert found.populations[0][0].n == 80


def test_the_mix_of_labels_is_no_distance() -> None:
    """Half of the population is of label a and 9 of 10 private rows: only what it is of each label counts."""
    rounds, train, holdout = world(skew=9)
    (found,) = audit_rounds(rounds[1:], train, holdout, 0).populations
    plain = np.concatenate(list(rounds[1].population.values()))
    (naive,) = measure_rounds([plain], *(np.concatenate(list(rows.values())) for rows in (train, holdout)), 0)
    assert found[0].n == 40 + 40 // 9
    assert found[2].value < 0.6 * naive[2].value


def test_rounds_of_texts_have_distances_alone() -> None:
    audit = EvolutionAudit.of_texts(audit_rounds(*world(), seed=0).populations)
    found = audit.to_json("evolve3")
    assert (found["parents"], found["votes"]) == ([[], []], [[], []])
    assert EvolutionAudit.from_json(found) == audit


def test_the_document_is_that_of_evolve_and_more() -> None:
    found = json.loads(json.dumps(audit_rounds(*world(), seed=0).to_json("embed3")))
    assert (found["variant"], found["zone"]) == ("embed3", "internal")
    assert [[one["name"] for one in each] for each in found["rounds"]] == [list(MEASURES)] * 2
    assert [len(each) for each in found["parents"]] == [0, 3]
    assert [one["label"] for one in found["votes"][0]] == [None, "a", "b"]
    assert EvolutionAudit.from_json(found).to_json("embed3") == found
    assert set(found["votes"][0][0]) == {"label", "candidates", "mean", "variance", "selected", "readable"}


# The file.


def test_rounds_are_read_as_they_were_written(tmp_path: Path) -> None:
    rounds, _, _ = world()
    many = [rounds[index in (1, 4)] for index in range(11)]  # a tenth round comes after the second
    write_evolved(tmp_path / "x.npz", many)
    found = read_evolved(tmp_path / "x.npz")
    assert len(found) == 11
    for one, other in zip(found, many, strict=True):
        for mine, theirs in (
            (one.population, other.population),
            (one.parents, other.parents),
            (one.readable, other.readable),
        ):
            assert list(mine) == ["a", "b"]
            assert all(np.array_equal(mine[label], theirs[label]) for label in mine)
    with np.load(tmp_path / "x.npz") as file:
        assert [file[f"{kind}_1_0"].dtype for kind in ("population", "parents", "readable")] == [
            np.float16,
            np.int64,
            bool,
        ]
        assert file["labels"].tolist() == ["a", "b"]


def test_the_label_of_a_task_without_labels_is_kept(tmp_path: Path) -> None:
    write_evolved(tmp_path / "x.npz", [a_round({"": AXES}, {"": [2]})])
    assert list(read_evolved(tmp_path / "x.npz")[0].population) == [""]


def test_equal_rounds_make_equal_files(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_evolved(tmp_path / name, world()[0])
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


@pytest.mark.parametrize("damage", ["missing", "text", "cut", "other", "half"])
def test_another_file_is_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.npz"
    write_evolved(path, world()[0])
    whole, arrays = path.read_bytes(), dict(np.load(path))
    path.unlink()
    if damage == "text":
        path.write_text("no archive")
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "other":
        np.save(path.open("wb"), np.zeros(3))
    elif damage == "half":
        del arrays["readable_2_1"]
        np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"x\.npz"):
        read_evolved(path)


@pytest.mark.parametrize(("parents", "readable"), [([0, 4], [True, True]), ([-1], [True]), ([0, 1], [True])])
def test_parents_are_among_the_candidates_and_all_are_checked(parents: list[int], readable: list[bool]) -> None:
    with pytest.raises(ValueError, match="parents"):
        EvolvedRound({"a": AXES}, {"a": np.array(parents)}, {"a": np.array(readable)})


def test_rounds_of_other_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="round 2"):
        write_evolved(tmp_path / "x", [a_round({"a": AXES}, {"a": [0]}), a_round({"b": AXES}, {"b": [0]})])


# The stage.


class Spelt:
    """An encoder by a table."""

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors

    def __call__(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])

    @property
    def rows(self) -> "Spelt":
        return self


def test_the_stage_measures_the_file_of_the_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, train, holdout = world()
    vectors: dict[str, np.ndarray] = {}
    for part, rows in (("train", train), ("holdout", holdout)):
        own = {f"{part} {label} {place}": row for label, all_of in rows.items() for place, row in enumerate(all_of)}
        write_split(tmp_path / f"data/private/{part}.parquet", [SplitRow(text, text.split()[1], False) for text in own])
        vectors |= own
    write_evolved(tmp_path / "data/evolved/embed3.npz", rounds)
    params = load(ROOT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eda_audit, "load", lambda: params)
    monkeypatch.setattr(eda_audit, "encoders", lambda params: Spelt(vectors))
    eda_audit.run("embed3")
    expected = audit_rounds(rounds, train, holdout, params.seed).to_json("embed3")
    assert read_json("reports/metrics/embed3/evolution.json") == json.loads(json.dumps(expected))
