"""Trains an embedding decoder on public sentences: it writes the text of a sentence embedding. Free."""

import numpy as np

from palimpsest.audit.reconstruction import DecodedText, DecoderScores
from palimpsest.files import write_json
from palimpsest.models.decoder.correcting import train_corrector
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import Reconstruction, reconstruction
from palimpsest.models.decoder.training import sentences_of, train_decoder
from palimpsest.models.settings import DecoderSettings, DecodeSettings
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.workspace import BASE_LM, DECODER_METRICS, DECODERS
from stages.common import start
from stages.filters import heldout_limit, public_losses
from stages.public import heldout_texts, open_checkpoints, public_texts
from stages.tools import OF_PUBLIC, StoredEncoders, encoders

_READABLE = 0.95  # of the held-out public texts; sets the limit for a readable text
_BATCH = 256
_AT_ONCE = 64  # public texts that the encoder reads together


def run(name: str) -> None:
    """models/base, data/public -> models/decoders/<name>, reports/metrics/decoders/<name>.json."""
    params = load()
    settings, encode = params.decoders[name], encoders(params, _AT_ONCE, OF_PUBLIC)
    sentences = sentences_of(public_texts())[: settings.sentences]
    vectors = encode.others(sentences)
    folder, seed, mark = DECODERS / name, params.seed, encode.fingerprint
    with open_checkpoints(f"decoder_pretrain@{name}") as kept:
        trained = train_decoder(BASE_LM, sentences, vectors, settings, seed, folder, mark, kept)
        if settings.corrector:
            trained |= train_corrector(folder, sentences, vectors, settings, seed, encode.others, mark, kept)
        scores = measure_decoder(
            params, settings, Decoder.load(folder, mark), encode, vectors, int(trained["parameters"])
        )
    write_json(DECODER_METRICS / f"{name}.json", {"zone": "public"} | scores.to_json() | trained)


def measure_decoder(
    params: Params,
    settings: DecoderSettings,
    decoder: Decoder,
    encode: StoredEncoders,
    vectors: np.ndarray,
    parameters: int,
) -> DecoderScores:
    """Measure how well the decoder writes down held-out public sentences.

    Args:
        vectors: of the sentences that it learned.
    """
    given = sentences_of(heldout_texts())[: settings.heldout]
    decode = DecodeSettings(
        samples=16, corrections=8, temperature=0.7, top_p=0.9, max_tokens=settings.max_tokens, batch=_BATCH
    )
    found = reconstruction(decoder, given, encode.others(given), decode, encode.others, params.seed, vectors)
    return DecoderScores(
        encoder=params.models.encoder,
        parameters=parameters,
        rows=found.sentences,
        cosine=found.cosine,
        nearest=found.nearest,
        token_f1=found.token_f1,
        bleu=found.bleu,
        exact=found.exact,
        readable_share=readable_share(params, found, settings.max_tokens),
        samples=tuple(DecodedText(one.sentence, one.text, one.cosine) for one in found.samples),
    )


def readable_share(params: Params, found: Reconstruction, max_tokens: int) -> float:
    """Return the share of the written texts that the public model finds as likely as most held-out public texts."""
    losses = public_losses(params, max_tokens, _BATCH)
    return float(np.mean(np.asarray(losses(found.texts)) <= heldout_limit(losses, _READABLE)))


if __name__ == "__main__":
    start(run)
