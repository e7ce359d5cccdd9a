"""A tiny language model of public sentences, and a decoder trained around it."""

from pathlib import Path

import pytest

from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.training import train_decoder
from palimpsest.models.lm import pretrain_lm
from palimpsest.models.settings import DecoderSettings, EmbeddedLm
from tests.models.decoder.toy import encode, sentences

SETTINGS = DecoderSettings(
    prefix=2, width=32, epochs=12.0, batch=16, learning_rate=0.005, max_tokens=20, sentences=10_000,
    heldout=10,
)  # fmt: skip


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that has seen the sentences without their embeddings."""
    folder = tmp_path_factory.mktemp("decoder") / "base"
    settings = EmbeddedLm(
        layers=2, width=32, heads=2, vocabulary=300, context=32, epochs=6, batch=16, learning_rate=0.005,
        weight_decay=0.0,
    )  # fmt: skip
    training, held = sentences()
    pretrain_lm(training, held, settings, 1, folder)
    return folder


@pytest.fixture(scope="session")
def settings() -> DecoderSettings:
    """How the tiny decoder is trained."""
    return SETTINGS


@pytest.fixture(scope="session")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The folder of a trained decoder, and what its training says."""
    folder = tmp_path_factory.mktemp("decoder") / "decoder"
    texts = sentences()[0]
    return folder, train_decoder(base, texts, encode(texts), SETTINGS, 5, folder, "toy")


@pytest.fixture(scope="session")
def decoder(trained: tuple[Path, dict[str, float]]) -> Decoder:
    """The trained decoder."""
    return Decoder.load(trained[0], "toy")
