"""Parts done by two real workers give what this process gives, in its order; what is lost or fails tells nothing."""

import os
import pickle
import signal
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from palimpsest import shards
from palimpsest.audit import ngrams
from palimpsest.audit.fidelity import EmbeddedTexts, Sides, fidelity
from palimpsest.audit.ngrams import NgramAudit, ngram_audit
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.units import Released
from palimpsest.errors import DataError, ModelError
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.encoder import Encoder, _load_sent
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.load import runner_of
from palimpsest.prediction.contexts import Contexts, find_agreeing_workers
from palimpsest.prediction.decoding import BatchWriter
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy import nearest as module
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.nearest import find_nearest
from palimpsest.records.record import Record
from palimpsest.shards import ADDRESS, DASK, PROCESSES, RUNNER, ShardError, There, map_items, release_cluster
from palimpsest.workspace import WORKERS
from palimpsest_lab.twins.attacks import save_base, save_encoder
from tests.prediction.world import ROWS, VECTOR, Counted, wave
from tests.shard_work import LETTERS, SECRET, Answering, Killing, doubled, in_a_worker, letters, own, refused

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace in which parts are done by two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv(RUNNER, f"{DASK}:2")
        with release_cluster():
            assert list(map_items(doubled, [1])) == [2]
            yield folder


def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNNER, PROCESSES)


@pytest.mark.parametrize("at_once", [1, 3, 200])
def test_results_come_in_the_order_of_the_items(cluster: Path, at_once: int) -> None:
    assert list(map_items(doubled, iter(range(100)), at_once, [7])) == [2 * number for number in range(100)]
    assert list(map_items(doubled, [])) == []


def test_a_killed_worker_loses_its_part_alone(cluster: Path, tmp_path: Path) -> None:
    assert list(map_items(Killing(tmp_path, 11), range(40), 2)) == [2 * number for number in range(40)]
    times = [(tmp_path / str(item)).stat().st_size for item in range(40)]
    assert times[11] == 2
    # Besides it, what that worker had answered and nobody had fetched yet, or was about to be given.
    assert sum(times) <= 40 + 2 * 2 * shards._AHEAD  # noqa: SLF001


def test_an_error_of_ours_keeps_its_parts_and_another_says_nothing(
    cluster: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="A column is missing"):
        list(map_items(refused, [SECRET]))
    with pytest.raises(ShardError) as caught:
        list(map_items(refused, [SECRET + "!"]))
    assert "ValueError in a worker, at line" in caught.value.problem
    shown = capfd.readouterr()
    assert not any(SECRET in text for text in (caught.value.lines, shown.out, shown.err))


def test_workers_that_compute_otherwise_than_each_other_are_not_used(cluster: Path) -> None:
    shards._clients[0].wait_for_workers(2, timeout=60)  # noqa: SLF001  # one may come back from a test before
    with pytest.raises(ShardError, match="do not compute alike to the last bit"):
        next(map_items(own, [1], public=[1]))


def test_workers_listen_on_the_loopback_to_who_has_the_certificate(cluster: Path) -> None:
    children = psutil.Process().children(recursive=True)  # there may be another test's browser among them
    processes = [psutil.Process(), *(each for each in children if each.name().startswith("python"))]
    heard = {one.laddr for process in processes for one in process.net_connections("tcp") if one.status == "LISTEN"}
    assert heard
    assert {address.ip for address in heard} == {"127.0.0.1"}
    port = shards._clients[0].scheduler_info()["address"].rpartition(":")[2]  # noqa: SLF001
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)  # without a certificate, which this version asks for before all else
    assert not [path for path in (cluster / WORKERS).rglob("*") if path.is_file() and path.stat().st_size]
    assert (cluster / WORKERS).stat().st_mode & 0o077 == 0


def _there(**changes: Any) -> WriteWave:
    """A wave whose private contexts the workers read."""
    query = wave(**changes)
    heads = list(query.prompter.public.values())
    found = find_agreeing_workers(query.model, heads, [5, 7], query.shape)
    assert found is not None
    return replace(query, posts=found)


