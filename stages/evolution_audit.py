"""Measures how far each round's texts are from the private rows, and those from each other: private zone."""

from palimpsest.audit.rounds import EvolutionAudit, per_round
from palimpsest.params.load import load
from palimpsest.records.write import read_rounds
from palimpsest.workspace import EVOLVED
from stages.audited import one_row_each, save
from stages.common import start
from stages.concluding import concluding, of_each
from stages.encoding import encoders


@concluding(of_each("evolution"))
def run(name: str) -> None:
    """data/evolved/<variant>.parquet, the private splits -> reports/metrics/<variant>/evolution.json."""
    params = load()
    encode = encoders(params)
    rounds = [encode.others([row.text for row in one]) for one in read_rounds(EVOLVED / f"{name}.parquet")]
    splits = (one_row_each(part) for part in ("train", "holdout"))
    train, holdout = (encode.rows([row.text for row in rows]) for rows in splits)
    audit = EvolutionAudit.of_texts(per_round(rounds, train, holdout, params.seed))
    save(name, "evolution", audit.to_json(name))


if __name__ == "__main__":
    start(run)
