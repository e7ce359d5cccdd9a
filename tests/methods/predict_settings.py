"""Small settings of private prediction and of few-shot generation, and a metered view of the two-class rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.shared.base import Plan
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings
from tests.methods.two_classes import two_class_records
from tests.reading import EVERYTHING, reading

ROWS = [PrivateRow(record.text, record.label) for record in two_class_records()]

_FILTERS = {
    "chain": (), "min_words": 1, "max_words": None, "similarity": 0.9, "quantile": 0.9, "threshold": 0.5,
}  # fmt: skip
_PROMPT = {
    "private": "{label}:{text}{separator}", "public": "{label}:{separator}", "chat": False, "text_tokens": 16,
    "joint": " | ", "ends": "eos",
}  # fmt: skip
_PREDICT = {
    "clipping": "fixed", "batch_size": 24, "batches": None, "clip": 10.0, "tokens": None, "temperature": 2.0,
    "top_k": 0, "sparse_vector": None, "max_tokens": 6, "most_tokens": None, "typical_tokens": 4,
    "keep_unfinished": True, "together": 48, "micro_batch": 16, "rounding": None, "checkpoint_tokens": 4,
    "label_counts": "prior", "prior": None, "histogram_share": 0.05, "class_means": None,
}  # fmt: skip
_FEW = {
    "rows": 2, "prompts": 2, "shots": 2, "top_k": 20, "max_tokens": 4, "prior": None, "micro_batch": 4,
    "rounding": None, "checkpoint_tokens": 3,
}  # fmt: skip
_SHOT = {"head": "{label}:", "shot": "{text}{separator}", "text_tokens": 10, "joint": " | ", "ends": "eos"}
DIFFERENCE = {"clipping": "difference", "clip": None, "tokens": 6, "temperature": 1.0, "top_k": 30}
VECTOR = {"threshold": 0.5, "noise": 0.2, "temperature": 1.5}


def predict_settings(*, prompt: Any = None, **changes: Any) -> PredictSettings:
    """Of method predict; keyword arguments replace them, `prompt` some of its keys."""
    return PredictSettings(**{**_PREDICT, **changes, "prompt": {**_PROMPT, **(prompt or {})}, "filters": _FILTERS})


def few_settings(**changes: Any) -> FewShotSettings:
    """Of method fewshot; keyword arguments replace them."""
    return FewShotSettings(**{**_FEW, **changes, "prompt": _SHOT, "filters": _FILTERS})


@contextmanager
def opened(ledger: Ledger, schema: PublicSchema, plan: Plan, purpose: str = "release") -> Iterator[PrivateView]:
    """A view as the stage opens it, with the plan reserved; begun steps are continued."""

    def always(_charge: Charge) -> bool:
        return True

    run = reading(Run("private_predict", "v", purpose, "", "p"), ledger, schema.asset, ROWS)
    with metered(ledger, schema, run, plan.queries, lambda: ROWS, NoiseSource(), always, again=EVERYTHING) as session:
        yield session.view
