"""Counts the n-grams that synthetic rows share with rows that trained, with rows that did not, and with public text."""

from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.units import Released
from palimpsest.params.load import load
from palimpsest.records.write import split_texts
from palimpsest.workspace import PRIVATE
from stages.audited import conclude_on_error, load_guessed, metric_of_subject, save, written
from stages.common import start
from stages.public import public_texts


@conclude_on_error(metric_of_subject("ngrams"))
def run(name: str) -> None:
    """Synthetic rows, members and non-members, all training rows, public rows -> ngrams.json of the variant."""
    params, guess = load(), load_guessed()
    audit = ngram_audit(
        Released(written(params, name), *guess.sides, public_texts(), guess.units),
        split_texts(PRIVATE / "train.parquet"),
        params.audit.orders,
        Bootstrap(resamples=params.audit.resamples, seed=params.seed),
    )
    save(name, "ngrams", audit.to_json(name))


if __name__ == "__main__":
    start(run)
