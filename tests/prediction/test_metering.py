"""A wave through a real ledger and a real view: what is counted, and what a stopped run keeps and may still draw."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.prediction.decoding import BatchWriter, Rules
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy.accounting import is_private, total_rho
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from tests.prediction.tiny import model
from tests.prediction.world import DIFFERENCE, LABELS, ROWS, VECTOR, Counted, freeze, new_ledger, opened, request, wave

KINDS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "sparse vector": {"vector": VECTOR},
    "difference": {"clipping": DIFFERENCE},
}


class Crash(Exception):
    """A model that fails in the middle."""


@contextmanager
def failing(after: int) -> Iterator[list[int]]:
    """The model raises at its n-th forward pass; how many contexts each pass read."""
    read: list[int] = []

    def count(_module: Any, _given: Any, named: Any) -> None:
        if len(read) == after:
            raise Crash
        read.append(len(named["input_ids"]))

    handle = model().base_model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield read
    finally:
        handle.remove()


@contextmanager
def counted() -> Iterator[Counter[int]]:
    """Private draws of each batch, by the batch whose contexts were summed for them."""
    found: Counter[int] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        frozen = freeze(patch)
        try:
            yield found
        finally:
            found.update(batch for batch, _ in frozen.draws() if batch is not None)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def asked(ledger: Ledger, *queries: WriteWave, seed: int | None = None, rows: Any = ROWS) -> list[Any]:
    """One attempt of a run of these waves."""
    with opened(ledger, [request(query) for query in queries], rows, seed) as session:
        return [session.view.ask(query) for query in queries]


def two_waves(folder: Path | None = None, **changes: Any) -> list[WriteWave]:
    parts = [("wave 0", 0, 2), ("wave 1", 2, 4)]
    return [
        replace(wave(**changes), name=name, first=first, last=last, checkpoints=folder) for name, first, last in parts
    ]


# One run.


@pytest.mark.parametrize("kind", KINDS)
def test_waves_are_charged_side_by_side(ledger: Ledger, tmp_path: Path, kind: str) -> None:
    written = asked(ledger, *two_waves(**KINDS[kind]))
    charges = ledger.charges("tiny")
    assert [(charge.state, charge.steps, charge.steps_begun) for charge in charges] == [("committed", 8, 8)] * 2
    assert len({charge.partition for charge in charges}) == 2
    rules = wave(**KINDS[kind]).rules
    rho = 8 * (rules.clipping.rho + (VECTOR.rho if kind == "sparse vector" else 0.0))
    assert total_rho(charges[0].event) == pytest.approx(rho)
    assert ledger.balance("tiny").used == pytest.approx([order * rho for order in ledger.asset("tiny").orders])
    assert [batch["label"] for found in written for batch in found] == [name for name in LABELS for _ in range(2)]
    json.dumps(written)


def test_a_wave_without_clipping_is_no_release() -> None:
    assert not is_private(wave(reference=True).event())
    assert is_private(wave().event())


def test_it_runs_in_steps_alone() -> None:
    with pytest.raises(LedgerError, match="steps"):
        wave().run(ROWS, NoiseSource())


def test_a_token_is_counted_before_its_contexts_are_summed(monkeypatch) -> None:
    frozen, query = freeze(monkeypatch), wave(stride=1)
    counts: list[tuple[int, int]] = []

    class Watching(Counted):
        def begin(self, steps: int) -> None:
            sums = Counter(batch for kind, batch in frozen.events if kind == "sum")
            counts.append((self.begun, max(sums.values(), default=0)))
            super().begin(steps)

    query.run_steps(ROWS, NoiseSource(), Watching(8))
    assert counts == [(count, count) for count in range(8)]


# A run that stops.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [7, 11, 19])
def test_a_stopped_run_goes_on_under_its_charges(ledger: Ledger, tmp_path: Path, kind: str, after: int) -> None:
    """Nothing is charged twice, and the ledger never counts more than was paid for."""
    queries = two_waves(tmp_path / "kept", **KINDS[kind])
    with failing(after), pytest.raises(Crash):
        asked(ledger, *queries)
    begun = {charge.id: charge.steps_begun for charge in ledger.charges("tiny") if charge.state != "refunded"}
    assert 0 < sum(begun.values()) < 16
    written = asked(ledger, *queries)
    charges = {charge.id: charge for charge in ledger.charges("tiny") if charge.state != "refunded"}
    assert [(charge.state, charge.steps, charge.steps_begun) for charge in charges.values()] == [
        ("committed", 8, 8)
    ] * 2
    assert set(begun) <= set(charges)
    assert all(batch["private"] <= 8 for found in written for batch in found)
    rho = total_rho(queries[0].event())
    assert ledger.balance("tiny").used == pytest.approx([order * rho for order in ledger.asset("tiny").orders])


def test_no_batch_is_ahead_of_what_is_counted_where_free_tokens_part_them(monkeypatch) -> None:
    """With a sparse vector some batches draw private tokens sooner than others: the count leads the first of them."""
    frozen, meter = freeze(monkeypatch), Counted(8)
    ahead: list[tuple[int, int]] = []
    step = BatchWriter.step

    def watched(writer: BatchWriter, active: list[int]) -> None:
        step(writer, active)
        drawn = Counter(batch for batch, _ in frozen.draws() if batch is not None)
        ahead.append((max(drawn.values(), default=0), meter.begun))

    monkeypatch.setattr(BatchWriter, "step", watched)
    wave(stride=1, vector=VECTOR).run_steps(ROWS, NoiseSource(), meter)
    assert all(drawn <= begun for drawn, begun in ahead)
    assert any(drawn == begun < 8 for drawn, begun in ahead)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("after", range(4, 14, 3))
def test_no_batch_draws_more_than_was_paid_for_over_two_attempts(
    tmp_path: Path, after: int, stride: int, kept: bool
) -> None:
    query, meter = wave(checkpoints=tmp_path if kept else None, stride=stride), Counted(8)
    with counted() as first, failing(after), pytest.raises(Crash):
        query.run_steps(ROWS, NoiseSource(), meter)
    again = Counted(8, begun=meter.begun, resumed=meter.begun > 0)
    with counted() as second:
        query.run_steps(ROWS, NoiseSource(), again)
    assert max(second.values(), default=0) <= 8 - meter.begun
    assert all(first[batch] + second[batch] <= 8 for batch in range(4))
    assert again.begun == 8


def test_finished_examples_are_kept_and_unfinished_ones_dropped(tmp_path: Path) -> None:
    """Of 8 tokens in examples of 3, kept at every second token."""
    query = wave(checkpoints=tmp_path, stride=2, longest=3)

    class Ends(Counted):
        def begin(self, steps: int) -> None:
            if self.begun == 6:
                raise Crash
            super().begin(steps)

    meter = Ends(8)
    with pytest.raises(Crash):
        query.run_steps(ROWS, NoiseSource(), meter)
    kept = read_json(tmp_path / "charge.json")
    assert kept["begun"] == 6
    assert all(len(own["examples"]) >= 2 and own["drawn"] == 6 for own in kept["kept"])
    written = query.run_steps(ROWS, NoiseSource(), Counted(8, begun=6, resumed=True))
    decode = query.prompter.tokenizer.decode
    for own, batch in zip(kept["kept"], written, strict=True):
        texts = [str(decode(tokens)).strip() for tokens in own["examples"]]
        assert batch["examples"][: len(texts)] == texts
        assert (batch["private"], batch["drawn"]) == (8, 8)


def test_what_is_kept_is_outputs_alone(tmp_path: Path) -> None:
    wave(checkpoints=tmp_path / "kept", vector=VECTOR).run_steps(ROWS, NoiseSource(), Counted(8))
    (path,) = (tmp_path / "kept").iterdir()
    body = read_json(path)
    assert set(body) == {"begun", "kept"}
    assert all(set(own) == {"examples", "drawn"} for own in body["kept"])
    assert path.parent.stat().st_mode & 0o077 == 0


def crashes_behind(ledger: Ledger, queries: list[WriteWave], told: list[Any]) -> None:
    """Ask for the first wave, then end."""
    with opened(ledger, [request(query) for query in queries]) as session:
        told.append(session.view.ask(queries[0]))
        raise Crash


def test_finished_waves_are_replayed_and_not_run_again(ledger: Ledger, tmp_path: Path) -> None:
    queries = two_waves(tmp_path / "kept")
    told: list[Any] = []
    with pytest.raises(Crash):
        crashes_behind(ledger, queries, told)
    with failing(0) as read, pytest.raises(Crash):
        crashes_behind(ledger, queries, told)
    assert (read, told[1]) == ([], told[0])
    assert asked(ledger, *queries)[0] == told[0]


def test_a_kept_file_that_is_ahead_of_the_ledger_stops_the_run(tmp_path: Path) -> None:
    """Its steps are ahead of the ledger's: an old copy of the ledger was put back."""
    query, meter = wave(checkpoints=tmp_path), Counted(8, begun=3, resumed=True)
    fake = [{"examples": [[70, 71, 72]], "drawn": 5} for _ in range(4)]
    (tmp_path / "charge.json").write_text(json.dumps({"begun": 3, "kept": fake}))
    written = query.run_steps(ROWS, NoiseSource(), replace(meter))
    told = str(query.prompter.tokenizer.decode([70, 71, 72])).strip()
    assert all(batch["examples"][:1] == [told] for batch in written)
    for begun in (9, 12):
        (tmp_path / "charge.json").write_text(json.dumps({"begun": begun, "kept": fake}))
        with pytest.raises(LedgerError, match="it is an old copy"):
            query.run_steps(ROWS, NoiseSource(), replace(meter))


