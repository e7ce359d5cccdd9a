"""Train an embedding decoder on public sentences: it writes down what a sentence embedding says. Free."""

import numpy as np

from palimpsest.audit.reconstruction import DecodedText, DecoderScores
from palimpsest.files import write_json
from palimpsest.models.decoder.correcting import train_corrector
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import Reconstruction, reconstruction
from palimpsest.models.decoder.settings import DecodeSettings
from palimpsest.models.decoder.training import sentences_of, train_decoder
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.workspace import BASE_LM, DECODER_METRICS, DECODERS
from stages.common import start
from stages.encoding import OF_PUBLIC, encoders
from stages.filters import heldout_limit, public_losses
from stages.public import heldout_texts, public_texts

_READABLE = 0.95  # of the held-out public texts, by which the share of readable texts is measured
_BATCH = 256
_AT_ONCE = 64  # public texts that the encoder reads together


def run(name: str) -> None:
    """models/base, data/public -> models/decoders/<name>, reports/metrics/decoders/<name>.json."""
    params = load()
    settings, encode = params.decoders[name], encoders(params, _AT_ONCE, OF_PUBLIC)
    sentences = sentences_of(public_texts())[: settings.sentences]
    vectors = encode.others(sentences)
    trained = train_decoder(BASE_LM, sentences, vectors, settings, params.seed, DECODERS / name, encode.fingerprint)
    if settings.corrector:
        folder, seed = DECODERS / name, params.seed
        trained |= train_corrector(folder, sentences, vectors, settings, seed, encode.others, encode.fingerprint)
    decoder = Decoder.load(DECODERS / name, encode.fingerprint)
    given = sentences_of(heldout_texts())[: settings.heldout]
    decode = DecodeSettings(
        samples=16, corrections=8, temperature=0.7, top_p=0.9, max_tokens=settings.max_tokens, batch=_BATCH
    )
    measured = reconstruction(decoder, given, encode.others(given), decode, encode.others, params.seed, vectors)
    scores = DecoderScores(
        encoder=params.models.encoder,
        parameters=trained["parameters"],
        rows=measured.sentences,
        cosine=measured.cosine,
        nearest=measured.nearest,
        token_f1=measured.token_f1,
        bleu=measured.bleu,
        exact=measured.exact,
        readable_share=readable_share(params, measured, settings.max_tokens),
        samples=tuple(DecodedText(one.sentence, one.text, one.cosine) for one in measured.samples),
    )
    write_json(DECODER_METRICS / f"{name}.json", {"zone": "public"} | scores.to_json() | trained)


def readable_share(params: Params, measured: Reconstruction, max_tokens: int) -> float:
    """Share of the written texts that the public language model finds as likely as most held-out public texts."""
    losses = public_losses(params, max_tokens, _BATCH)
    return float(np.mean(np.asarray(losses(measured.texts)) <= heldout_limit(losses, _READABLE)))


if __name__ == "__main__":
    start(run)
