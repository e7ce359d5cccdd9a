"""Measure how like the private texts the synthetic rows are, as sets, each value beside its floor: private zone."""

from palimpsest.audit.fidelity import Sample, Sides, fidelity
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.records.write import read_public, read_synthetic
from palimpsest.workspace import METRICS, PUBLIC, SYNTHETIC
from stages.audited import one_row_each
from stages.common import start
from stages.encode_public import public_vectors
from stages.encoding import encoders

_AT_ONCE = 64  # no guarantee rests on these vectors


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> fidelity.json of the variant."""
    params = load()
    encode = encoders(params, batch=_AT_ONCE)
    synthetic = [row.text for row in read_synthetic(SYNTHETIC / name, params.dataset.text, params.dataset.label)]
    train, holdout = ([row.text for row in one_row_each(part) if row.guess] for part in ("train", "holdout"))
    public = [row.text for row in read_public(PUBLIC / "train.parquet")]
    of_public = Sample(public_vectors(params, public, encode.others), public)
    sides = Sides(
        synthetic=Sample(encode.others(synthetic), synthetic),
        train=Sample(encode.rows(train), train),
        holdout=Sample(encode.rows(holdout), holdout),
        public=of_public,
    )
    audit = fidelity(sides, params.seed)
    write_json(METRICS / name / "fidelity.json", audit.to_json(name) | {"unit": params.schema_of_data.unit})


if __name__ == "__main__":
    start(run)
