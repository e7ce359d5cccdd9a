"""What the workers of a cluster bring, on works of the product, beside the same work in one process.

    OMP_NUM_THREADS=1 python -m bench.shards --lm <folder> --rounds 3

Seconds of wall-clock time, the cluster started and the libraries loaded before: with one worker and with two, turns
about. `overhead` is a work that does nothing, in 1,000 parts. All bytes are compared.

Feeds docs/performance.md. `--lm` is `models/base` of a workspace: bench/README.md.
"""

import argparse
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from palimpsest.audit.fidelity import EmbeddedTexts, FidelityAudit, Sides, fidelity
from palimpsest.audit.ngrams import NgramAudit, ngram_audit
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.units import Released
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import KeptVectors
from palimpsest.prediction.contexts import Contexts, Shape, find_agreeing_workers
from palimpsest.privacy.nearest import find_nearest
from palimpsest.records.record import Record
from palimpsest.shards import DASK, PROCESSES, RUNNER, map_items, release_cluster

TEXTS, ROWS, CANDIDATES, WRITTEN, PARTS = 1000, 60_000, 6_000, 320, 1000
COUNTED, COMPARED = 800_000, 8_000  # texts on all sides together
READ, TOKENS = 512, 16  # contexts, and how many tokens they go on
HERE = "one process"


@dataclass(frozen=True)
class Works:
    """What is measured, on made texts and vectors and a model of the caller's."""

    lm: Path  # a folder with a causal model
    folder: Path  # where vectors are kept

    def all(self) -> dict[str, Callable[[], object]]:
        """Name -> a work from its beginning, whose result can be pickled."""
        works = {"encoding, each text alone": self.encode, "nearest candidates": self.vote, "drawing": self.draw}
        works |= {"n-grams": self.count, "fidelity": self.compare}
        return {**works, "private contexts": self.read, f"overhead, {PARTS:,} parts": self.nothing}

    def encode(self) -> bytes:
        """Vectors of so many texts."""
        encoder = Encoder(resolve_encoder("embedded"))
        texts = [
            f"Parcel {number} came late, and nobody could say {'why or ' * (number % 9)}where."
            for number in range(TEXTS)
        ]
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            return KeptVectors(encoder.encode_batch, encoder.dimension, Path(own), "bench", 1)(texts).tobytes()

    def vote(self) -> bytes:
        """Neighbours of so many vectors."""
        random = np.random.default_rng(0)
        rows, candidates = (random.normal(size=(count, 384)).astype(np.float32) for count in (ROWS, CANDIDATES))
        return find_nearest(rows, candidates).tobytes()

    def count(self) -> NgramAudit:
        """N-grams that made texts share."""
        texts = np.random.default_rng(1).zipf(1.3, size=(COUNTED, 30)) % 50_000
        lines = [" ".join(map(str, row)) for row in texts.tolist()]
        sides = ([Record(line) for line in lines[start::4]] for start in range(3))
        return ngram_audit(Released(*sides, lines[3::4]), lines[1::2], (3, 5, 8), Bootstrap(resamples=128, seed=0))

    def compare(self) -> FidelityAudit:
        """All measures of made vectors and texts."""
        random = np.random.default_rng(2)
        vectors = random.normal(size=(COMPARED, 384))
        texts = [f"{row % 97} {row % 89} {row}" for row in range(COMPARED)]
        return fidelity(Sides(*(EmbeddedTexts(vectors[start::4], texts[start::4]) for start in range(4))), seed=0)

    def draw(self) -> list[str]:
        """So many texts of a model that learned nothing."""
        model, tokenizer = new_model(self.lm, 2, 16, 3)
        settings = DpLmGenerate(batch=32, max_tokens=32, filters=Filters(chain=()))
        artifact = DpLmArtifact(model, tokenizer, {"a": 0.5, "b": 0.5}, 32, "text")
        counts = {"a": WRITTEN // 2, "b": WRITTEN // 2}
        return [row.text for row in Sampler(settings, "plain", 7, FilterChain([])).sample(artifact, counts)]

    def read(self) -> bytes:
        """States of so many private contexts, behind their prompts and some tokens on."""
        model, tokenizer = load_lm(self.lm)
        prompts = [
            tokenizer(f"Parcel {number} came late, and nobody could say why. ").input_ids for number in range(READ)
        ]
        longest = max(map(len, prompts))
        shape, everyone = Shape(32, longest, longest, TOKENS, 1), torch.ones(READ, dtype=torch.bool)
        found = Contexts(model, prompts, shape, find_agreeing_workers(model, prompts[:4], [5], shape))
        for _ in range(TOKENS):
            found.step(torch.full((READ,), 5), everyone, everyone)
        return found.hidden(0, READ).numpy().tobytes()

    def nothing(self) -> int:
        """So many parts without work."""
        return sum(map_items(abs, range(PARTS)))


@contextmanager
def workers(count: int) -> Iterator[None]:
    """A cluster of so many workers; 0 for none."""
    os.environ[RUNNER] = f"{DASK}:{count}" if count else PROCESSES
    with release_cluster():
        yield


def measured(works: Works, rounds: int, only: str) -> dict[str, dict[str, list[float]]]:
    """Work -> with whom -> seconds of each round; of works whose names contain a word."""
    chosen = {name: work for name, work in works.all().items() if only in name}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in chosen}
    bytes_of: dict[str, set[bytes]] = {name: set() for name in found}
    for _ in range(rounds):
        for count in (0, 1, 2):
            with workers(count):
                for name, work in chosen.items():
                    bytes_of[name].add(pickle.dumps(work()))  # once for what is loaded and started
                    began = time.monotonic()
                    bytes_of[name].add(pickle.dumps(work()))
                    found[name].setdefault(f"{count} workers" if count else HERE, []).append(time.monotonic() - began)
    assert all(len(own) == 1 for own in bytes_of.values()), "results differ"
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="measure only works whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = measured(Works(options.lm, Path(folder)), options.rounds, options.only)
    print("| work | with | seconds, median (range) | times as fast |\n|---|---|---|---|")
    for name, of in found.items():
        alone = statistics.median(of[HERE])
        for who, seconds in of.items():
            middle = statistics.median(seconds)
            print(
                f"| {name} | {who} | {middle:.2f} ({min(seconds):.2f} to {max(seconds):.2f}) | {alone / middle:.2f} |"
            )


if __name__ == "__main__":
    main()
