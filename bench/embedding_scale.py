"""Rounds of `embed` at scale: memory, and the time of a round beside the bare search for nearest candidates.

    python -m bench.embedding_scale --rows 100000 --offspring 3000 --rounds 7

Rows and public texts are vectors around random centres (`bench.evolution_scale`), handed to the product's generator by
an encoder that looks them up; its queries are answered from rows at hand. `round` is the median time from one vote to
the next, both of offspring, without decoding; `search` is the median time of `palimpsest.privacy.nearest` alone on the
same rows and the candidates of each round, run by turns with it.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bench.evolution_rounds import NONE, Counting, Noised
from bench.evolution_scale import CENTRES, around
from palimpsest.methods.embed.declaration import Eda, EmbedSettings, GaussianHistogram
from palimpsest.methods.embed.fit import Embed
from palimpsest.methods.embed.plan import plan as planned
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates
from palimpsest.models.settings import DecodeSettings
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.nearest import find_nearest
from palimpsest.privacy.query import Query, is_stepped
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema, default_delta
from tests.methods.encoders import Encoding

DECODE = DecodeSettings(samples=4, corrections=0, temperature=0.7, top_p=0.95, max_tokens=32, batch=256)


@dataclass(frozen=True, eq=False)
class Numbered:
    """An encoder of texts that are the numbers of their vectors."""

    vectors: np.ndarray

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self.vectors[[int(text) for text in texts]]


@dataclass(frozen=True)
class Silent:
    """A decoder that takes no time: each text is the number of the public text that the vectors began with."""

    embeddings: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    texts: Sequence[str] = ()

    def decode(self, vectors: np.ndarray, settings: DecodeSettings, encode: Any, seed: int) -> "Silent":
        return Silent(vectors, ["0"] * len(vectors))


@dataclass
class Watched(Counting):
    """Notes when each round begins, and searches the same rows and candidates once more before it does."""

    rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    slate: list[np.ndarray] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    searched: list[float] = field(default_factory=list)

    def begin(self, steps: int) -> None:
        super().begin(steps)
        start = time.perf_counter()
        find_nearest(self.rows, self.slate[-1])
        self.searched.append(time.perf_counter() - start)
        self.began.append(time.perf_counter())


@dataclass(frozen=True, eq=False)
class Watching(Noised):
    """Answers the rounds under a watched meter."""

    meter: Watched

    def ask(self, query: Query) -> Any:
        if not is_stepped(query):
            return super().ask(query)
        propose, self.meter.slate[:] = query.propose, [query.first.vectors[""]]  # type: ignore[attr-defined]

        def noted(done: Any) -> Any:
            slate = propose(done)
            self.meter.slate.append(slate.vectors[""])
            return slate

        object.__setattr__(query, "propose", noted)
        answer = query.run_steps(self.rows, NoiseSource(), self.meter)  # type: ignore[attr-defined]
        self.meter.began.append(time.perf_counter())
        return answer


def main() -> None:
    """Measure and print."""
    args = arguments()
    torch.set_num_threads(args.threads)
    print(f"{args.rows:,} rows, {args.offspring:,} offspring, {args.rounds} rounds, {args.threads} threads")
    for name, value in measured(args).items():
        print(f"| {name} | {value} |")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--offspring", type=int, default=3000)
    parser.add_argument("--parents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def unread(texts: Sequence[str]) -> np.ndarray:
    """No text is read here."""
    raise AssertionError("a text was read")


def measured(args: argparse.Namespace) -> dict[str, float]:
    """Seconds and gigabytes by name."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, args.dimensions), dtype=np.float32)
    rows, public = around(centres, args.rows, rng), around(centres, args.offspring, rng)
    meter = Watched(args.rounds, rows=rows)
    private = [PrivateRow(str(number), None) for number in range(len(rows))]
    schema = PublicSchema("scale", "text", "text", args.rows, 100, None, {})
    start = Candidates([str(number) for number in range(len(public))], public)
    plan = planned(settings(args), schema, Budget(1.0, default_delta(args.rows)))
    encoders = Encoding(Numbered(rows), Numbered(public), args.dimensions)
    fit = Embed(
        settings(args), schema, plan, start, [None] * len(start.texts), None, Silent(), encoders, unread, None, 0, None
    )
    fit.ask(Watching(private, meter))
    # From the end of one search to the end of the next vote's search lies a whole round: vote, selection, offspring.
    ends = zip(meter.began[:-1], meter.began[1:], [*meter.searched[1:], 0.0], strict=True)
    took = [after - before - search for before, after, search in ends][:-1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ratios = [one / bare for one, bare in zip(took, meter.searched, strict=False)]
    found = {
        "round, s": statistics.median(took),
        "search, s": statistics.median(meter.searched),
        "ratio": statistics.median(ratios),
        "lowest ratio": min(ratios),
        "highest ratio": max(ratios),
        "peak, GiB": memory,
    }
    return {name: round(value, 3) for name, value in found.items()}


def settings(args: argparse.Namespace) -> EmbedSettings:
    """The paper's sizes, with noise on every count."""
    return EmbedSettings(
        rows=1, label_counts="prior", prior=None, histogram_share=0.01, batch=64, rounds=args.rounds,
        start=args.offspring, offspring=args.offspring, parents=args.parents,
        selection=GaussianHistogram(kind="gaussian", neighbours=1), eda=Eda(smoothing=0.1, best=10, components=1),
        readable=None, class_means=None, decode=DECODE, filters=NONE,
    )  # fmt: skip


if __name__ == "__main__":
    main()
