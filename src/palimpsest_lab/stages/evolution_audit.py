"""Measures how far each round's texts are from the private rows, and those from each other: private zone."""

from palimpsest.params.load import load
from palimpsest.records.write import read_rounds
from palimpsest.workspace import EVOLVED
from palimpsest_lab.audits.rounds import EvolutionAudit, measure_rounds
from stages.audited import conclude_on_error, metric_of_subject, read_one_each, save
from stages.common import start
from stages.tools import encoders


@conclude_on_error(metric_of_subject("evolution"))
def run(name: str) -> None:
    """data/evolved/<variant>.parquet, the private splits -> reports/metrics/<variant>/evolution.json."""
    params = load()
    encode = encoders(params)
    rounds = [encode.others([row.text for row in one]) for one in read_rounds(EVOLVED / f"{name}.parquet")]
    splits = (read_one_each(part) for part in ("train", "holdout"))
    train, holdout = (encode.rows([row.text for row in rows]) for rows in splits)
    audit = EvolutionAudit.of_texts(measure_rounds(rounds, train, holdout, params.seed))
    save(name, "evolution", audit.to_json(name))


if __name__ == "__main__":
    start(run)
