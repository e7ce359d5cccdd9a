"""Counts how many synthetic rows of task json are JSON and conform to the public schema."""

from palimpsest.audit.structure import audit_structure
from palimpsest.errors import ParamsError
from palimpsest.params.load import load
from palimpsest.privacy.receipt import read_receipt
from palimpsest.workspace import RECEIPTS
from stages.audited import conclude_on_error, metric_of_subject, save, written
from stages.common import start


@conclude_on_error(metric_of_subject("structure"))
def run(name: str) -> None:
    """Synthetic rows -> structure.json of the variant, in the zone of the rows."""
    params = load()
    data = params.dataset
    if data.json_schema is None:
        raise ParamsError(f"dataset.task is {data.task!r}, which has no JSON schema.", "Run this stage for task json.")
    zone = read_receipt(RECEIPTS / f"{name}.json").zone
    audit = audit_structure([row.text for row in written(params, name)], data.json_schema)
    save(name, "structure", audit.to_json(name, zone))


if __name__ == "__main__":
    start(run)
