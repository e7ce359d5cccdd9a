"""Models made for a run: an encoder that sees only a text's words, and a language model that learned nothing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel

from palimpsest.files import write_json
from palimpsest.models.lm import save_lm
from palimpsest.models.tokens import END, PAD, SEPARATOR, with_specials

_WIDTH, _CONTEXT = 16, 24  # of the language model: states, and tokens of its longest sequence
_UNKNOWN = "qux"  # stands for every word that the models do not know; an ordinary word, so that texts keep their length


def save_encoder(words: Sequence[str], folder: Path) -> None:
    """Save an encoder with a direction for each word: a text's vector counts its words, in any order.

    Texts without a word in common are orthogonal, so each canary can have a public text that is near it only.
    """
    directions = np.eye(len(words) + 1, dtype=np.float32)  # the last one for unknown words
    network = StaticEmbedding(_splitter([*words, _UNKNOWN]), embedding_weights=directions)
    made = SentenceTransformer(modules=[network], device="cpu", trust_remote_code=False)
    made.save(str(folder), create_model_card=False)
    write_json(folder / "config.json", {})  # by which a folder is known to hold a model


def save_base(words: Sequence[str], sharpness: float, seed: int, folder: Path) -> None:
    """Save a GPT-2 of one layer with random weights, whose tokens are whole words.

    `sharpness` is the standard deviation of its weight matrices: a large one makes its next word depend on the input.
    """
    listed = [END, PAD, SEPARATOR, *words, _UNKNOWN]
    tokenizer = with_specials(_splitter(listed), _CONTEXT)
    config = GPT2Config(
        vocab_size=len(listed),
        n_positions=_CONTEXT,
        n_embd=_WIDTH,
        n_layer=1,
        n_head=2,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=sharpness,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_lm(GPT2LMHeadModel(config), tokenizer, folder)


def _splitter(words: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer
