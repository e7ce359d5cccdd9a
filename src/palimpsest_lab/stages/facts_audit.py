"""Looks for the invented world's facts in the synthetic rows."""

from palimpsest.audit.facts import audit_facts
from palimpsest.params.load import load
from palimpsest.records.world.facts import load_facts
from palimpsest.workspace import FACTS
from stages.audited import conclude_on_error, metric_of_subject, save, written
from stages.common import start


@conclude_on_error(metric_of_subject("facts"))
def run(name: str) -> None:
    """Synthetic rows, data/raw/facts.json -> facts.json of the variant."""
    params = load()
    audit = audit_facts(load_facts(FACTS), [row.text for row in written(params, name)])
    unit = params.schema_of_data.unit  # the unit that the answer key counts
    save(name, "facts", audit.to_json(name) | {"unit": unit})


if __name__ == "__main__":
    start(run)
