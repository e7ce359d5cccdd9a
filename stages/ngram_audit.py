"""Count the n-grams that synthetic rows share with what trained, with what did not, and with public text."""

from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import CONFIDENCE, Bootstrap
from palimpsest.params.load import load
from stages.audited import guessed, save, written
from stages.common import start
from stages.public import public_texts


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> ngrams.json of the variant."""
    params, guess = load(), guessed()
    audit = ngram_audit(
        [row.text for row in written(params, name)],
        *guess.texts,
        public_texts(),
        params.audit.orders,
        Bootstrap(resamples=params.audit.resamples, confidence=CONFIDENCE, seed=params.seed),
        guess.units,
    )
    save(name, "ngrams", audit.to_json(name))


if __name__ == "__main__":
    start(run)
