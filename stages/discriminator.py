"""Fits a discriminator on a fitted language model: a stage that spends budget.

Started by `torchrun`, or with PALIMPSEST_PROCESSES=n in the environment, n processes share every batch.
"""

from stages import dp_train
from stages.common import start_processes
from stages.tools import EncodingTools


def run(name: str, _model: str) -> None:
    """data/private/train.parquet, models/<model> -> models/<name>, reports/receipts/models/<name>.json."""
    dp_train.run(name, EncodingTools)


if __name__ == "__main__":
    start_processes(run)
