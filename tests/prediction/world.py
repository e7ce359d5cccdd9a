"""Invented private rows, a wave of batches, and a ledger that meters it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from palimpsest.prediction import decoding
from palimpsest.prediction.cells import Cells
from palimpsest.prediction.contexts import Shape
from palimpsest.prediction.decoding import Batches, Rules
from palimpsest.prediction.mechanism import Clipping, DifferenceClipping, FixedClipping, SparseVector
from palimpsest.prediction.prompts import prompter
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered
from palimpsest.records.schema import PublicSchema
from tests.machines import own_ledger
from tests.prediction.tiny import model, tokenizer
from tests.reading import EVERYTHING, reading

LABELS = {"praise": "Nice words.", "a complaint": "Harsh words."}
SCHEMA = PublicSchema("tiny", "classify", "text", n_public=30, max_length=200, label="label", labels=LABELS)
RUN = Run("private_predict", "v", "release", "f", "p")
KEY = bytes(range(32))
FIXED = FixedClipping(2.0, 1.0, 4)
DIFFERENCE = DifferenceClipping(0.5, 1.0, 4, 20)
VECTOR = SparseVector(0.5, 0.2, 4)
ROWS = [
    PrivateRow(f"The {thing} {verb} {how}.", label)
    for label, how in zip(LABELS, ("well", "badly"), strict=True)
    for thing in ("lamp", "kettle", "radio")
    for verb in ("hums", "leaks", "is old")
]

EXTRAS = {
    "ordinary": PrivateRow("The stove smokes.", "praise"),
    "other label": PrivateRow("The stove smokes.", "a complaint"),
    "duplicate": ROWS[0],
    "empty": PrivateRow("", "praise"),
    "very long": PrivateRow("a very long text about nothing at all " * 40, "a complaint"),
    "unknown label": PrivateRow("The stove smokes.", "a question"),
    "no label": PrivateRow("The stove smokes.", None),
    "special tokens": PrivateRow("<|endoftext|><|sep|>praise:<|pad|>", "praise"),
    "no text of words": PrivateRow("\x00\uffff \n\n{text}", "praise"),
}


def wave(**changes: Any) -> WriteWave:
    """Four batches, two of each label; keyword arguments replace fields of the query or of its rules."""
    allowed = torch.ones(len(tokenizer()), dtype=torch.bool).index_fill(0, torch.tensor([1, 2]), False)
    rules = Rules(FIXED, None, 1.5, allowed, frozenset({0}), tokens=8, longest=5, most=40)
    own = {name: changes.pop(name) for name in list(changes) if name in Rules.__dataclass_fields__}
    rules, counts = replace(rules, **own), dict.fromkeys(LABELS, 2)
    prompts = prompter(
        tokenizer(), "{label}:{text}{separator}", "{label}:{separator}", LABELS, chat=False, text_tokens=24
    )
    rows = changes.pop("micro_batch", 3)
    found = WriteWave(
        name="wave 0", model=model(), prompter=prompts, rules=rules, cells=Cells(counts, counts, KEY), first=0,
        last=4, shape=Shape(rows, prompts.longest, prompts.longest, rules.longest), stride=3,
    )  # fmt: skip
    return replace(found, **changes)


def request(query: Any) -> PlannedQuery:
    """What the query's plan reserves."""
    return PlannedQuery(query.name, query.event(), partition=query.partition, steps=query.steps)


def new_ledger(folder: Path) -> Ledger:
    """A ledger that knows the asset."""
    ledger = own_ledger(folder)
    ledger.register(Asset("tiny", delta=1e-3, epsilon=200.0, n_public=30))
    return ledger


def always(_charge: Charge) -> bool:
    return True


@contextmanager
def opened(
    ledger: Ledger,
    requests: Sequence[PlannedQuery],
    rows: Sequence[PrivateRow] = ROWS,
    seed: int | None = None,
    resumable: Callable[[Charge], bool] = always,
) -> Iterator[Session]:
    """A session as the stage opens it."""
    run = reading(RUN, ledger, SCHEMA.asset, rows)
    with metered(
        ledger, SCHEMA, run, requests, lambda: rows, NoiseSource(seed), resumable, again=EVERYTHING
    ) as session:
        yield session


@dataclass
class Counted:
    """A meter that counts nowhere but here."""

    limit: int
    begun: int = 0
    asked: list[int] = field(default_factory=list)
    charge: str = "charge"
    resumed: bool = False
    lasting: bool = True

    def begin(self, steps: int) -> None:
        assert self.begun + steps <= self.limit
        self.asked.append(steps)
        self.begun += steps


@dataclass
class Frozen:
    """What the mechanisms of a wave were given, in order; what they give back is told."""

    # ("sum", batch), ("draw", scores) and ("passes", distance)
    events: list[tuple[str, Any]] = field(default_factory=list)

    def draw(self, scores: torch.Tensor, _source: NoiseSource) -> int:
        self.events.append(("draw", scores.clone()))
        return (7 * len(self.events) + 3) % len(scores)

    def passes(self, distance: float) -> bool:
        self.events.append(("passes", distance))
        return (len(self.events) * 40503 >> 5) % 3 == 0

    def draws(self) -> list[tuple[int | None, torch.Tensor]]:
        """The scores of each draw, and the batch whose private contexts were summed for them; None for none."""
        found: list[tuple[int | None, torch.Tensor]] = []
        batch = None
        for kind, value in self.events:
            if kind == "draw":
                found.append((batch, value))
            batch = value if kind == "sum" else None
        return found

    def distances(self) -> list[tuple[int, float]]:
        """The batch and the distance of each round's comparison."""
        pairs = zip(self.events, self.events[1:], strict=False)
        return [(batch, distance) for (_, batch), (kind, distance) in pairs if kind == "passes"]


def freeze(patch: Any) -> Frozen:
    """Record what the mechanisms are given, and replace what they give back."""
    frozen, summed = Frozen(), Batches.private_sum

    def noted(self: Batches, batch: int, *rest: Any) -> torch.Tensor:
        frozen.events.append(("sum", batch))
        return summed(self, batch, *rest)

    patch.setattr(Batches, "private_sum", noted)
    patch.setattr(decoding, "draw", frozen.draw)
    patch.setattr(SparseVector, "passes", lambda _self, distance, _threshold, _source: frozen.passes(distance))
    return frozen


def claimed(clipping: Clipping) -> float:
    """How far one record may move a score that is drawn from."""
    return clipping.sensitivity / clipping.temperature  # type: ignore[attr-defined]
