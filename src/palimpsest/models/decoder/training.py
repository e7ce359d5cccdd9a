"""Training of a decoder on public sentences and their embeddings, and the folder that it is kept in.

Ordinary training: nothing private may be among the sentences.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import regex
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedTokenizerBase

from palimpsest.devices import device
from palimpsest.errors import ModelError
from palimpsest.files import atomic_path, write_json
from palimpsest.models.decoder.network import Network
from palimpsest.models.descent import Kept, descend, key_of, length_batches, recent_mean, rise_and_cosine
from palimpsest.models.lm import load_lm, save_lm
from palimpsest.models.settings import DecoderSettings
from palimpsest.models.tokens import encode_texts, specials
from palimpsest.records.segment import STOPS, count_parts

LM, MAPS, FACTS = "lm", "maps.safetensors", "decoder.json"  # what a decoder's folder holds
CORRECTOR = "corrector"  # and, where one was trained, in a folder of the same form
_WORD_EPOCHS, _WORD_BATCH, _WORD_RATE = 2, 128, 3e-3  # the words are learned alone first: that takes a minute
_WORD_NOISE = 0.5  # length of the random vector added to an embedding meanwhile
_NOISE = 0.1  # length of the random vector added to an embedding of length 1 when all is learned
_RARE = 0.1  # texts that a token is in beside those where it is
_MAPS_SHARE, _WORDS_SHARE = 0.4, 0.2  # of the language model's learning rate
_BETAS = (0.9, 0.98)
_TAG = re.compile(r"<br ?/?>")
_SPACE = re.compile(r"\s+")
_BOUNDARY = regex.compile(rf'(?<=[.!?])\s+(?=[A-Z"\p{{Lo}}])|(?<=[{STOPS}])\s*')  # most scripts have no capitals
_FEWEST, _MOST = 4, 28  # words: shorter ones say little, longer ones are more than one embedding holds
_LONGEST = 200  # characters, unless it is quoted: lists and tables are longer


def split_sentences(text: str) -> list[str]:
    """The usable sentences of a text, in order: 4 to 28 words, no small letter in front."""
    plain = _SPACE.sub(" ", _TAG.sub(" ", text)).strip()
    return [sentence for sentence in _BOUNDARY.split(plain) if _is_usable(sentence)]


def sentences_of(texts: Iterable[str]) -> list[str]:
    """The distinct usable sentences of public texts, in order of appearance; case does not tell two apart.

    >>> sentences_of(["A man walks in.<br /> He sits down there. A MAN walks in.", "No."])
    ['A man walks in.', 'He sits down there.']
    """
    distinct: dict[str, str] = {}
    for text in texts:
        for sentence in split_sentences(text):
            distinct.setdefault(sentence.lower(), sentence)
    return list(distinct.values())


def _is_usable(sentence: str) -> bool:
    words, first = count_parts(sentence), sentence[:1]
    begins = first == '"' or (first.isalpha() and not first.islower() and len(sentence) < _LONGEST)
    return begins and _FEWEST <= words <= _MOST


def train_decoder(
    lm_folder: Path,
    sentences: Sequence[str],
    embeddings: np.ndarray,
    settings: DecoderSettings,
    seed: int,
    folder: Path,
    encoder: str,
    kept: Path | None = None,
) -> dict[str, float]:
    """Teach a language model to write the sentence that an embedding belongs to.

    First only the words are learned: how much an embedding raises the log-probability of each token, a softmax
    regression. Then everything is trained together, including the language model's weights.

    Args:
        lm_folder: a causal language model, as `load_lm` reads it; it is not changed.
        sentences: public sentences; those of more than `settings.max_tokens` tokens are left out.
        embeddings: one for each, shape (n, d), L2 norm 1.
        seed: seeds the fresh weights, the order of the sentences, and the noise on their embeddings.
        folder: the decoder, written whole or not at all.
        encoder: the fingerprint of the encoder (`models.vectors.fingerprint_of`); kept beside the weights.
        kept: the folder of a long training's states; None keeps none.

    Returns:
        word_loss (nats per distinct token, at the end of the first part), train_loss (nats per token, of the last tenth
        of the steps), steps, sentences (trained on), parameters.

    Raises:
        ModelError: no sentence is left, the embeddings are not one finite vector per sentence, or sentences of
            `settings.max_tokens` do not fit the language model.
    """
    lm, tokenizer = load_lm(lm_folder)
    _require_room(int(lm.config.get_text_config().max_position_embeddings), settings)
    texts, wanted = _material(tokenizer, sentences, embeddings, settings)
    vectors = wanted.to(device())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Network(lm, specials(tokenizer), vectors.shape[1], settings.prefix, settings.width)
    network.to(vectors.device)
    network.centre.copy_(vectors.mean(dim=0))
    word_losses = _learn_words(network, texts, vectors, seed)
    losses = learn(network, texts, vectors, settings, seed, kept=kept)
    save(network, tokenizer, settings, encoder, folder)
    return {
        "word_loss": recent_mean(word_losses),
        "train_loss": recent_mean(losses),
        "steps": len(losses),
        "sentences": len(texts),
        "parameters": sum(weight.numel() for weight in network.parameters()),
    }


def _require_room(context: int, settings: DecoderSettings) -> None:
    texts = 2 if settings.corrector else 1  # a corrector reads one before it writes one
    if (longest := settings.prefix + 1 + texts * settings.max_tokens) > context:
        raise ModelError(
            f"A sentence and what stands before it need {longest} positions; the language model has {context}.",
            "Lower max_tokens or prefix of the decoder, or use a language model with a longer context.",
        )


def _material(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], embeddings: np.ndarray, settings: DecoderSettings
) -> tuple[list[list[int]], torch.Tensor]:
    """Token ids of the sentences to train on, and their embeddings (n, d)."""
    vectors = np.asarray(embeddings, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(sentences) or not np.isfinite(vectors).all():
        raise ModelError(
            "The embeddings to train the decoder on are not one finite vector per sentence.",
            "Encode the sentences again, in their order.",
        )
    encoded = encode_texts(tokenizer, sentences, settings.max_tokens + 1)
    kept = [index for index, text in enumerate(encoded) if 0 < len(text) <= settings.max_tokens][: settings.sentences]
    if not kept:
        raise ModelError(
            "There is no public sentence to train the decoder on.",
            "Name a public file with texts, or raise max_tokens.",
        )
    return [encoded[index] for index in kept], torch.from_numpy(vectors[kept])


def _learn_words(network: Network, texts: list[list[int]], vectors: torch.Tensor, seed: int) -> list[float]:
    """Fit the map from an embedding to the words that are in its text; the loss of each step.

    A token's probability is its frequency in any text times exp of the map's output, normalised.
    """
    coins = torch.Generator().manual_seed(seed)
    counts = torch.full((network.words.out_features,), _RARE)
    for text in texts:
        counts[sorted(set(text))] += 1.0
    usual = (counts / counts.sum()).log().to(vectors.device)
    words = network.words.parameters()
    optimizer = torch.optim.AdamW(words, lr=_WORD_RATE, betas=_BETAS, weight_decay=0.0, fused=True)
    epochs = (torch.randperm(len(texts), generator=coins).split(_WORD_BATCH) for _ in range(_WORD_EPOCHS))
    steps = _WORD_EPOCHS * -(-len(texts) // _WORD_BATCH)
    rates = LambdaLR(optimizer, lambda step: 1.0 - step / max(1, steps))
    drawn = ((batch, _blur(vectors[batch], _WORD_NOISE, coins)) for batch in chain.from_iterable(epochs))

    def loss(one: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        chosen = [sorted(set(texts[index])) for index in one[0].tolist()]
        rows = torch.tensor([row for row, tokens in enumerate(chosen) for _ in tokens], device=vectors.device)
        columns = torch.tensor([token for tokens in chosen for token in tokens], device=vectors.device)
        scores = network.words(network.scale(one[1])) + usual
        return -functional.log_softmax(scores, dim=1)[rows, columns].mean()

    return descend(network.words, drawn, loss, rates, name="words", steps=steps, private=False)


def learn(
    network: Network,
    texts: Sequence[Sequence[int]],
    vectors: torch.Tensor,
    settings: DecoderSettings,
    seed: int,
    earlier: Sequence[Sequence[int]] = (),
    kept: Path | None = None,
) -> list[float]:
    """Fit the whole network; the loss of each step.

    Args:
        vectors: the wanted embeddings (n, d), followed by those of earlier texts where they are read: (n, 2 d).
        earlier: tokens of the earlier texts.
        kept: the folder of a long training's states; None keeps none.
    """
    steps = max(1, round(settings.epochs * len(texts) / settings.batch))
    coins = torch.Generator().manual_seed(seed)
    rates = LambdaLR(_optimizer(network, settings), lambda step: rise_and_cosine(step, steps))
    batches = length_batches([len(text) for text in texts], settings.batch, steps, coins)

    def drawn() -> Iterator[tuple[list[int], torch.Tensor]]:
        for batch in batches:
            wanted, beside = vectors[batch].tensor_split([network.dimension], dim=1)
            yield batch, torch.cat([_blur(wanted, _NOISE, coins), beside], dim=1)

    def loss(one: tuple[list[int], torch.Tensor]) -> torch.Tensor:
        batch, read = one
        before = [earlier[index] for index in batch] if earlier else ()
        return network.loss(read, [texts[index] for index in batch], before)

    about = (*texts, *earlier, vectors.cpu().numpy().tobytes(), settings, seed)
    state = None if kept is None else Kept(kept, key_of(network.lm, about))
    return descend(
        network,
        drawn(),
        loss,
        rates,
        name="decoder",
        steps=steps,
        private=False,
        precision=settings.precision,
        kept=state,
    )


def _optimizer(network: Network, settings: DecoderSettings) -> torch.optim.AdamW:
    """AdamW with separate learning rates for the language model, the maps and the words; no weight decay of vectors."""
    words, lm = (set(map(id, part.parameters())) for part in (network.words, network.lm))
    kinds: dict[tuple[float, float], list[nn.Parameter]] = {}
    for weight in network.parameters():
        share = 1.0 if id(weight) in lm else _WORDS_SHARE if id(weight) in words else _MAPS_SHARE
        kinds.setdefault((share, settings.decay() if weight.dim() > 1 else 0.0), []).append(weight)
    groups = [
        {"params": weights, "lr": share * settings.learning_rate, "weight_decay": decay}
        for (share, decay), weights in kinds.items()
    ]
    return torch.optim.AdamW(groups, betas=_BETAS, fused=True)


def _blur(vectors: torch.Tensor, length: float, coins: torch.Generator) -> torch.Tensor:
    """Unit vectors (B, d) moved by this length in random directions, and back on the sphere."""
    directions = functional.normalize(torch.randn(vectors.shape, generator=coins).to(vectors.device), dim=1)
    return functional.normalize(vectors + length * directions, dim=1)


def save(
    network: Network, tokenizer: PreTrainedTokenizerBase, settings: DecoderSettings, encoder: str, folder: Path
) -> None:
    """Write a network to a folder, whole or not at all; `encoder` is the fingerprint of its embeddings' encoder."""
    maps = {name: value for name, value in network.state_dict().items() if not name.startswith("lm.")}
    facts = {"encoder": encoder, "dimension": network.dimension, "prefix": settings.prefix, "width": settings.width}
    facts |= {"earlier": network.earlier} if network.earlier else {}
    with atomic_path(folder) as draft:
        save_lm(network.lm, tokenizer, draft / LM)
        save_file(maps, draft / MAPS)
        write_json(draft / FACTS, facts)
