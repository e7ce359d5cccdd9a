"""Every method end to end: as it is it is not refuted, with a planted fault it is."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from palimpsest import __version__, extensions
from palimpsest.cli.main import app
from palimpsest.errors import LedgerError, ParamsError
from palimpsest.files import read_json
from palimpsest.methods.registry import METHODS
from palimpsest.models.encoder import Encoder
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Reservation
from palimpsest.privacy.planned import versions_of
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import read_split, write_synthetic
from palimpsest.report.twins import is_current, read_shipped
from palimpsest.workspace import PRIVATE
from palimpsest_lab.twins import audit as twins
from palimpsest_lab.twins import faults, scenes
from palimpsest_lab.twins.attacks import Canaries, counterpart, invented_words, save_encoder
from palimpsest_lab.twins.faults import FAULTS, NO_NOISE, plant_fault
from palimpsest_lab.twins.result import ALPHA, Trial, Twin, TwinAudit, judge_scores
from palimpsest_lab.twins.scenes import COINS, GROUP
from palimpsest_lab.twins.scenes import SCENES as OWN
from palimpsest_lab.twins.settings import ASSET, DELTA
from stages import fit

SEED = 7
SCENES = {**OWN, **extensions.load_group(GROUP)}
CAUGHT, MISSED = Trial(200, 200, 200, 1.0, DELTA), Trial(200, 100, 200, 1.0, DELTA)


def test_every_method_has_a_scene_or_says_why_not():
    assert {method.name for method in METHODS if method.untwinned is None} == SCENES.keys()
    assert {method.name for method in METHODS if method.untwinned} == {"choose", "custext"}


@pytest.mark.parametrize("method", SCENES)
def test_the_code_is_not_refuted_and_its_twin_without_noise_is(method: str):
    scene = SCENES[method](SEED)
    assert NO_NOISE in scene.faults
    found = twins.audit_twins(replace(scene, faults=(NO_NOISE,)), SEED)
    assert found.verdict == "not refuted"
    assert [(twin.fault, twin.caught) for twin in found.twins] == [(NO_NOISE, True)]
    assert 0.9 < found.trial.claim <= 1.0
    assert found.trial.canaries == COINS
    twin = found.twins[0].trial
    assert found.trial.claim < twin.epsilon_lower <= twin.eps_max


def test_all_correct_runs_together_raise_few_false_alarms():
    assert len(SCENES) * ALPHA <= 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", SCENES)
def test_every_broken_version_is_caught_and_the_code_is_not_refuted(tmp_path: Path, method: str):
    found = CliRunner().invoke(app, ["twins", method, "--out", str(tmp_path), "--seed", "8"])
    assert found.exit_code == 0, found.output
    audit = read_json(tmp_path / f"{method}.json")
    assert audit["verdict"] == "not refuted"
    assert {twin["fault"]: twin["caught"] for twin in audit["twins"]} == dict.fromkeys(SCENES[method](8).faults, True)
    assert audit["versions"] == read_shipped()[method]["versions"]


# What comes with the package.


def test_every_method_with_a_scene_has_a_result_of_the_declared_versions():
    """Where a version was raised, `make twins` measures what it is now."""
    assert read_shipped().keys() == SCENES.keys()
    for method, audit in read_shipped().items():
        assert (audit["method"], audit["verdict"], audit["zone"]) == (method, "not refuted", "publishable")
        assert is_current(audit), method
        assert [twin["fault"] for twin in audit["twins"]] == list(SCENES[method](SEED).faults)
        assert all(twin["caught"] and twin["epsilon_lower"] > audit["claim"] for twin in audit["twins"])
        assert audit["epsilon_lower"] <= audit["claim"] < audit["eps_max"]
        assert audit["palimpsest"] == __version__


def test_a_leak_planted_in_a_stage_is_in_the_audited_path(monkeypatch: pytest.MonkeyPatch):
    def copying(_rows: object, *rest: object) -> None:
        leaked = [Record(counterpart(row.text), row.label) for row in read_split(PRIVATE / "train.parquet")]
        write_synthetic(leaked, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fit, "write_synthetic", copying)
    found = twins.audit_twins(replace(SCENES["select"](0), faults=()), SEED)
    assert found.verdict == "refuted"


def test_the_command_writes_one_file_and_touches_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "own.db"))
    assert CliRunner().invoke(app, ["twins", "select", "--out", "results"]).exit_code == 0
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert files == ["results/select.json"]
    assert os.environ[LEDGER_VARIABLE] == str(tmp_path / "own.db")
    assert Path.cwd() == tmp_path
    body = read_json("results/select.json")
    assert (body["method"], body["zone"], body["verdict"]) == ("select", "publishable", "not refuted")
    assert body["correct"] < body["twins"][0]["correct"] <= body["guesses"] == body["canaries"] == COINS
    assert body["versions"] == dict(versions_of("class_means"))


def test_a_claim_that_does_not_stand_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch):
    found = TwinAudit("select", MISSED, (Twin(NO_NOISE, MISSED),))
    monkeypatch.setattr(twins, "audit_twins", lambda *_: found)
    shown = CliRunner().invoke(app, ["twins", "select"])
    assert (shown.exit_code, json.loads(shown.stdout)) == (1, found.to_json())


def test_a_method_that_has_no_audit_is_named():
    with pytest.raises(ParamsError, match="custext"):
        scenes.scene_of("custext")


def test_a_package_brings_the_scene_of_its_own_method_and_of_none_of_ours(monkeypatch: pytest.MonkeyPatch):
    named = {"strange": "palimpsest_lab.twins.scenes:select", "evolve": "palimpsest_lab.twins.scenes:select"}
    points = EntryPoints(EntryPoint(name, value, GROUP) for name, value in named.items())
    monkeypatch.setattr(extensions, "_installed", lambda: points)
    assert scenes.scene_of("strange") is SCENES["select"]
    assert scenes.scene_of("evolve") is SCENES["evolve"]


# Verdicts.


@pytest.mark.parametrize(
    ("trial", "others", "verdict"),
    [
        (MISSED, (CAUGHT, CAUGHT), "not refuted"),
        (MISSED, (CAUGHT, MISSED), "inconclusive"),
        (MISSED, (), "inconclusive"),
        (CAUGHT, (CAUGHT,), "refuted"),
        (CAUGHT, (MISSED,), "refuted"),
        (Trial(5, 3, 5, 1.0, DELTA), (Trial(5, 5, 5, 1.0, DELTA),), "inconclusive"),  # five coins can refute nothing
    ],
)
def test_a_verdict_needs_every_twin(trial: Trial, others: tuple[Trial, ...], verdict: str):
    found = TwinAudit("select", trial, tuple(Twin(NO_NOISE, other) for other in others))
    assert found.verdict == found.to_json()["verdict"] == verdict


def test_the_bound_of_a_run_that_tells_everything_is_the_largest_there_is():
    assert CAUGHT.epsilon_lower == CAUGHT.eps_max > 3.0
    assert MISSED.epsilon_lower == 0.0


def test_the_higher_half_is_guessed_to_be_in():
    coins = np.arange(COINS) % 2 == 0
    assert judge_scores(coins.astype(float), coins, 1.0, DELTA, 0).correct == COINS
    assert judge_scores(-coins.astype(float), coins, 1.0, DELTA, 0).correct == 0


def test_a_perfect_attack_shows_the_most_that_is_said_of_it():
    """There are seldom as many coins of either side as guesses at it, so that not every guess can be right."""
    for seed in range(20):
        coins = np.random.default_rng(seed).random(COINS) < 0.5
        trial = judge_scores(coins.astype(float), coins, 1.0, DELTA, 0)
        assert trial.correct == trial.most == COINS - abs(int(coins.sum()) - COINS // 2)
        assert trial.epsilon_lower == trial.eps_max


def test_equal_scores_do_not_tell_coins_by_their_order():
    coins = np.arange(COINS) < COINS // 2
    assert 60 < judge_scores(np.zeros(COINS), coins, 1.0, DELTA, 3).correct < 140


# Canaries.


@pytest.mark.parametrize("method", SCENES)
def test_canaries_differ_and_none_is_public(method: str):
    scene = SCENES[method](0)
    texts = [record.text for record in scene.canaries.records]
    assert len(set(texts)) == len(texts) == COINS
    assert not set(texts) & set(scene.public)


def test_another_seed_invents_other_canaries():
    assert SCENES["select"](0).canaries.records != SCENES["select"](1).canaries.records


def test_coins_are_fair_and_thrown_anew():
    canaries = Canaries((Record("one", None),) * 4000)
    first, second = canaries.flip(), canaries.flip()
    assert 1800 < first.sum() < 2200
    assert 1800 < (first == second).sum() < 2200
    assert len(canaries.members(first)) == first.sum()


def test_invented_words_run_out():
    assert len(set(invented_words(576, 0))) == 576
    with pytest.raises(ValueError, match="577"):
        invented_words(577, 0)


def test_a_counterpart_has_the_same_vector_and_is_near_no_other_canary(tmp_path: Path):
    scene = SCENES["evolve"](0)
    save_encoder(scene.words, tmp_path)
    read = Encoder(tmp_path).encode_batch
    own, public = read([record.text for record in scene.canaries.records]), read(list(scene.public))
    assert np.array_equal(own, public)
    assert np.triu(own @ public.T, 1).max() < 0.2


# Faults.


def attributes() -> list[object]:
    return [vars(owner)[name] for changes in FAULTS.values() for owner, name, _ in changes] + [PrivateView.__init__]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_there_inside_the_block_and_gone_behind_it(fault: str):
    before = attributes()
    with plant_fault(fault, ()):
        assert sum(one is not other for one, other in zip(attributes(), before, strict=True)) == 1 + len(FAULTS[fault])
    assert attributes() == before
    with pytest.raises(KeyError, match="stop"), plant_fault(fault, ()):
        raise KeyError("stop")
    assert attributes() == before


def test_no_fault_changes_nothing():
    before = attributes()
    with plant_fault(None, ()):
        assert attributes() == before


@pytest.fixture
def open_view(tmp_path: Path) -> Callable[[str, str], PrivateView]:
    def opens(asset: str, text: str) -> PrivateView:
        schema = PublicSchema(asset, "classify", "text", n_public=30, max_length=99, label="label", labels={"a": "a"})
        ledger = Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
        return PrivateView([PrivateRow(text, "a")], schema, ledger, Reservation((), 1, {}), NoiseSource())

    return opens


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_meets_rows_or_an_asset_that_it_did_not_invent(
    open_view: Callable[[str, str], PrivateView], fault: str
):
    invented = [Record("invented", "a"), Record("other", "a")]
    with plant_fault(fault, invented):
        open_view(ASSET, "invented")
        with pytest.raises(LedgerError, match="not invented"):
            open_view(ASSET, "real")
        with pytest.raises(LedgerError, match="not invented"):
            open_view("demo", "invented")
    open_view("demo", "real")


def test_faults_do_what_they_are_called():
    noise, scores = NoiseSource(), [1, 5, 3]
    with plant_fault(NO_NOISE, ()):
        assert not noise.whole_normal(100, 9.0).any()
        assert faults.depth.gumbel_top_k(scores, 2, 1e6) == [1, 2]
    assert noise.whole_normal(100, 9.0).any()


def test_the_page_has_the_numbers_that_ship() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs/results/audit.md").read_text(encoding="utf-8")
    for name, result in read_shipped().items():
        told = f"| {result['correct']} | {result['eps_max']:.2f} |"
        assert f"| `{name}` {told}" in page or f"| {name} {told}" in page, name
