"""Private prediction: how fast it writes, and how much memory that takes.

    python bench/prediction.py speed --lm <folder> --texts <jsonl[.gz]> [--peer <python of the peer's environment>]
    python bench/prediction.py memory --lm <folder> --texts <jsonl[.gz]>

`speed` writes with one model, the same records, the same private contexts per token and the same number of tokens: by
this project's engine, in float32 and in bf16; by the peer `invink`, in its own environment and process
(`bench/peer_invink.py` says how to make it); and by reading every prompt anew for each token, as the few-shot baseline
must. Time is CPU time on one thread, the rows taking turns; `speed` is the ratio of medians. No text ends early.
`memory` gives the peak of a process of its own for data sets of several sizes, and for several numbers of contexts that
are written side by side. Utility is measured by `bench/prediction_utility.py`. On a GPU, time is that which passes
until the device is done.

Feeds docs/performance.md, and `memory` docs/sizing.md. `--lm` is `models/base` of a workspace: bench/README.md.
`--texts` is a file of the folder that `python -m bench.real_data` makes.
"""

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from palimpsest.devices import device, dtype_of
from palimpsest.methods.predict.fit import shape_of
from palimpsest.methods.shared.predicted import allowed_tokens
from palimpsest.models.lm import load_lm
from palimpsest.prediction.cells import Cells
from palimpsest.prediction.contexts import give_dtype
from palimpsest.prediction.decoding import Rules
from palimpsest.prediction.mechanism import DifferenceClipping, draw
from palimpsest.prediction.prompts import prompter
from palimpsest.prediction.query import WriteWave
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow

HEAD = "A sentence from a movie review.\n"  # the peer's prompt, too
NO_TOKEN = frozenset({-1})
HERE = device()


@dataclass
class Meter:
    """Counts in memory: a bench has no ledger."""

    limit: int
    begun: int = 0
    charge: str = "bench"
    resumed: bool = False
    lasting: bool = False

    def begin(self, steps: int) -> None:
        self.begun += steps


@dataclass(frozen=True)
class Job:
    """What is written: `batches` batches of `size` records, `tokens` tokens each, `together` contexts side by side."""

    lm: Path
    texts: Path
    size: int
    tokens: int
    batches: int
    together: int
    micro_batch: int
    precision: str = "float32"

    def rows(self, count: int) -> list[PrivateRow]:
        """So many records; a small file is read again, with a number behind each text."""
        opened = gzip.open if self.texts.suffix == ".gz" else open
        with opened(self.texts, "rt", encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        return [PrivateRow(texts[i % len(texts)] + f" {i // len(texts)}" * (i >= len(texts))) for i in range(count)]


def main() -> None:
    args = arguments()
    {"speed": speed, "memory": memory, "write": write}[args.what](args)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "write"))
    parser.add_argument("--lm", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--peer", type=Path, help="the python of the environment that has the peer")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 32], help="private contexts of a batch, s")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--together", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=256)
    parser.add_argument("--records", type=int, default=0, help="of `write`, which `memory` calls")
    return parser.parse_args()


def speed(args: argparse.Namespace) -> None:
    """Private tokens per second of the three rows, in turns."""
    torch.set_num_threads(1)
    print("| s | row | private tokens a second | this project's speed |\n|---|---|---|---|")
    for size in args.sizes:
        job = Job(args.lm, args.texts, size, args.tokens, args.batches, args.together, args.micro_batch)
        ways: dict[str, Callable[[Job], float]] = {"palimpsest": own, "palimpsest, bf16": own_half, "read anew": anew}
        if args.peer:
            ways["invink"] = lambda job: peer(job, args.peer)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.turns):
            for name, way in ways.items():
                found[name].append(way(job))
        best = statistics.median(found["palimpsest"])
        for name, rates in found.items():
            spread = f"{statistics.median(rates):.1f} ({min(rates):.1f}-{max(rates):.1f})"
            print(f"| {size} | {name} | {spread} | {best / statistics.median(rates):.2f} |", flush=True)


def own(job: Job) -> float:
    """Tokens per CPU second of this project's engine, prompts included."""
    wave = made(job)
    rows, source = job.rows(job.size * job.batches), NoiseSource()
    wave.run_steps(rows[: job.size], source, Meter(job.tokens))  # warms up
    begun = clock()
    found = wave.run_steps(rows, source, Meter(job.tokens))
    return sum(batch["private"] for batch in found) / (clock() - begun)