def test_a_first_attempt_reads_nothing_that_lies_there(tmp_path: Path) -> None:
    fake = [{"examples": [[70, 71, 72]], "drawn": 5} for _ in range(4)]
    (tmp_path / "charge.json").write_text(json.dumps({"begun": 0, "kept": fake}))
    written = wave(checkpoints=tmp_path).run_steps(ROWS, NoiseSource(), Counted(8))
    assert all(batch["drawn"] == 8 for batch in written)


def test_a_fixed_seed_keeps_nothing(ledger: Ledger, tmp_path: Path) -> None:
    queries = two_waves(tmp_path / "kept")
    with failing(12), pytest.raises(Crash):
        asked(ledger, *queries, seed=3)
    assert not (tmp_path / "kept").exists()
    before = len(ledger.charges("tiny"))
    asked(ledger, *queries, seed=3)
    assert len(ledger.charges("tiny")) > before


# Few rows and none.


@pytest.mark.parametrize("kind", KINDS)
def test_empty_batches_write_as_many_tokens(ledger: Ledger, kind: str) -> None:
    (written,) = asked(ledger, wave(**KINDS[kind]), rows=ROWS[:1])
    assert len(written) == 4
    assert all(batch["private"] == 8 or batch["drawn"] == 40 for batch in written)


