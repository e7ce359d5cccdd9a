"""Train an embedding decoder on public sentences: it writes down what a sentence embedding says. Free."""

import numpy as np

from palimpsest.audit.reconstruction import DecodedText, DecoderScores
from palimpsest.files import write_json
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.models.decoder.measure import Reconstruction, reconstruction
from palimpsest.models.decoder.settings import DecodeSettings
from palimpsest.models.decoder.training import sentences_of, train_decoder
from palimpsest.params.load import load
from palimpsest.records.write import read_public
from palimpsest.workspace import BASE_LM, DECODERS, METRICS, PUBLIC
from stages.common import start
from stages.encoding import encoders
from stages.filters import heldout_limit, public_losses

_READABLE = 0.95  # of the held-out public texts, by which the share of readable texts is measured
_BATCH = 256
_AT_ONCE = 64  # public texts that the encoder reads together


def run(name: str) -> None:
    """models/base, data/public -> models/decoders/<name>, reports/metrics/decoders/<name>.json."""
    params = load()
    settings, encode = params.decoders[name], encoders(params, _AT_ONCE)
    sentences = public_sentences("train")[: settings.sentences]
    vectors = encode.others(sentences)
    trained = train_decoder(BASE_LM, sentences, vectors, settings, params.seed, DECODERS / name, encode.fingerprint)
    decoder = Decoder.load(DECODERS / name, encode.fingerprint)
    given = public_sentences("heldout")[: settings.heldout]
    decode = DecodeSettings(
        samples=16, corrections=8, temperature=0.7, top_p=0.9, max_tokens=settings.max_tokens, batch=_BATCH
    )
    found = reconstruction(decoder, given, encode.others(given), decode, encode.others, params.seed, vectors)
    scores = DecoderScores(
        encoder=params.models.encoder,
        parameters=trained["parameters"],
        rows=found.sentences,
        cosine=found.cosine,
        nearest=found.nearest,
        token_f1=found.token_f1,
        bleu=found.bleu,
        exact=found.exact,
        readable_share=readable_share(found, settings.max_tokens),
        samples=tuple(DecodedText(one.sentence, one.text, one.cosine) for one in found.samples),
    )
    write_json(METRICS / "decoders" / f"{name}.json", {"zone": "public"} | scores.to_json() | trained)


def public_sentences(part: str) -> list[str]:
    """The sentences of a part of the public texts."""
    return sentences_of(row.text for row in read_public(PUBLIC / f"{part}.parquet"))


def readable_share(found: Reconstruction, max_tokens: int) -> float:
    """Share of the written texts that the public language model finds as likely as most held-out public texts."""
    losses = public_losses(max_tokens, _BATCH)
    return float(np.mean(np.asarray(losses(found.texts)) <= heldout_limit(losses, _READABLE)))


if __name__ == "__main__":
    start(run)
