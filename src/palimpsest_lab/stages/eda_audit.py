"""Measures how far each round's embeddings are from the private rows, and how exact votes spread: private zone."""

from collections.abc import Mapping

import numpy as np

from palimpsest.models.vectors import KeptVectors
from palimpsest.params.load import load
from palimpsest.records.evolved import read_evolved
from palimpsest.workspace import EVOLVED
from palimpsest_lab.audits.rounds import audit_rounds
from stages.audited import conclude_on_error, metric_of_subject, read_one_each, save
from stages.common import start
from stages.tools import encoders


@conclude_on_error(metric_of_subject("evolution"))
def run(name: str) -> None:
    """data/evolved/<variant>.npz, the private splits -> reports/metrics/<variant>/evolution.json."""
    params = load()
    rounds = read_evolved(EVOLVED / f"{name}.npz")
    encode = encoders(params).rows
    train, holdout = (embed_by_label(encode, part) for part in ("train", "holdout"))
    save(name, "evolution", audit_rounds(rounds, train, holdout, params.seed).to_json(name))


def embed_by_label(encode: KeptVectors, part: str) -> Mapping[str, np.ndarray]:
    """Embed the rows of a private split, one of each unit, by label; rows without a label are under ""."""
    texts: dict[str, list[str]] = {}
    for row in read_one_each(part):
        texts.setdefault(row.label or "", []).append(row.text)
    return {label: encode(own) for label, own in texts.items()}


if __name__ == "__main__":
    start(run)
