"""How well a decoder writes down public embeddings: no private row is read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_OF_SENTENCES = ("rows", "cosine", "nearest", "token_f1", "bleu", "exact")


@dataclass(frozen=True)
class DecodedText:
    """One public text, and what came back from its embedding."""

    given: str
    decoded: str
    cosine: float


@dataclass(frozen=True)
class DecoderScores:
    """How well a decoder writes down public embeddings.

    Attributes:
        encoder: whose embeddings.
        parameters: of the decoder.
        rows: sentences that were written down.
        cosine: of what was written with what was given.
        nearest: share of which no other sentence is nearer.
        token_f1, bleu: how many words come back.
        exact: share that is right word for word.
        readable_share: share that the public model finds likely enough.
        samples: a few of them.
    """

    encoder: str
    parameters: float
    rows: int
    cosine: float
    nearest: float
    token_f1: float
    bleu: float
    exact: float
    readable_share: float
    samples: tuple[DecodedText, ...]

    def to_json(self) -> dict[str, Any]:
        body = asdict(self) | {"samples": [asdict(one) for one in self.samples]}
        return {"zone": "public", "reconstruction": {name: body.pop(name) for name in _OF_SENTENCES}, **body}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "DecoderScores":
        found = {**body, **body["reconstruction"], "samples": tuple(DecodedText(**one) for one in body["samples"])}
        return cls(**{one.name: found[one.name] for one in fields(cls)})
