"""A decoder gets back what an embedding says, by itself, the same every time, and only for the encoder it knows."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.errors import ModelError
from palimpsest.models.decoder.correcting import train_corrector
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import nearest_cosines, reconstruction
from palimpsest.models.decoder.network import Network
from palimpsest.models.decoder.training import train_decoder
from palimpsest.models.lm import load_lm, mean_loss
from palimpsest.models.settings import DecoderSettings, DecodeSettings
from palimpsest.models.tokens import encode_texts, specials
from tests.models.decoder.toy import DIMENSION, encode, sentences

DECODE = DecodeSettings(samples=4, corrections=2, temperature=0.8, top_p=0.95, max_tokens=20, batch=7)


def how(**changes: object) -> DecodeSettings:
    return DecodeSettings.model_validate(DECODE.model_dump() | changes)


def test_unseen_sentences_come_back_nearer_than_any_that_was_seen(decoder: Decoder) -> None:
    training, held = sentences()
    found = reconstruction(decoder, held, encode(held), DECODE, encode, 3, encode(training))
    assert found.sentences == len(held)
    assert found.nearest == pytest.approx(float((encode(held) @ encode(training).T).max(axis=1).mean()), abs=1e-6)
    assert found.cosine > found.nearest + 0.5 * (1.0 - found.nearest)
    assert found.exact > 0.5
    assert found.exact <= found.token_f1 <= 1.0
    assert found.bleu > 0.5
    assert [sample.sentence for sample in found.samples] == held[:10]
    assert [sample.text for sample in found.samples] == list(found.texts[:10])


def test_what_is_said_of_a_text_is_true_of_it(decoder: Decoder) -> None:
    """Embeddings are those of the texts, cosines those with the embeddings given; no allowance is exceeded."""
    asked: list[str] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return encode(texts)

    vectors = encode(sentences()[1])
    found = decoder.decode(vectors, DECODE, counted, 3)
    np.testing.assert_array_equal(found.embeddings, encode(found.texts))
    np.testing.assert_allclose(found.cosines, (found.embeddings * vectors).sum(axis=1), rtol=1e-5)
    assert found.embeddings.dtype == found.cosines.dtype == np.float32
    assert len(asked) == DECODE.samples * len(vectors)
    assert set(found.texts) <= set(asked)


def test_the_nearest_of_the_texts_that_were_written_is_kept(decoder: Decoder) -> None:
    vectors = encode(sentences()[1])[:3]
    asked: list[str] = []

    def remembered(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return encode(texts)

    found = decoder.decode(vectors, how(samples=5, corrections=0, temperature=2.0), remembered, 3)
    own = np.array(asked).reshape(3, 5)
    for vector, texts, cosine in zip(vectors, own, found.cosines, strict=True):
        assert cosine == pytest.approx(float((encode(texts) @ vector).max()), abs=1e-6)


def test_corrections_never_make_a_text_worse(decoder: Decoder) -> None:
    """The same first texts, and more: corrections keep a beginning of the best one."""
    vectors = encode(sentences()[1])[:12]
    hot = {"temperature": 2.0, "top_p": 1.0}
    first = decoder.decode(vectors, how(samples=2, corrections=0, **hot), encode, 3)
    asked: list[str] = []

    def remembered(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return encode(texts)

    more = decoder.decode(vectors, how(samples=8, corrections=6, **hot), remembered, 3)
    assert (more.cosines >= first.cosines - 1e-6).all()
    assert more.cosines.mean() > first.cosines.mean() + 0.02
    round_ = asked[2 * len(vectors) : 3 * len(vectors)]  # the first correction of each
    kept = [len(_common(text, best)) for text, best in zip(round_, first.texts, strict=True)]
    fresh = [len(_common(text, best)) for text, best in zip(asked[: len(vectors)], first.texts[1:], strict=False)]
    assert np.mean(kept) > np.mean(fresh)


@pytest.fixture(scope="module")
def corrected(trained: tuple[Path, dict[str, float]], settings: DecoderSettings, tmp_path_factory) -> Path:
    """The decoder with a corrector beside it, and what its training says in a file."""
    folder, (training, _) = tmp_path_factory.mktemp("corrected") / "decoder", sentences()
    shutil.copytree(trained[0], folder)
    short = settings.model_copy(update={"max_tokens": 14, "corrector": 90, "epochs": 12.0})
    measured = train_corrector(folder, training, encode(training), short, 5, encode, "toy")
    assert measured["corrector_sentences"] == 90
    assert measured["corrector_steps"] == 68  # 12 * 90 / 16
    return folder


def test_a_corrector_mends_what_the_decoder_wrote(corrected: Path) -> None:
    """It is shown the best text so far, none becomes worse, and what it writes is nearer than texts written anew."""
    vectors, mending = encode(sentences()[1]), Decoder.load(corrected, "toy")
    few = {"temperature": 1.2, "top_p": 1.0, "max_tokens": 14, "corrections": 0}
    first = mending.decode(vectors, how(samples=1, **few), encode, 3)
    asked: list[str] = []

    def remembered(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return encode(texts)

    more = mending.decode(vectors, how(samples=2, rewrites=1, **few), remembered, 3)
    assert len(asked) == 2 * len(vectors)
    assert (more.cosines >= first.cosines - 1e-6).all()
    fresh, rewritten = asked[: len(vectors)], asked[len(vectors) :]
    nearness = [(encode(texts) * vectors).sum(axis=1).mean() for texts in (rewritten, fresh)]
    assert nearness[0] > nearness[1] + 0.05
    again = mending.decode(vectors[:4], how(samples=2, rewrites=1, batch=1, **few), encode, 3)
    assert again.texts == more.texts[:4]


def test_rewrites_need_a_corrector_and_room(decoder: Decoder, corrected: Path) -> None:
    vectors = encode(sentences()[1])[:1]
    with pytest.raises(ModelError, match="has no corrector") as raised:
        decoder.decode(vectors, how(rewrites=1), encode, 3)
    assert raised.value.remedy
    with pytest.raises(ModelError, match="room for 15"):
        Decoder.load(corrected, "toy").decode(vectors, how(rewrites=1), encode, 3)


def _common(text: str, other: str) -> str:
    length = next((place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), len(text))
    return text[:length]


def test_a_text_does_not_depend_on_its_neighbours_or_the_batch(decoder: Decoder) -> None:
    vectors = encode(sentences()[1])[:4]
    whole = decoder.decode(vectors, DECODE, encode, 3)
    assert decoder.decode(vectors[:2], DECODE, encode, 3).texts == whole.texts[:2]
    others = np.concatenate([vectors[:2], encode(sentences()[0][:4])])
    assert decoder.decode(others, DECODE, encode, 3).texts[:2] == whole.texts[:2]
    assert decoder.decode(vectors, how(batch=100), encode, 3).texts == whole.texts
    assert decoder.decode(vectors, how(batch=1), encode, 3).texts == whole.texts


def test_the_same_seed_writes_the_same_and_another_something_else(decoder: Decoder) -> None:
    vectors = encode(sentences()[1])
    hot = how(samples=1, corrections=0, temperature=2.0)
    assert decoder.decode(vectors, hot, encode, 3).texts == decoder.decode(vectors, hot, encode, 3).texts
    assert decoder.decode(vectors, hot, encode, 4).texts != decoder.decode(vectors, hot, encode, 3).texts
    same = decoder.decode(np.repeat(vectors[:1], 12, axis=0), hot, encode, 3).texts
    assert len(set(same)) > 1  # each place has coins of its own


def test_the_length_of_a_vector_does_not_matter(decoder: Decoder) -> None:
    vectors = encode(sentences()[1])[:5]
    scaled = vectors * np.array([[0.01], [1.0], [3.0], [1e20], [7.0]])
    found = decoder.decode(scaled, DECODE, encode, 3)
    assert found.texts == decoder.decode(vectors, DECODE, encode, 3).texts
    assert (found.cosines <= 1.0 + 1e-5).all()


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((2, DIMENSION)),
        np.full((1, DIMENSION), np.nan),
        np.full((1, DIMENSION), np.inf),
        np.ones((2, DIMENSION + 1)),
        np.ones(DIMENSION),
    ],
)
def test_what_is_no_direction_is_refused(decoder: Decoder, vectors: np.ndarray) -> None:
    with pytest.raises(ModelError, match="finite vectors of 48 numbers") as raised:
        decoder.decode(vectors, DECODE, encode, 3)
    assert raised.value.remedy


def test_nothing_to_decode_is_nothing(decoder: Decoder) -> None:
    found = decoder.decode(np.zeros((0, DIMENSION)), DECODE, encode, 3)
    assert found.texts == ()
    assert found.embeddings.shape == (0, DIMENSION)
    assert found.cosines.shape == (0,)


def test_texts_have_at_most_the_tokens_asked_for(decoder: Decoder) -> None:
    vectors = encode(sentences()[1])[:4]
    cut = decoder.decode(vectors, how(max_tokens=2, samples=1, corrections=0), encode, 3)
    assert all(0 < len(text) < 12 for text in cut.texts)
    with pytest.raises(ModelError, match="room for 29"):
        decoder.decode(vectors, how(max_tokens=30), encode, 3)


def test_another_encoder_is_refused(trained: tuple[Path, dict[str, float]]) -> None:
    with pytest.raises(ModelError, match="another encoder") as raised:
        Decoder.load(trained[0], "toy2")
    assert raised.value.remedy


def test_what_is_no_decoder_is_refused(trained: tuple[Path, dict[str, float]], base: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none", base):
        with pytest.raises(ModelError, match="holds no decoder"):
            Decoder.load(folder, "toy")
    shutil.copytree(trained[0], tmp_path / "torn")
    maps = tmp_path / "torn" / "maps.safetensors"
    maps.write_bytes(maps.read_bytes()[:100])
    with pytest.raises(ModelError, match="holds no decoder"):
        Decoder.load(tmp_path / "torn", "toy")
    shutil.copytree(trained[0], tmp_path / "mixed")
    facts = tmp_path / "mixed" / "decoder.json"
    facts.write_text(facts.read_text().replace('"width": 32', '"width": 33'))
    with pytest.raises(ModelError, match="do not fit"):
        Decoder.load(tmp_path / "mixed", "toy")


def test_training_is_reproducible_and_leaves_the_language_model_alone(
    base: Path, settings: DecoderSettings, tmp_path: Path
) -> None:
    """Folders of equal content, from equal seeds; torch's own coins are neither used nor moved."""
    texts, before = sentences()[0][:40], (base / "model.safetensors").read_bytes()
    short = settings.model_copy(update={"epochs": 1.0})
    torch.manual_seed(1)
    untouched = torch.random.get_rng_state()
    measured = train_decoder(base, texts, encode(texts), short, 5, tmp_path / "a", "toy")
    assert torch.equal(torch.random.get_rng_state(), untouched)
    torch.manual_seed(2)
    assert train_decoder(base, texts, encode(texts), short, 5, tmp_path / "b", "toy") == measured
    train_decoder(base, texts, encode(texts), short, 6, tmp_path / "c", "toy")
    for name in ("maps.safetensors", "lm/model.safetensors"):
        one, two, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert one == two != other
    assert (base / "model.safetensors").read_bytes() == before
    assert measured["sentences"] == 40
    assert measured["steps"] == 2  # 40 / 16, rounded


