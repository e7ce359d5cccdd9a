"""Embeddings are unit vectors in the order of the texts, whatever the batch size."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import find_cut, require_usable, resolve_encoder

TEXTS = ["The printer jams.", "A rather longer sentence about the weather in the hills today.", "Paper is stuck.", "Hi"]
SCRIPTS = {
    "Latin": "Der Drucker klemmt, und das Papier steckt fest. ", "Chinese": "打印机卡纸了，纸卡在里面。",
    "Thai": "เครื่องพิมพ์กระดาษติดอยู่ข้างใน", "Devanagari": "प्रिंटर में कागज फँस गया है। ",
    "Arabic": "الطابعة عالقة والورق بداخلها. ", "full width": "ＡＢＣ　ﬁne ", "unknown": "\u13a0\u13a1 ",
}  # fmt: skip
POSITIONS = 64


def save_multilingual(folder: Path) -> None:
    """An encoder in the form of XLM-R as sentence-transformers saves it: pieces of many scripts, random weights."""
    pieces = Tokenizer(models.Unigram())
    pieces.normalizer, pieces.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    known = [text for script, text in SCRIPTS.items() if script != "unknown"]
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces.train_from_iterator(
        known, trainers.UnigramTrainer(special_tokens=specials, unk_token="<unk>", show_progress=False)
    )
    vocabulary = [tuple(piece) for piece in json.loads(pieces.to_str())["model"]["vocab"]]
    XLMRobertaTokenizer(vocab=vocabulary, model_max_length=POSITIONS).save_pretrained(folder / "base")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = XLMRobertaConfig(vocab_size=len(vocabulary), max_position_embeddings=POSITIONS + 2, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        XLMRobertaModel(config).save_pretrained(folder / "base")
    network = Transformer(str(folder / "base"))
    made = SentenceTransformer(modules=[network, Pooling(16)], device="cpu", trust_remote_code=False)
    made.save(str(folder / "encoder"), create_model_card=False)


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("multilingual")
    save_multilingual(folder)
    return folder / "encoder"


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


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_multilingual_encoder_reads_a_long_text_of_any_script_whole(multilingual: Path, script: str) -> None:
    require_usable(multilingual, writes=False)
    assert find_cut(multilingual) is None
    encoder, one = Encoder(multilingual), SCRIPTS[script]
    long = one * 60
    windows = encoder._split_windows(long)  # noqa: SLF001
    assert "".join(windows) == long
    assert len(windows) > 2
    tokenizer = encoder._model.tokenizer  # noqa: SLF001
    assert max(len(tokenizer(window, verbose=False)["input_ids"]) for window in windows) <= POSITIONS
    found = encoder.encode([f"{long}{end * 20}" for end in (one, SCRIPTS["Latin"], SCRIPTS["Chinese"])])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    assert (found[1] @ found[2]) < 0.9999  # what stands at the end is read
    assert encoder._split_windows(one) == [one]  # noqa: SLF001
