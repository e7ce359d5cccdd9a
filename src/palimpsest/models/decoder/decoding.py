"""From embeddings to texts: several are written for each, and the one whose own embedding is nearest is kept.

Some of them are corrections (`DecodeSettings.corrections`): one after another, each keeps a random beginning of the
best text so far and writes the rest anew. Before them come rewrites (`DecodeSettings.rewrites`): a trained corrector
reads the best text so far and its embedding and writes a whole text (vec2text, Morris et al. 2023). Decoding reads only
an embedding and public models: everyone who may see the embedding may see the text.
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
from palimpsest.models.decoder.training import CORRECTOR, FACTS, LM, MAPS
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import DecodeSettings
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
    """Writes texts for the embeddings of one encoder.

    Attributes:
        dimension: length d of an embedding.
        room: most tokens that a text can have.
        corrector: the network that rewrites, where one was trained.
    """

    def __init__(self, network: Network, tokenizer: PreTrainedTokenizerBase, corrector: Network | None = None) -> None:
        """A trained network, the tokenizer of the language model inside, and a corrector that goes with them."""
        self.corrector = None if corrector is None else corrector.to(exact_device()).eval()
        ids, columns = specials(tokenizer), network.words.out_features
        self.network, self.tokenizer = network.to(exact_device()).eval(), tokenizer
        banned = sorted({*(ids.control - {ids.eos}), *range(len(tokenizer), columns)})
        self._banned = torch.tensor(banned, device=exact_device())
        self.dimension, self.room = network.dimension, network.room

    @classmethod
    def load(cls, folder: Path, encoder: str) -> "Decoder":
        """The decoder in a folder that `train_decoder` wrote. Runs no code of the folder.

        Raises:
            ModelError: the folder holds no decoder, or one for another encoder.
        """
        network, tokenizer = _load_network(Path(folder), encoder)
        corrector = Path(folder) / CORRECTOR
        return cls(network, tokenizer, _load_network(corrector, encoder)[0] if corrector.exists() else None)

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Encode, seed: int) -> Decoded:
        """A text for each embedding.

        Every vector has its own random draws, by the seed and its place: the others decoded with it change nothing
        except by rounding. `encode` is called with `settings.samples` texts for each vector in all.

        Args:
            vectors: shape (n, d); one that is not of length 1 is scaled to it.

        Raises:
            ModelError: a vector is zero or not finite or not of d numbers, texts of `settings.max_tokens` do not fit
                the language model, or rewrites are asked of a decoder without a corrector.
        """
        targets = _normalise(vectors, self.dimension)
        self._require(settings)
        shape = (settings.samples, settings.max_tokens + 1)  # the last coin cuts
        coins = [np.random.default_rng([seed, index]).random(shape) for index in range(len(targets))]
        search = _Search(targets, encode)
        done = counter(name="decode", total=len(targets) * settings.samples, private=True)
        first = settings.samples - settings.corrections - settings.rewrites
        for round_ in [range(first), *([sample] for sample in range(first, settings.samples))]:
            tries = [(index, own[sample]) for index, own in enumerate(coins) for sample in round_]
            self._round(search, tries, settings, rewrite=first <= round_[0] < first + settings.rewrites)
            done(len(targets) * (round_[-1] + 1))
        return Decoded(tuple(search.texts), search.embeddings, search.cosines)

    def _require(self, settings: DecodeSettings) -> None:
        """Raise ModelError for settings that this decoder cannot fulfil."""
        if settings.rewrites and self.corrector is None:
            raise ModelError(
                "The decoder has no corrector, which decode.rewrites asks for.",
                "Set decode.rewrites to 0, or decoders.<name>.corrector to a number of sentences.",
            )
        room = self.corrector.room if settings.rewrites and self.corrector else self.room
        if settings.max_tokens > room:
            raise ModelError(
                f"Texts of {settings.max_tokens} tokens do not fit the decoder, which has room for {room}.",
                "Lower decode.max_tokens.",
            )

    def _round(
        self, search: "_Search", tries: Sequence[tuple[int, np.ndarray]], settings: DecodeSettings, rewrite: bool
    ) -> None:
        """Write one text for each vector's index and random draws, and keep texts that are better than before."""
        written: list[list[int]] = []
        for start in range(0, len(tries), settings.batch):
            owners, coins = zip(*tries[start : start + settings.batch], strict=True)
            written += (self._rewrite if rewrite else self._write_ends)(search, owners, np.stack(coins), settings)
        texts = [text.strip() for text in self.tokenizer.batch_decode(written)]
        search.offer([owner for owner, _ in tries], written, texts)

    def _write_ends(
        self, search: "_Search", owners: Sequence[int], coins: np.ndarray, settings: DecodeSettings
    ) -> list[list[int]]:
        """Write a text for each vector's index: a random beginning of its best text, completed by the decoder."""
        targets = torch.from_numpy(search.targets[list(owners)]).to(self._banned.device)
        best = [search.tokens[owner] for owner in owners]
        begun = [text[: int(cut * len(text))] for text, cut in zip(best, coins[:, -1], strict=True)]
        return self.network.write(targets, begun, coins[:, :-1], self._banned, settings)

    def _rewrite(
        self, search: "_Search", owners: Sequence[int], coins: np.ndarray, settings: DecodeSettings
    ) -> list[list[int]]:
        """Write a text for each vector's index by the corrector, which reads the best text and its embedding."""
        best = [search.tokens[owner] for owner in owners]
        read = np.hstack([search.targets[list(owners)], search.embeddings[list(owners)]])
        given = torch.from_numpy(read).to(self._banned.device)
        assert self.corrector is not None, "was asked for before"
        return self.corrector.write(given, [[] for _ in best], coins[:, :-1], self._banned, settings, best)


def _load_network(folder: Path, encoder: str) -> tuple[Network, PreTrainedTokenizerBase]:
    """The network in a folder, a decoder or a corrector, and its tokenizer."""
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
        network = Network(lm, specials(tokenizer), *sizes, facts.get("earlier", 0))
    network.load_maps(maps)
    return network, tokenizer


class _Search:
    """The best text so far of each vector.

    Attributes:
        targets: unit vectors, float32 (n, d).
        tokens: tokens of the best text of each; none at the beginning.
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


def _normalise(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """Vectors scaled to length 1, float32 (n, dimension)."""
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True) if wide.ndim == 2 else np.zeros((1, 1))
    if wide.shape[1:] != (dimension,) or not np.isfinite(lengths).all() or not (lengths > 0.0).all():
        raise ModelError(
            f"Embeddings to decode must be finite vectors of {dimension} numbers that are not all zero.",
            "Hand over embeddings of the encoder that the decoder was trained for.",
        )
    return (wide / lengths).astype(np.float32)
