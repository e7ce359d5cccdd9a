"""Count the n-grams that synthetic rows share with what trained, with what did not, and with public text."""

from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import CONFIDENCE, Bootstrap
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.records.write import read_public, read_synthetic
from stages.audited import guessed
from stages.common import METRICS, PUBLIC, SYNTHETIC, start


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> ngrams.json of the variant."""
    params, guess = load(), guessed()
    synthetic = read_synthetic(SYNTHETIC / name, params.dataset.text, params.dataset.label)
    audit = ngram_audit(
        [row.text for row in synthetic],
        *guess.texts,
        [row.text for row in read_public(PUBLIC / "train.parquet")],
        params.audit.orders,
        Bootstrap(resamples=params.audit.resamples, confidence=CONFIDENCE, seed=params.seed),
        guess.units,
    )
    write_json(METRICS / name / "ngrams.json", audit.to_json(name))


if __name__ == "__main__":
    start(run)