def test_a_wave_of_private_prediction_writes_what_it_writes_here(cluster: Path) -> None:
    for vector in (None, VECTOR):
        written = [
            query.run_steps(ROWS, NoiseSource(seed=3), Counted(8))
            for query in (_there(vector=vector), wave(vector=vector))
        ]
        assert written[0] == written[1]
        assert any(own["examples"] for own in written[0])


def test_contexts_have_the_states_that_they_have_here(cluster: Path) -> None:
    query = _there()
    prompts = query.prompter.contexts("praise", [f"lamp {'la ' * (number % 5)}" for number in range(20)])
    found = [Contexts(query.model, prompts, query.shape, workers) for workers in (query.posts, None)]
    some = torch.arange(20) % 3 > 0
    for read in found:
        read.step(torch.arange(20), some, some)
    there, here = (read.hidden(0, 20) for read in found)
    assert torch.equal(there, here)


def test_a_lost_worker_ends_a_wave_that_goes_on_under_its_charge(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, meter, steps = _there(checkpoints=tmp_path, stride=2, longest=3), Counted(8), iter(range(100))
    step = BatchWriter.step

    def killing(writer: BatchWriter, active: Sequence[int]) -> None:
        if next(steps) == 5:
            os.kill(min(shards._clients[0].run(os.getpid).values()), signal.SIGKILL)  # noqa: SLF001
        step(writer, active)

    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, "step", killing)
        with pytest.raises(ShardError, match="A worker was lost"):
            query.run_steps(ROWS, NoiseSource(), meter)
    shards._clients[0].wait_for_workers(2, timeout=60)  # noqa: SLF001
    again = Counted(8, begun=meter.begun, resumed=True)
    written = _there(checkpoints=tmp_path, stride=2, longest=3).run_steps(ROWS, NoiseSource(), again)
    assert meter.begun == 6
    assert again.begun == 8
    assert [own["private"] for own in written] == [8] * 4


def test_what_fails_where_an_object_stays_says_nothing(cluster: Path) -> None:
    workers = shards.posts(doubled, [1])
    assert workers is not None
    asked = workers.settle(Answering, ["a", "b", "c"])
    assert [one.ask("tell", 2)() for one in asked] == ["aa", "bb", "cc"]
    with pytest.raises(ShardError, match="ValueError in a worker, at line") as caught:
        asked[0].ask("fail", SECRET)()
    assert SECRET not in caught.value.lines
    with pytest.raises(ShardError, match="ValueError in a worker"):
        workers.settle(Answering, [SECRET])[0].ask("tell", 1)()


def test_an_object_of_a_worker_that_is_gone_is_not_waited_for(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_PATIENCE", 1)
    client, gone = shards._clients[0], "tls://127.0.0.1:1"  # noqa: SLF001
    with pytest.raises(ShardError, match="lost before its work began"):
        There(client, gone, client.submit(Answering, "a", actor=True, workers=[gone])).ask("tell", 1)


def test_workers_that_answer_otherwise_than_this_process_hold_nothing(cluster: Path) -> None:
    with pytest.raises(ShardError, match="do not compute alike to the last bit"):
        shards.posts(in_a_worker, [1])


def test_a_text_has_the_vector_that_it_has_here(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{'late ' * (number % 7)}parcel {number}" for number in range(150)]
    for batch in (1, 64):
        spread = KeptVectors(letters, LETTERS, tmp_path / f"{batch}-there", "e", batch)(texts)
        with monkeypatch.context() as patch:
            _here(patch)
            alone = KeptVectors(letters, LETTERS, tmp_path / f"{batch}-here", "e", batch)(texts)
        assert spread.tobytes() == alone.tobytes()


def test_an_encoder_is_sent_as_its_folder_which_must_be_the_same_there(tmp_path: Path) -> None:
    save_encoder(("late", "parcel"), tmp_path)
    encoder = Encoder(tmp_path)
    sent = pickle.dumps(encoder.encode_batch)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)(["late late parcel"]), encoder.encode_batch(["late late parcel"]))
    _load_sent.cache_clear()
    (tmp_path / "config.json").write_text("{ }")
    with pytest.raises(ModelError, match="another sentence encoder"):
        pickle.loads(sent)


