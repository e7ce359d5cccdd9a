"""Measure how like the private texts the synthetic rows are, as sets, each value beside its floor: private zone."""

from dataclasses import replace

from palimpsest.audit.fidelity import EmbeddedTexts, Sides, fidelity, label_shares
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.workspace import METRICS
from stages.audited import one_row_each, written
from stages.common import start
from stages.encode_public import public_vectors
from stages.encoding import encoders
from stages.public import public_texts

_AT_ONCE = 64  # no guarantee rests on these vectors


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> fidelity.json of the variant."""
    params = load()
    encode = encoders(params, batch=_AT_ONCE)
    synthetic = written(params, name)
    train, holdout = ([row for row in one_row_each(part) if row.guess] for part in ("train", "holdout"))
    public = public_texts()
    texts, members, others = ([row.text for row in rows] for rows in (synthetic, train, holdout))
    sides = Sides(
        synthetic=EmbeddedTexts(encode.others(texts), texts),
        train=EmbeddedTexts(encode.rows(members), members),
        holdout=EmbeddedTexts(encode.rows(others), others),
        public=EmbeddedTexts(public_vectors(params, public, encode.others), public),
    )
    of_sets = {
        "synthetic": [row.label for row in synthetic],
        "train": [row.label for row in train],
        "holdout": [row.label for row in holdout],
    }
    audit = replace(fidelity(sides, params.seed), labels=label_shares(tuple(params.dataset.labels), of_sets))
    write_json(METRICS / name / "fidelity.json", audit.to_json(name) | {"unit": params.schema_of_data.unit})


if __name__ == "__main__":
    start(run)
