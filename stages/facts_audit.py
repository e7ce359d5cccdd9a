"""Look for the invented world's facts in the synthetic rows."""

from palimpsest.audit.facts import audit_facts
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.records.world.facts import load_facts
from palimpsest.workspace import METRICS
from stages.audited import written
from stages.common import start


def run(name: str) -> None:
    """Synthetic rows, data/raw/facts.json -> facts.json of the variant."""
    params = load()
    audit = audit_facts(load_facts("data/raw/facts.json"), [row.text for row in written(params, name)])
    unit = params.schema_of_data.unit  # what the answer key counts
    write_json(METRICS / name / "facts.json", audit.to_json(name) | {"unit": unit})


if __name__ == "__main__":
    start(run)
