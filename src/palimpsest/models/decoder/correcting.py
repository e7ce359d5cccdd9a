"""Training of a corrector: from a decoder's text and the error of its embedding to the sentence that was meant.

The idea is vec2text's (Morris et al. 2023): an embedding is easier to decode beside a text that is almost right.
Ordinary training: nothing private may be among the sentences.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from palimpsest.models.decoder.decoding import Decoder, Encode
from palimpsest.models.decoder.training import CORRECTOR, learn, save
from palimpsest.models.descent import recent_mean
from palimpsest.models.settings import DecoderSettings, DecodeSettings
from palimpsest.models.tokens import encode_texts

_BATCH = 256  # texts that are written side by side


def train_corrector(
    folder: Path,
    sentences: Sequence[str],
    embeddings: np.ndarray,
    settings: DecoderSettings,
    seed: int,
    encode: Encode,
    encoder: str,
    kept: Path | None = None,
) -> dict[str, float]:
    """Teach a copy of a decoder to write a sentence, shown its embedding, the decoder's own attempt, and its embedding.

    Args:
        folder: folder of a trained decoder; the corrector is put into it.
        sentences: public sentences; the first `settings.corrector` that are short enough are learned.
        embeddings: one for each, shape (n, d), L2 norm 1.
        seed: seeds the attempts, the order of the sentences, and the noise on their embeddings.
        encode: texts to embeddings, (n, d).
        encoder: the fingerprint of that encoder.
        kept: the folder of a long training's states; None keeps none.

    Returns:
        corrector_sentences, corrector_loss (nats per token, of the last tenth of the steps), corrector_steps.

    Raises:
        ModelError: see `Decoder.load` and `Decoder.decode`.
    """
    decoder = Decoder.load(folder, encoder)
    tokens = encode_texts(decoder.tokenizer, sentences, settings.max_tokens + 1)
    short = [index for index, text in enumerate(tokens) if 0 < len(text) <= settings.max_tokens][: settings.corrector]
    how = DecodeSettings(samples=1, corrections=0, max_tokens=settings.max_tokens, batch=_BATCH)
    wanted = np.asarray(embeddings, dtype=np.float32)[short]
    attempts = decoder.decode(wanted, how, encode, seed)
    earlier = encode_texts(decoder.tokenizer, attempts.texts, settings.max_tokens)
    network = decoder.network.corrector(settings.width, settings.max_tokens)
    given = torch.from_numpy(np.hstack([wanted, attempts.embeddings])).to(network.centre.device)
    network.centre.copy_(given.mean(dim=0))
    losses = learn(network, [tokens[index] for index in short], given, settings, seed, earlier, kept)
    save(network, decoder.tokenizer, settings, encoder, folder / CORRECTOR)
    return {
        "corrector_sentences": len(short),
        "corrector_loss": recent_mean(losses),
        "corrector_steps": len(losses),
    }
