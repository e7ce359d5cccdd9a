"""How far each round's embeddings are from the private rows, and how exact votes spread over them: private zone."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from palimpsest.audit.rounds import audit_rounds, document
from palimpsest.files import write_json
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.load import load
from palimpsest.records.evolved import read_evolved
from palimpsest.records.write import read_split
from stages.common import EVOLVED, METRICS, PRIVATE, start
from stages.encoding import encoders

_AT_ONCE = 64  # no guarantee rests on these vectors


def run(name: str) -> None:
    """data/evolved/<variant>.npz, the private splits -> reports/metrics/<variant>/evolution.json."""
    params = load()
    rounds = read_evolved(EVOLVED / f"{name}.npz")
    encode = encoders(params, _AT_ONCE).rows
    train, holdout = (by_label(encode, PRIVATE / f"{part}.parquet") for part in ("train", "holdout"))
    write_json(METRICS / name / "evolution.json", document(name, audit_rounds(rounds, train, holdout, params.seed)))


def by_label(encode: KeptVectors, path: Path) -> Mapping[str, np.ndarray]:
    """The embeddings of a private split's rows; those without a label are under ""."""
    texts: dict[str, list[str]] = {}
    for row in read_split(path):
        texts.setdefault(row.label or "", []).append(row.text)
    return {label: encode(own) for label, own in texts.items()}


if __name__ == "__main__":
    start(run)
