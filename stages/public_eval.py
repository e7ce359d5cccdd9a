"""Scores the rows that may leave on a test file that was declared public: the only scores that a card shows.

Guarantee: reads synthetic rows that the ledger covers, and files declared public. The private test rows, the
holdout and the `real` row are not read.
"""

from typing import Any

from palimpsest.audit.statistics import Estimate
from palimpsest.audit.utility import UtilityAudit
from palimpsest.errors import ParamsError
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.read import ColumnNames
from palimpsest.records.record import Record
from palimpsest.records.write import read_synthetic
from palimpsest.workspace import INTERNAL, PUBLIC_ONLY, PUBLISHABLE, SCORES, SYNTHETIC
from stages.common import start
from stages.downstream_eval import Judges
from stages.public import public_rows
from stages.tools import memory_of


def run() -> None:
    """Synthetic rows of what may leave and of public_only, dataset.public_test -> reports/metrics/public.json."""
    params = load()
    test, names = public_test(params), (*params.may_leave, PUBLIC_ONLY)
    rows = {name: read_synthetic(SYNTHETIC / name, params.dataset.text, params.dataset.label) for name in names}
    judges = Judges(params, memory_of(leaves=params.testing.noise_seed is None))
    held = judges.part(test, asset=False)
    audits = {name: judges.score(judges.part(own, asset=False), held) for name, own in rows.items()}
    zone = PUBLISHABLE if params.testing.noise_seed is None else INTERNAL  # with a fixed seed no row is private
    write_json(SCORES, {"zone": zone, **scores(audits)})


def scores(audits: dict[str, UtilityAudit]) -> dict[str, Any]:
    """Return rows, test rows, and each row's accuracy by each evaluator with its 95 % interval: nothing else."""
    return {
        "rows": {name: audit.rows for name, audit in audits.items()},
        "test_rows": {name: audit.test_rows for name, audit in audits.items()},
        "variants": {
            name: {
                evaluator: _interval(evaluation.scored.accuracy) for evaluator, evaluation in audit.evaluations.items()
            }
            for name, audit in audits.items()
        },
    }


def _interval(accuracy: Estimate) -> dict[str, float]:
    return {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high}


def public_test(params: Params) -> list[Record]:
    """Read the labelled rows of the test file that was declared public.

    Raises:
        ParamsError: none was declared.
    """
    data = params.dataset
    if data.public_test is None:
        raise ParamsError(
            "dataset.public_test is null: no test file was declared public.",
            "Name one, or leave this stage out: a card can do without scores.",
        )
    columns = ColumnNames(data.text, data.label, keys=params.schema_of_data.keys, plain=True)
    return [Record(row.text, row.label) for row in public_rows(params, "dataset.public_test", columns)]


if __name__ == "__main__":
    start(run)
