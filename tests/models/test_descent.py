"""A stopped training on public text becomes what it would have become, and nothing of private text is kept."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from palimpsest.errors import ModelError
from palimpsest.models import descent, lm
from palimpsest.models.decoder.training import train_decoder
from palimpsest.models.descent import Kept, descend, key_of, length_batches, rise_and_cosine
from palimpsest.models.lm import learn_prompts, load_lm, pretrain_lm, train
from palimpsest.models.settings import DecoderSettings, EmbeddedLm, PromptWarmUp
from palimpsest.workspace import CHECKPOINTS
from stages.public import open_checkpoints
from tests.models.decoder.toy import encode, sentences

STEPS = 12


class _StopError(Exception):
    """What ends a training here."""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the state behind every step."""
    monkeypatch.setattr(descent, "_SECONDS", 0.0)


def _network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 1))


def _trained(network: nn.Module, kept: Kept | None, stop: int | None = None, precision: str = "float32") -> list[float]:
    """Train on noisy rows, drawn on the way; at `stop` somebody ends it."""
    coins = torch.Generator().manual_seed(3)
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(2))

    def drawn() -> Iterator[torch.Tensor]:
        for step, batch in enumerate(length_batches([len(str(k)) for k in range(40)], 6, STEPS, coins)):
            if step == stop:
                raise _StopError
            yield rows[batch] + 0.1 * torch.randn(len(batch), 5, generator=coins)

    matrices = [weight for weight in network.parameters() if weight.dim() > 1]
    vectors = [weight for weight in network.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "lr": 0.01}]
    rates = LambdaLR(torch.optim.AdamW(groups, lr=0.05, fused=True), lambda step: rise_and_cosine(step, STEPS))
    return descend(
        network, drawn(), lambda batch: (network(batch) - batch.sum(1, keepdim=True)).square().mean(), rates,
        name="toy", steps=STEPS, private=False, precision=precision, kept=kept,
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(stops=st.lists(st.integers(0, STEPS - 1), max_size=3))
def test_wherever_it_was_stopped_it_becomes_the_same(
    stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every weight and every loss to the last bit, however often somebody ended it."""
    whole, pieces = _network(), _network()
    losses, kept = _trained(whole, None), Kept(tmp_path_factory.mktemp("states"), key_of(pieces, ["toy"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descent, "_SECONDS", 0.0)
        for stop in sorted(stops):
            with pytest.raises(_StopError):
                _trained(_network(), kept, stop)
        assert len(list(kept.folder.iterdir())) == bool(any(stops))  # one state, the last
        assert _trained(pieces, kept) == losses
    for one, other in zip(whole.parameters(), pieces.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("always")
def test_steps_that_are_done_are_not_taken_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept(tmp_path, "toy")
    with pytest.raises(_StopError):
        _trained(_network(), kept, 9)
    capsys.readouterr()
    _trained(_network(), kept)
    assert "progress toy 3/3 " in capsys.readouterr().err


def test_a_short_training_keeps_nothing(tmp_path: Path) -> None:
    _trained(_network(), Kept(tmp_path / "states", "toy"))
    assert not (tmp_path / "states").exists()


@pytest.mark.usefixtures("always")
def test_a_broken_state_is_told_with_what_to_do(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "toy")
    with pytest.raises(_StopError):
        _trained(_network(), kept, 5)
    (state,) = tmp_path.iterdir()
    state.write_bytes(state.read_bytes()[:-40])
    with pytest.raises(ModelError, match="cannot be read") as caught:
        _trained(_network(), kept)
    assert "costs nothing" in caught.value.lines
    state.unlink()
    assert _trained(_network(), kept) == _trained(_network(), None)


def test_nothing_of_private_rows_is_kept(tmp_path: Path) -> None:
    network = _network()
    rates = LambdaLR(torch.optim.AdamW(network.parameters()), lambda step: 1.0)
    with pytest.raises(ValueError, match="private"):
        descend(
            network, [torch.ones(2, 5)], lambda batch: network(batch).mean(), rates,
            name="toy", steps=1, private=True, kept=Kept(tmp_path, "toy"),
        )  # fmt: skip
    assert not any(tmp_path.iterdir())


def test_products_alone_are_in_bf16() -> None:
    exact, rounded = _network(), _network()
    losses, near = _trained(exact, None), _trained(rounded, None, precision="bf16")
    assert losses != near
    assert near == pytest.approx(losses, rel=0.1)
    assert {weight.dtype for weight in rounded.parameters()} == {torch.float32}


def test_a_key_is_of_the_weights_and_of_all_that_decides() -> None:
    """Equal for equal trainings alone."""
    network = _network()
    key = key_of(network, [[1, 2], b"vectors", 5])
    assert key == key_of(_network(), iter([[1, 2], b"vectors", 5]))
    others = [key_of(network, about) for about in ([[1, 3], b"vectors", 5], [[1, 2], b"vector", 5], [[1, 2], b"", 6])]
    with torch.no_grad():
        network[0].bias[0] += 1e-6
    assert len({key, *others, key_of(network, [[1, 2], b"vectors", 5])}) == 5


@pytest.fixture(scope="module")
def shape() -> EmbeddedLm:
    """A language model of few weights."""
    return EmbeddedLm(layers=1, width=16, heads=2, vocabulary=300, context=32, epochs=3, batch=8)


@contextmanager
def _ended(step: int) -> Iterator[None]:
    """Somebody ends the trainings inside at that step, counted over all of them."""
    left = iter(range(step))

    def tracked(items: Iterable[object], **_: object) -> Iterator[object]:
        for item in items:
            if next(left, None) is None:
                raise _StopError
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descent, "track", tracked)
        with pytest.raises(_StopError):
            yield


@pytest.mark.usefixtures("always")
def test_language_models_go_on(shape: EmbeddedLm, tmp_path: Path) -> None:
    """One that is trained from nothing, and one that learns prompts; other texts begin anew."""
    texts = sentences()[0][:48]
    whole = pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "whole")
    with _ended(7):
        pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "pieces", tmp_path / "states")
    pretrain_lm(texts[::-1], texts[:4], shape, 1, tmp_path / "other", tmp_path / "states")
    assert pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "pieces", tmp_path / "states") == whole
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "pieces", "other")]
    assert weights[0] == weights[1] != weights[2]
    prompts, labels = PromptWarmUp(batch=8, epochs=1), ["a"] * 48
    with _ended(4):
        learn_prompts(tmp_path / "pieces", texts, labels, prompts, 1, kept=tmp_path / "states")
    for name in ("whole", "pieces"):
        learn_prompts(
            tmp_path / name, texts, labels, prompts, 1, kept=tmp_path / "states" if name == "pieces" else None
        )
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "pieces"))
    assert one == other


def test_prompts_are_learned_without_dropout(
    shape: EmbeddedLm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What draws its masks from nowhere would become another model each time; OPT's layers ask the mode alone."""
    texts, modes = sentences()[0][:16], list[bool]()
    pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "lm")

    def spy(model: nn.Module, *_: object, **__: object) -> None:
        modes.append(model.training)

    monkeypatch.setattr(lm, "train", spy)
    learn_prompts(tmp_path / "lm", texts, ["a"] * 16, PromptWarmUp(batch=8, epochs=1), 1)
    assert modes == [False]


@pytest.mark.usefixtures("always")
def test_a_decoder_goes_on(shape: EmbeddedLm, tmp_path: Path) -> None:
    """Behind its words, which are learned again: they are a minute of the hour."""
    texts = sentences()[0][:64]
    pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "base")
    how = DecoderSettings(prefix=2, width=8, epochs=2, batch=8, max_tokens=20)
    whole = train_decoder(tmp_path / "base", texts, encode(texts), how, 5, tmp_path / "whole", "toy")
    states = tmp_path / "states"
    with _ended(2 + 9):
        train_decoder(tmp_path / "base", texts, encode(texts), how, 5, tmp_path / "pieces", "toy", states)
    assert [path.name.split(".")[1] for path in states.iterdir()] == ["9"]
    assert train_decoder(tmp_path / "base", texts, encode(texts), how, 5, tmp_path / "pieces", "toy", states) == whole
    for name in ("maps.safetensors", "lm/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()


@pytest.mark.usefixtures("always")
def test_an_audit_trains_without_a_state(shape: EmbeddedLm, tmp_path: Path) -> None:
    texts = sentences()[0][:16]
    pretrain_lm(texts, texts[:4], shape, 1, tmp_path / "base")
    with pytest.raises(ValueError, match="private"):
        train(load_lm(tmp_path / "base")[0], [[1, 2, 3]], shape, 1, private=True, kept=tmp_path / "states")


def test_states_stay_until_their_stage_is_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = CHECKPOINTS / "public" / "pretrain"
    with suppress(_StopError), open_checkpoints("pretrain") as found:
        found.mkdir(parents=True)
        raise _StopError
    assert folder.is_dir()
    with open_checkpoints("pretrain") as found:
        assert found == folder
    assert not folder.exists()