def test_no_rows_at_all_give_public_text_under_difference_clipping(monkeypatch) -> None:
    """Every draw is from the public logits over the temperature, on the public candidates."""
    frozen, query = freeze(monkeypatch), wave(clipping=replace(DIFFERENCE, temperature=0.7))
    query.run_steps([], NoiseSource(), Counted(8))
    texts: list[list[int]] = [[] for _ in range(4)]
    for step, (batch, scores) in enumerate(frozen.draws()):
        assert batch is not None
        wanted, columns = public_scores(query, batch, texts[batch])
        torch.testing.assert_close(scores, wanted, atol=1e-4, rtol=0)
        index = (7 * (2 * step + 2) + 3) % len(scores)  # what the frozen draw gave back
        token = int(columns[index])
        texts[batch] = [] if token == 0 or len(texts[batch]) == 4 else [*texts[batch], token]


@torch.no_grad()
def public_scores(query: WriteWave, batch: int, text: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """What a sampler that never saw a record draws from, and the tokens."""
    prompt = query.prompter.public[query.cells.labels[batch]]
    logits = model()(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1]
    rules: Rules = query.rules
    allowed = rules.allowed.clone()
    allowed[0] = bool(text)
    columns = rules.clipping.candidates(logits, allowed).nonzero().squeeze(1)
    return logits[columns].double() / 0.7, columns


def test_no_rows_at_all_say_nothing_under_fixed_clipping(monkeypatch) -> None:
    frozen, query = freeze(monkeypatch), wave()
    query.run_steps([], NoiseSource(), Counted(8))
    assert all(not scores.any() for _, scores in frozen.draws())
