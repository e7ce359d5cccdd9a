"""Measures fields beside texts: how they go together, and what a model of texts and fields learns: private zone."""

from palimpsest.audit.fields import Columns, Placed, audit_fields, to_cells
from palimpsest.audit.statistics import RESAMPLES, Bootstrap
from palimpsest.params.load import load
from palimpsest.privacy.rows import select_one_each
from stages.audited import conclude_on_error, metric_of_subject, read_one_each, real_rows, save, written
from stages.common import start


@conclude_on_error(metric_of_subject("fields"))
def run(name: str) -> None:
    """Synthetic rows, train and test of data/private -> fields.json of the variant."""
    params = load()
    schema = params.schema_of_data
    rows = written(params, name)
    own = [to_cells(row, schema) for row in rows if row.fields]  # none of a variant whose texts stand alone
    real, test = select_one_each(real_rows(params)), read_one_each("test")
    sides = {"synthetic": own, "real": real, "test": test}
    placed = {side: Placed.of(some, schema) for side, some in sides.items()}
    draws = Bootstrap(resamples=RESAMPLES, seed=params.seed)
    audit = audit_fields(**placed, columns=Columns.of(schema), bootstrap=draws)
    save(name, "fields", audit.to_json(name))


if __name__ == "__main__":
    start(run)