def test_a_fitted_model_writes_what_it_writes_here(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_base(("late", "parcel", "north", "south"), 0.02, 1, tmp_path / "base")
    model, tokenizer = new_model(tmp_path / "base", 2, 16, 3)
    artifact = DpLmArtifact(model, tokenizer, {"a": 0.5, "b": 0.5}, 8, "text")
    settings = DpLmGenerate(batch=4, max_tokens=8, temperature=1.0, filters=Filters(chain=()))

    def rows(folder: Path) -> list[Record]:
        sampler = Sampler(settings, "plain", 7, FilterChain([]), shards=folder)
        return list(sampler.sample(artifact, {"a": 21, "b": 9}))

    spread = rows(tmp_path / "there")
    assert len({row.text for row in spread}) > 20
    (tmp_path / "there" / "2.json").unlink()  # as if that shard alone had not come back
    with monkeypatch.context() as patch:
        _here(patch)
        assert rows(tmp_path / "here") == rows(tmp_path / "there") == spread


def test_neighbours_are_those_that_are_found_here(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, candidates = rng.normal(size=(1000, 16)), rng.normal(size=(40, 16))
    rows[3], candidates[5] = 0.0, np.nan
    alone = [find_nearest(rows, candidates, k, blocks=(128, 16)) for k in (1, 5)]
    monkeypatch.setattr(module, "_WORTH", 0)
    spread = [find_nearest(rows, candidates, k, blocks=(128, 16)) for k in (1, 5)]
    for ours, theirs in zip(alone, spread, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_shared_ngrams_are_those_that_are_counted_here(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    texts = [" ".join(f"w{word}" for word in row) for row in rng.zipf(1.5, size=(400, 12)) % 90]
    sides = ([Record(text) for text in texts[start::4]] for start in range(3))
    released = Released(*sides, texts[3::4])
    monkeypatch.setattr(ngrams, "_WORDS_OF_PART", 100)

    def counted() -> NgramAudit:
        return ngram_audit(released, texts[1::2], range(1, 9), Bootstrap(resamples=128, seed=2))

    spread = counted()
    assert spread.orders[2].train.count > 100
    _here(monkeypatch)
    assert counted() == spread


def test_fidelity_is_what_it_is_here(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    vectors, texts = rng.normal(size=(240, 8)), [f"w{number % 7} w{number % 11} of {number}" for number in range(240)]
    sides = Sides(*(EmbeddedTexts(vectors[start::4], texts[start::4]) for start in range(4)))
    spread = fidelity(sides, seed=3)
    assert len(spread.measures) > 10
    _here(monkeypatch)
    assert fidelity(sides, seed=3) == spread


def test_another_cluster_is_asked_by_tls_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_clients", [])
    monkeypatch.setenv(RUNNER, DASK)
    monkeypatch.setenv(ADDRESS, "tcp://127.0.0.1:1")
    with pytest.raises(ShardError, match="in the clear"):
        map_items(doubled, [1])
    monkeypatch.setattr(shards, "_PATIENCE", 1)
    monkeypatch.setenv(ADDRESS, "tls://127.0.0.1:1")
    with pytest.raises(ShardError, match="do not answer"):
        map_items(doubled, [1])


def test_the_runner_is_that_of_params_or_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNNER, raising=False)
    assert runner_of(tmp_path) == PROCESSES
    (tmp_path / "params.yaml").write_text("compute: {runner: dask, workers: 3}\n")
    assert runner_of(tmp_path) == f"{DASK}:3"
    (tmp_path / "params.yaml").write_text("compute: {runner: dask}\n")
    assert runner_of(tmp_path) == DASK
    monkeypatch.setenv(RUNNER, PROCESSES)
    assert runner_of(tmp_path) == PROCESSES
