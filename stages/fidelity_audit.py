"""Measures how like the private texts the synthetic rows are, as sets, each value beside its floor: private zone."""

from collections.abc import Sequence
from dataclasses import replace

from palimpsest.audit.fidelity import EmbeddedTexts, Sides, fidelity, label_shares
from palimpsest.params.load import load
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from stages.audited import conclude_on_error, metric_of_subject, read_guessed_each, save, written
from stages.common import start
from stages.encode_public import public_vectors
from stages.public import public_texts
from stages.tools import measuring_encoder, uses_half


@conclude_on_error(metric_of_subject("fidelity"))
def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> fidelity.json of the variant."""
    params = load()
    encode, public = measuring_encoder(params), public_texts()
    rows: dict[str, Sequence[Record | SplitRow]] = {"synthetic": written(params, name)}
    rows |= {part: read_guessed_each(part) for part in ("train", "holdout")}
    texts = {side: [row.text for row in own] for side, own in rows.items()}
    # The stored vectors of public texts are in float32: all sides are read alike.
    of_public = encode.others(public) if uses_half(params) else public_vectors(params, public, encode.others)
    sides = Sides(
        synthetic=EmbeddedTexts(encode.others(texts["synthetic"]), texts["synthetic"]),
        train=EmbeddedTexts(encode.rows(texts["train"]), texts["train"]),
        holdout=EmbeddedTexts(encode.rows(texts["holdout"]), texts["holdout"]),
        public=EmbeddedTexts(of_public, public),
    )
    labels = {side: [row.label for row in own] for side, own in rows.items()}
    audit = replace(fidelity(sides, params.seed), labels=label_shares(tuple(params.dataset.labels), labels))
    save(name, "fidelity", audit.to_json(name) | {"unit": params.schema_of_data.unit})


if __name__ == "__main__":
    start(run)
