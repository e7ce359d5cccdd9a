"""A tiny public model, two kinds of text, and a metered view of invented private rows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.settings import DpLmGenerate, DpLmTrain
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.settings import Filters
from palimpsest.models import lm
from palimpsest.models.lm import pretrain_lm
from palimpsest.models.settings import EmbeddedLm
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.methods.two_classes import WORDS, two_class_records
from tests.reading import EVERYTHING, reading

MakeTrain = Callable[..., DpLmTrain]
MakeGenerate = Callable[..., DpLmGenerate]
OpenView = Callable[[Plan, str], AbstractContextManager[PrivateView]]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that has seen the texts without their labels (as invented public text)."""
    folder = tmp_path_factory.mktemp("models") / "base"
    settings = EmbeddedLm(
        layers=2, width=32, heads=2, vocabulary=320, context=48, epochs=12, batch=16, learning_rate=0.005,
        weight_decay=0.0,
    )  # fmt: skip
    texts = [record.text for record in two_class_records()]
    with patch.object(lm, "rise_and_cosine", _rise_and_fall):
        pretrain_lm(texts, texts[:4], settings, 1, folder)
    return folder


def _rise_and_fall(step: int, steps: int) -> float:
    """A straight fall after a longer rise: in so few steps a model of two layers learns more by it."""
    rise = round(0.1 * steps)
    return (step + 1) / rise if step < rise else 1.0 - (step - rise) / (steps - rise)


@pytest.fixture(scope="session")
def schema() -> PublicSchema:
    """What is public about the rows."""
    labels = {name: f"A text of {name}." for name in WORDS}
    return PublicSchema("tiny", "classify", "text", n_public=100, max_length=200, label="label", labels=labels)


@pytest.fixture(scope="session")
def make_train() -> MakeTrain:
    """Small settings of a training; keyword arguments replace them."""
    train = {
        "epochs": 2.0, "batch": 20, "learning_rate": 0.01, "schedule": "linear", "warmup": 0.0, "betas": (0.9, 0.98),
        "adam_eps": 1e-8, "clipping": "joint", "clipping_norm": 0.5, "discriminator_weight": 1.0,
        "discriminator_width": 16, "discriminator_reads": "hidden", "prefix_step": 2, "loss_on": "text",
        "freeze_first": 0, "freeze_last": 0, "freeze_embeddings": False, "lora_rank": 0, "noise_correction": False,
        "precision": "float32", "checkpoint_steps": 50, "max_tokens": 24, "micro_batch": 8, "label_counts": "noisy",
        "prior": None, "histogram_share": 0.01, "person": "joint",
    }  # fmt: skip
    return lambda **changes: DpLmTrain(**{**train, **changes})


@pytest.fixture(scope="session")
def make_generate() -> MakeGenerate:
    """Small settings of a generation without filters; keyword arguments replace them, `filters` some of its keys."""
    filters = {
        "chain": (), "min_words": 1, "max_words": None, "similarity": 0.9, "quantile": 0.9, "threshold": 0.5,
    }  # fmt: skip
    generate = {
        "rows": 10, "batch": 6, "max_tokens": 20, "top_p": 0.95, "top_k": 0, "temperature": 1.0, "best_of": 1,
        "draws": 8, "iterations": 1, "step_size": 0.04, "gamma": 1.0, "kl_scale": 0.01, "gm_scale": 0.95, "horizon": 1,
        "candidates": 8, "strength": 1.0,
    }  # fmt: skip

    def make(**changes: object) -> DpLmGenerate:
        found = Filters(**{**filters, **changes.pop("filters", {})})  # type: ignore[dict-item]
        return DpLmGenerate(**{**generate, **changes, "filters": found})

    return make


@pytest.fixture
def ledger(tmp_path: Path, schema: PublicSchema) -> Ledger:
    """A new ledger that knows the asset."""
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.register(Asset("tiny", delta=1e-3, epsilon=50.0, n_public=schema.n_public))
    return ledger


@pytest.fixture
def open_view(ledger: Ledger, schema: PublicSchema) -> OpenView:
    """A metered view of the two-class rows, with the plan reserved."""

    @contextmanager
    def opened(plan: Plan, purpose: str) -> Iterator[PrivateView]:
        rows = [PrivateRow(record.text, record.label) for record in two_class_records()]
        run = reading(Run("dp_train", "v", purpose, "", "p"), ledger, schema.asset, rows)
        with metered(ledger, schema, run, plan.queries, lambda: rows, NoiseSource(), again=EVERYTHING) as session:
            yield session.view

    return opened


@pytest.fixture(scope="session")
def untrained(base: Path) -> DpLmArtifact:
    """The public model with a fresh head, as an artifact."""
    model, tokenizer = new_model(base, 2, 16, 3)
    return DpLmArtifact(model, tokenizer, {"praise": 0.75, "a complaint": 0.25}, 24, "text")
