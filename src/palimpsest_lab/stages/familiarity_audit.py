"""Measures whether the public language model, as it came, may have read the test rows before."""

from functools import partial

from palimpsest.audit.finetune import read_beginnings
from palimpsest.audit.statistics import Bootstrap
from palimpsest.devices import exact_device
from palimpsest.files import write_json
from palimpsest.models.lm import load_lm
from palimpsest.params.load import load
from palimpsest.workspace import FAMILIARITY
from palimpsest_lab.audits.familiarity import familiarity
from stages.audited import conclude_on_error, records_of
from stages.common import start
from stages.public import heldout_texts, public_texts


@conclude_on_error(lambda: [FAMILIARITY])
def run() -> None:
    """data/private/test.parquet, data/public, the untouched model -> reports/metrics/familiarity.json."""
    params = load()
    model, tokenizer = load_lm(params.untouched)
    model.to(exact_device())  # type: ignore[arg-type]
    read = partial(read_beginnings, model, tokenizer)
    test = [row.text for row in records_of("test")]
    draws = Bootstrap(resamples=params.audit.resamples, seed=params.seed)
    found = familiarity(read, test, heldout_texts(), public_texts(), draws)
    write_json(FAMILIARITY, found.to_json("base"))


if __name__ == "__main__":
    start(run)