def own_half(job: Job) -> float:
    """The same in bf16."""
    return own(replace(job, precision="bf16"))


def clock() -> float:
    """Seconds: of this process on a CPU, that passed on a GPU."""
    if HERE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def made(job: Job) -> WriteWave:
    """The query that writes the job."""
    model, tokenizer = load_lm(job.lm)
    model.to(HERE)
    give_dtype(model, dtype_of(job.precision))
    prompts = prompter(tokenizer, HEAD + "{text}\n", HEAD, {}, chat=False, text_tokens=128)
    clipping = DifferenceClipping(1.0, 1.0, job.size, 100)
    allowed = allowed_tokens(model, tokenizer, frozenset())
    rules = Rules(clipping, None, 1.0, allowed, NO_TOKEN, job.tokens, job.tokens, 10 * job.tokens)
    cells = Cells({"": job.batches}, {"": job.batches}, bytes(32))
    shape = shape_of(job.micro_batch, prompts.longest, job.tokens, processor=HERE.type == "cpu")
    return WriteWave(
        name="bench", model=model, prompter=prompts, rules=rules, cells=cells, first=0, last=job.batches, shape=shape,
        stride=job.tokens,
    )  # fmt: skip


@torch.no_grad()
def anew(job: Job) -> float:
    """The same for one batch whose prompts are read again for every token, all contexts in one forward pass."""
    wave, source = made(job), NoiseSource()
    model, clipping = wave.model, wave.rules.clipping
    own_rows = [row.text for row in job.rows(job.size)]
    prompts = [*wave.prompter.contexts("", own_rows), list(wave.prompter.public[""])]
    text: list[int] = []
    begun, count = clock(), max(4, job.tokens // 4)
    for _ in range(count):
        # The cost of a token in the middle of a text: those before it are there.
        written = [5] * (job.tokens // 2 - count // 2) + text
        width = max(map(len, prompts)) + len(written)
        rows = [prompt + written for prompt in prompts]
        tokens = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=HERE)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=HERE)
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
        logits = model(tokens, attention_mask=mask, position_ids=positions, logits_to_keep=1).logits[:, -1]
        public = logits[-1]
        columns = clipping.candidates(public, wave.rules.allowed).nonzero().squeeze(1)
        total = clipping.contributions(logits[:-1, columns], public[columns]).sum(dim=0)
        text.append(int(columns[draw(clipping.scores(total, public[columns]), source)]))
    return count / (clock() - begun)


def peer(job: Job, python: Path) -> float:
    """The peer's tokens per CPU second, as its own process tells."""
    command = [
        str(python), str(Path(__file__).with_name("peer_invink.py")), "--model", str(job.lm), "--texts", str(job.texts),
        "--batch-size", str(job.size), "--tokens", str(job.tokens), "--examples", str(max(2, 64 // job.size)),
        "--threads", "1",
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["tokens_per_second"])


def memory(args: argparse.Namespace) -> None:
    """Peak memory against the number of records, and against how many contexts are written side by side."""
    print("| records | contexts side by side | peak, MB |\n|---|---|---|")
    for records, together in [(1_000, 512), (4_000, 512), (8_000, 512), (4_000, 1024), (4_000, 2048)]:
        command = [
            sys.executable, __file__, "write", "--lm", str(args.lm), "--texts", str(args.texts), "--sizes", "32",
            "--tokens", "4", "--records", str(records), "--together", str(together),
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"| {records} | {together} | {float(done.stdout.split()[-1]):.0f} |", flush=True)


def write(args: argparse.Namespace) -> None:
    """Write a few tokens from every batch, wave after wave; print the process's peak memory in MB."""
    size = args.sizes[0]
    job = Job(args.lm, args.texts, size, args.tokens, args.records // size, args.together, args.micro_batch)
    whole, rows = made(job), job.rows(args.records)
    step = args.together // size
    for first in range(0, job.batches, step):
        parts = {**whole.__dict__, "first": first, "last": min(first + step, job.batches)}
        WriteWave(**parts).run_steps(rows, NoiseSource(), Meter(job.tokens))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
