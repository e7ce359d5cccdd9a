"""Embeddings are unit vectors in the order of the texts, whatever the batch size."""

import numpy as np
from sentence_transformers import SentenceTransformer

from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder

TEXTS = ["The printer jams.", "A rather longer sentence about the weather in the hills today.", "Paper is stuck.", "Hi"]


def test_unit_norm_order_and_batch_size() -> None:
    folder = resolve_encoder("embedded")
    encoder = Encoder(folder, batch=2)
    found = encoder.encode(TEXTS)
    assert found.shape == (4, encoder.dimension)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    alone = np.concatenate([Encoder(folder, batch=1).encode([text]) for text in TEXTS])
    np.testing.assert_allclose(found, alone, atol=1e-4)
    np.testing.assert_array_equal(found, encoder.encode(TEXTS))
    assert found[0] @ found[2] > found[0] @ found[1]


def test_vectors_are_computed_in_full_precision_whatever_the_weights_were_saved_in(tmp_path) -> None:
    saved = SentenceTransformer(str(resolve_encoder("embedded")), device="cpu", trust_remote_code=False)
    saved.bfloat16().save(str(tmp_path), create_model_card=False)
    saved.float()
    expected = saved.encode(TEXTS[:1], normalize_embeddings=True)
    np.testing.assert_array_equal(Encoder(tmp_path).encode_batch(TEXTS[:1]), expected)


def test_half_precision_is_near_and_not_the_same() -> None:
    whole, half = (Encoder(resolve_encoder("embedded"), half=half).encode_batch(TEXTS) for half in (False, True))
    np.testing.assert_allclose(np.linalg.norm(half, axis=1), 1.0, atol=1e-5)
    assert (whole * half).sum(axis=1).min() > 0.999
    assert np.abs(whole - half).max() > 1e-5


def test_no_texts_give_no_rows() -> None:
    encoder = Encoder(resolve_encoder("embedded"))
    assert encoder.encode([]).shape == (0, encoder.dimension)


def test_a_long_text_is_the_mean_of_its_windows_and_no_longer_than_a_short_one() -> None:
    encoder = Encoder(resolve_encoder("embedded"), batch=2)
    long = " ".join(f"{word} {number}" for number in range(300) for word in ("paper", "jams", "weather"))
    found = encoder.encode_batch([TEXTS[0], long])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(found[0], encoder.encode_batch([TEXTS[0]])[0], atol=1e-5)
    np.testing.assert_allclose(found[1], encoder.encode_batch([long])[0], atol=1e-5)
    windows = encoder._split_windows(long)  # noqa: SLF001
    assert "".join(windows) == long
    assert len(windows) > 5
    mean = encoder.encode_batch(windows).sum(axis=0)
    np.testing.assert_allclose(found[1], mean / np.linalg.norm(mean), atol=1e-4)


def test_what_stands_at_the_end_of_a_long_text_is_read() -> None:
    encoder, filler = Encoder(resolve_encoder("embedded")), "Nothing happened on that day in the valley. " * 60
    ends = encoder.encode([f"{filler}{end}" for end in ("The printer jams. " * 20, "We love this soup. " * 20)])
    about = encoder.encode(["The printer jams.", "We love this soup."])
    assert (ends @ about.T).argmax(axis=1).tolist() == [0, 1]
    assert ends[0] @ ends[1] < 0.99