def test_a_loaded_decoder_writes_what_was_trained(
    base: Path, settings: DecoderSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every weight comes back, the language model's too."""
    texts = sentences()[0][:40]
    made: list[Network] = []
    monkeypatch.setattr(
        "palimpsest.models.decoder.training.Network", lambda *sizes: made.append(Network(*sizes)) or made[0]
    )
    train_decoder(base, texts, encode(texts), settings.model_copy(update={"epochs": 1.0}), 5, tmp_path / "a", "toy")
    tokenizer = load_lm(base)[1]
    rows = encode_texts(tokenizer, texts[:8], 20)
    loaded = Decoder.load(tmp_path / "a", "toy").network
    with torch.no_grad():
        vectors = torch.from_numpy(encode(texts[:8]))
        assert float(loaded.loss(vectors, rows)) == float(made[0].loss(vectors, rows))


def test_sentences_that_cannot_be_learned_are_left_out_or_refused(
    base: Path, settings: DecoderSettings, tmp_path: Path
) -> None:
    texts = [*sentences()[0][:30], "word " * 40, ""]
    one = settings.model_copy(update={"epochs": 0.01})
    assert train_decoder(base, texts, encode(texts), one, 5, tmp_path / "a", "toy")["sentences"] == 30
    few = one.model_copy(update={"sentences": 7})
    assert train_decoder(base, texts, encode(texts), few, 5, tmp_path / "a", "toy")["sentences"] == 7
    with pytest.raises(ModelError, match="no public sentence"):
        train_decoder(base, texts[-2:], encode(texts[-2:]), one, 5, tmp_path / "b", "toy")
    with pytest.raises(ModelError, match="one finite vector per sentence"):
        train_decoder(base, texts, encode(texts)[:-1], one, 5, tmp_path / "b", "toy")
    with pytest.raises(ModelError, match="one finite vector per sentence"):
        train_decoder(base, texts, np.full((32, 4), np.nan), one, 5, tmp_path / "b", "toy")
    reading = one.model_copy(update={"max_tokens": 15, "corrector": 9})
    with pytest.raises(ModelError, match="need 33 positions"):
        train_decoder(base, texts, encode(texts), reading, 5, tmp_path / "b", "toy")
    with pytest.raises(ModelError, match="need 33 positions"):
        train_decoder(base, texts, encode(texts), one.model_copy(update={"max_tokens": 30}), 5, tmp_path / "b", "toy")
    assert not (tmp_path / "b").exists()


def test_nearest_cosines_are_those_of_the_nearest() -> None:
    training, held = (encode(part) for part in sentences())
    found = nearest_cosines(np.tile(held, (12, 1)), training)  # more than one block
    np.testing.assert_allclose(found, np.tile((held @ training.T).max(axis=1), 12), rtol=1e-6)


def test_before_training_it_is_the_language_model(base: Path) -> None:
    """Pseudo tokens aside, whose values are small: about the same loss."""
    lm, tokenizer = load_lm(base)
    ids = specials(tokenizer)
    network = Network(lm, ids, DIMENSION, 1, 8)
    texts = sentences()[1]
    rows = encode_texts(tokenizer, texts, 20)
    with torch.no_grad():
        network.everywhere.weight.zero_()
        found = float(network.loss(torch.from_numpy(encode(texts)), rows))
    assert found == pytest.approx(mean_loss(lm, [[ids.bos, *row, ids.eos] for row in rows], 100), rel=0.3)
