"""From embeddings to texts: several are written for each, and the one whose own embedding is nearest is kept.

Some of them are corrections (`DecodeSettings.corrections`): one after another, each keeps a random beginning of the
best text so far and writes the rest anew. All that is read is an embedding and public models: whoever may see the
embedding may see the text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from palimpsest.devices import exact_device
from palimpsest.errors import ModelError
from palimpsest.files import read_json
from palimpsest.models.decoder.network import Network
from palimpsest.models.decoder.settings import DecodeSettings
from palimpsest.models.decoder.training import FACTS, LM, MAPS
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import specials
from palimpsest.progress import counter

Encode: TypeAlias = Callable[[Sequence[str]], np.ndarray]  # n texts -> (n, d)


@dataclass(frozen=True, eq=False)
class Decoded:
    """Texts for embeddings.

    Attributes:
        texts: one for each embedding.
        embeddings: those of the texts, float32 (n, d).
        cosines: of each text's embedding with the given one, float32 (n,).
    """

    texts: tuple[str, ...]
    embeddings: np.ndarray
    cosines: np.ndarray


class Decoder:
    """Writes down what the embeddings of one encoder say.

    Attributes:
        dimension: length d of an embedding.
        room: most tokens that a text can have.
    """

    def __init__(self, network: Network, tokenizer: PreTrainedTokenizerBase) -> None:
        """A trained network and the tokenizer of the language model inside."""
        ids, columns = specials(tokenizer), network.words.out_features
        self.network, self._tokenizer = network.to(exact_device()).eval(), tokenizer
        banned = sorted({*(ids.control - {ids.eos}), *range(len(tokenizer), columns)})
        self._banned = torch.tensor(banned, device=exact_device())
        self.dimension, self.room = network.dimension, network.room

    @classmethod
    def load(cls, folder: Path, encoder: str) -> "Decoder":
        """The decoder in a folder that `train_decoder` wrote. Runs no code of the folder.

        Raises:
            ModelError: the folder holds no decoder, or one for another encoder.
        """
        folder = Path(folder)
        try:
            facts, maps = read_json(folder / FACTS), load_file(folder / MAPS)
            trained_for, sizes = facts["encoder"], (facts["dimension"], facts["prefix"], facts["width"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise ModelError(
                f"The folder {str(folder)!r} holds no decoder that can be loaded ({type(error).__name__}).",
                "Train one with the stage decoder_pretrain.",
            ) from error
        if trained_for != encoder:
            raise ModelError(
                "The decoder was trained on embeddings of another encoder, so it would misread these.",
                "Train it again with this encoder, or put the encoder back that it was trained with.",
            )
        lm, tokenizer = load_lm(folder / LM)
        with torch.random.fork_rng():
            network = Network(lm, specials(tokenizer), *sizes)
        network.load_maps(maps)
        return cls(network, tokenizer)

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Encode, seed: int) -> Decoded:
        """A text for each embedding.

        Every vector has coins of its own, by the seed and its place: which others are decoded with it changes nothing
        but for rounding. `encode` is called with `settings.samples` texts for each vector in all.

        Args:
            vectors: shape (n, d); one that is not of length 1 is scaled to it.

        Raises:
            ModelError: a vector is zero or not finite or not of d numbers, or texts of `settings.max_tokens` do not fit
                the language model.
        """
        targets = _unit(vectors, self.dimension)
        if settings.max_tokens > self.room:
            raise ModelError(
                f"Texts of {settings.max_tokens} tokens do not fit the decoder, which has room for {self.room}.",
                "Lower decode.max_tokens.",
            )
        shape = (settings.samples, settings.max_tokens + 1)  # the last coin cuts
        coins = [np.random.default_rng([seed, index]).random(shape) for index in range(len(targets))]
        search = _Search(targets, encode)
        done = counter(name="decode", total=len(targets) * settings.samples, private=True)
        first = settings.samples - settings.corrections
        for round_ in [range(first), *([sample] for sample in range(first, settings.samples))]:
            self._round(
                search, [(index, own[sample]) for index, own in enumerate(coins) for sample in round_], settings
            )
            done(len(targets) * (round_[-1] + 1))
        return Decoded(tuple(search.texts), search.embeddings, search.cosines)

    def _round(self, search: "_Search", tries: Sequence[tuple[int, np.ndarray]], settings: DecodeSettings) -> None:
        """Write one text for each vector's index and coins, and keep what is better than before."""
        written: list[list[int]] = []
        for start in range(0, len(tries), settings.batch):
            owners, coins = zip(*tries[start : start + settings.batch], strict=True)
            best = [search.tokens[owner] for owner in owners]
            written += self.network.write(
                torch.from_numpy(search.targets[list(owners)]).to(self._banned.device),
                [text[: int(own[-1] * len(text))] for text, own in zip(best, coins, strict=True)],
                np.stack(coins)[:, :-1],
                self._banned,
                settings,
            )
        texts = [text.strip() for text in self._tokenizer.batch_decode(written)]
        search.offer([owner for owner, _ in tries], written, texts)


class _Search:
    """The best text so far of each vector.

    Attributes:
        targets: unit vectors, float32 (n, d).
        tokens: of the best text of each; none at the beginning.
        texts, embeddings, cosines: as in `Decoded`.
    """

    def __init__(self, targets: np.ndarray, encode: Encode) -> None:
        self.targets, self._encode = targets, encode
        self.tokens: list[list[int]] = [[] for _ in targets]
        self.texts = [""] * len(targets)
        self.embeddings = np.zeros_like(targets)
        self.cosines = np.full(len(targets), -1.0, dtype=np.float32)

    def offer(self, owners: Sequence[int], written: Sequence[list[int]], texts: Sequence[str]) -> None:
        """Encode texts, each for the vector with its owner's index, and keep those that are nearer than the best."""
        if not texts:
            return
        embeddings = np.asarray(self._encode(texts), dtype=np.float32)
        lengths = np.maximum(np.linalg.norm(embeddings, axis=1), np.finfo(np.float32).tiny)
        cosines = (embeddings * self.targets[list(owners)]).sum(axis=1) / lengths
        for place, owner in enumerate(owners):
            if cosines[place] > self.cosines[owner]:
                self.tokens[owner], self.texts[owner] = written[place], texts[place]
                self.embeddings[owner], self.cosines[owner] = embeddings[place], cosines[place]


def _unit(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """Vectors scaled to length 1, float32 (n, dimension)."""
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True) if wide.ndim == 2 else np.zeros((1, 1))
    if wide.shape[1:] != (dimension,) or not np.isfinite(lengths).all() or not (lengths > 0.0).all():
        raise ModelError(
            f"Embeddings to decode must be finite vectors of {dimension} numbers that are not all zero.",
            "Hand over embeddings of the encoder that the decoder was trained for.",
        )
    return (wide / lengths).astype(np.float32)
