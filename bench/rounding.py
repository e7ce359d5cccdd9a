"""What rounding, rows of one person and the tail of the noise cost: one subcommand for each line of a table.

    python -m bench.rounding swap                                     # rows of a person at the cap
    python -m bench.rounding groups                                   # epsilons for all rows of a person
    python -m bench.rounding clipped --data <folder> --lm <folder>    # a record less, and the others' clipped sum
    python -m bench.rounding contexts --lm <folder>                   # contexts beside each other
    python -m bench.rounding tail                                     # what the noise cannot be

To measure an earlier tree, put its `src` before this one's: PYTHONPATH=<tree>/src python -m bench.rounding swap.

`swap`: how often one row more of a person who is at the cap takes the place of one of that person's kept rows, over
fresh keys. `groups`: what a Gaussian and a training that hold a given epsilon for one record hold for k of them.
`clipped`: a batch is summed with and without one record, through the product's own training query; what moves beside
the record's own clipped gradient is the movement of all others, and the rounding of the sum. It is told in units of the
clipping norm C, the median and the largest over records. `contexts`: how far a private context's logits move with the
number of contexts that are read beside it, and what such an error is worth in rho: a plan of r tokens at temperature 1
may move a score by sqrt(2 rho / r), and with an error e a score and m batches read together its rho is r / 2
((sqrt(2 rho / r) + e)^2 + (m - 1) e^2). `tail`: the largest normal that Box and Muller's transform makes of 53 bits,
and the probability of a larger one over all draws of a training; or what becomes of bits that do not suffice.
"""

import argparse
import math
import random
import secrets
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import dp_accounting as dpa
import numpy as np
import torch
from scipy.special import log_ndtr

from bench.real_data import SST2, TASKS, lines
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.plan import plan as planned
from palimpsest.methods.dp_lm.settings import DpLmTrain
from palimpsest.methods.shared.base import Budget
from palimpsest.models.lm import load_lm
from palimpsest.privacy.accounting import calibrate_noise, group_epsilon, zcdp_rho
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import Query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.private import RawRow
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.split import cap_rows
from palimpsest.training import dpsgd

reading: ModuleType = import_module("palimpsest.prediction.contexts")  # of this tree, or of an earlier one
circle: ModuleType = import_module("palimpsest.privacy.circle")  # too
CAPS = (1, 2, 3, 4, 16)
KEYS = 2000
BATCHES = (64, 128, 256)
LEFT_OUT = 4  # records that are left out, one after the other: the shortest, and those at each quarter of the lengths
ADMITTED, TOGETHER = 5e-4, 64  # nats that a check let pass, and batches that are read together
WEIGHTS, STEPS, EPSILON = 82_000_000, 1000, 3.0  # distilGPT2's


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("swap", "groups", "clipped", "contexts", "tail"))
    parser.add_argument("--data", type=Path, help="folder of the gzipped JSON lines")
    parser.add_argument("--lm", type=Path, help="folder of the public language model")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"], help="of `clipped`")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"swap": swap, "groups": groups, "clipped": clipped, "contexts": contexts, "tail": tail}
    parts[args.part](args)


def swap(_args: argparse.Namespace) -> None:
    """Rows of one person at the cap, and one row more."""
    print("| most rows | a kept row makes room |\n|---|---|")
    for most in CAPS:
        rows = [RawRow(f"text {number}", "a", "somebody") for number in range(most + 1)]
        found = sum(_displaces(rows, most) for _ in range(KEYS)) / KEYS
        print(f"| {most} | {found:.3f} |")


def _displaces(rows: Sequence[RawRow], most: int) -> bool:
    key = secrets.token_bytes(32)
    return cap_rows(rows[:most], key, most) != cap_rows(rows, key, most)[:most]


def groups(_args: argparse.Namespace) -> None:
    """A Gaussian and a training at record epsilon 2.4 and 3, for k rows together."""
    delta = default_delta(10_000)
    for epsilon in (2.4, 3.0):
        for name, event in _mechanisms(epsilon, delta):
            lines_of = ", ".join(f"{k}: {group_epsilon(event, k, delta):.1f}" for k in (1, 2, 3, 5, 7, 10))
            print(f"{name}, epsilon {epsilon:g} for one record; for k rows {lines_of}")


def _mechanisms(epsilon: float, delta: float) -> Iterator[tuple[str, dpa.DpEvent]]:
    def training(noise: float) -> dpa.DpEvent:
        return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.0512, dpa.GaussianDpEvent(noise)), 78)

    for name, make in (("Gaussian", dpa.GaussianDpEvent), ("training", training)):
        yield name, make(calibrate_noise(make, epsilon, delta))


@dataclass
class Caught(Exception):
    """The training query that a fit would ask."""

    query: dpsgd.TrainQuery


class Catching:
    """A view that answers nothing."""

    def ask(self, query: Query) -> Any:
        assert isinstance(query, dpsgd.TrainQuery)
        raise Caught(query)


def clipped(args: argparse.Namespace) -> None:
    """One record less, and what else moves in the clipped sum."""
    rows = [PrivateRow(row["text"], row["label"].lower()) for row in lines(args.data / "sst2_train.jsonl.gz")]
    random.Random(0).shuffle(rows)
    print("| precision | batch | others move, median | largest, in C |\n|---|---|---|---|")
    for precision in args.precisions:
        query = one_step(training_query(args.lm, precision))
        for size in BATCHES:
            batch = rows[:size]
            by_length = sorted(range(size), key=lambda index: len(batch[index].text))
            moved = [others_move(query, batch, index) for index in by_length[:: size // LEFT_OUT]]
            print(f"| {precision} | {size} | {statistics.median(moved):.1e} | {max(moved):.1e} |", flush=True)


def training_query(lm: Path, precision: str) -> dpsgd.TrainQuery:
    """What `dp_lm` asks of SST-2 under settings like those of `palimpsest reproduce house methods`."""
    schema = PublicSchema("sst2", "classify", "text", TASKS["sst2"]["n"], 240, "label", SST2)
    train = settings(precision=precision)
    plan = planned(train, schema, Budget(math.inf, default_delta(schema.n_public)))
    try:
        DpLm(train, schema, plan, lm, 0, None).ask(Catching())
    except Caught as found:
        return found.query
    raise AssertionError("the fit asked nothing")


def settings(**more: Any) -> DpLmTrain:
    """Settings of a training of the small public language model."""
    values: dict[str, Any] = {
        "epochs": 3, "batch": 128, "learning_rate": 0.004, "schedule": "linear", "warmup": 0.05, "betas": (0.9, 0.98),
        "adam_eps": 1e-8, "weight_decay": 0.0, "noise_correction": False, "clipping": "joint", "clipping_norm": 0.1,
        "discriminator_weight": 0.0, "discriminator_width": 0, "discriminator_reads": "both", "prefix_step": 4,
        "loss_on": "text", "freeze_first": 0, "freeze_last": 0, "freeze_embeddings": True, "lora_rank": 0,
        "max_tokens": 40, "micro_batch": 32, "precision": "float32", "checkpoint_steps": 50, "label_counts": "prior",
        "prior": None, "histogram_share": 0.01, "person": "joint",
    }  # fmt: skip
    known = {name: value for name, value in (values | more).items() if name in DpLmTrain.model_fields}  # of this tree
    return DpLmTrain(**known)


def one_step(query: dpsgd.TrainQuery) -> dpsgd.TrainQuery:
    """The same training of one step that every row joins, without noise."""
    plan = replace(query.plan, rate=1.0, steps=1, noise_multiplier=0.0)
    return replace(query, plan=plan, probe=())


def others_move(query: dpsgd.TrainQuery, rows: Sequence[PrivateRow], index: int) -> float:
    """How far the sum moves beside the clipped gradient of the row that is left out, in units of C."""
    rest = [*rows[:index], *rows[index + 1 :]]
    whole, without, alone = (clipped_sum(query, part) for part in (rows, rest, [rows[index]]))
    return float((whole - without - alone).norm()) / query.plan.clipping_norm


def clipped_sum(query: dpsgd.TrainQuery, rows: Sequence[PrivateRow]) -> torch.Tensor:
    """The sum of clipped gradients just before noise would be added: flat, float64."""
    caught: list[torch.Tensor] = []

    def catch(sums: Sequence[torch.Tensor], *_rest: Any) -> None:
        caught.extend(values.detach().double().flatten() for values in sums)

    with patch.object(dpsgd, "privatise", catch):
        query.run(rows, NoiseSource())
    return torch.cat(caught)


def contexts(args: argparse.Namespace) -> None:
    """A private context's logits beside more and fewer contexts, and what that is worth."""
    model, tokenizer = load_lm(args.lm)
    prompts = [
        tokenizer.encode(f"A review of film {number}. " + "It was good. " * (number % 5)) for number in range(64)
    ]
    alone = torch.cat([_logits(model, [prompt]) for prompt in prompts])
    beside = [_logits(model, prompts[:count]) for count in (2, 8, 31, 32, 33, 64)]
    moved = max(float((logits - alone[: len(logits)]).abs().max()) for logits in beside)
    print(f"a logit moves by up to {moved:.1e} nats with the contexts beside it")
    for epsilon, tokens in ((1.0, 100), (1.0, 1000), (3.0, 100), (3.0, 1000)):
        rho = zcdp_rho(epsilon, default_delta(10_000))
        move = math.sqrt(2.0 * rho / tokens)
        spoilt = 0.5 * tokens * ((move + ADMITTED) ** 2 + (TOGETHER - 1) * ADMITTED**2)
        print(f"epsilon {epsilon:g}, {tokens} tokens: sensitivity {move:.1e}; e {ADMITTED}: {spoilt / rho:.2f} rho")


@torch.no_grad()
def _logits(model: Any, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits behind each prompt, as this tree's private prediction reads 32 contexts in a forward pass."""
    if hasattr(reading, "Shape"):
        shape = reading.Shape(rows=32, least=16, most=64, room=4)
        states = reading.Contexts(model, prompts, shape).hidden(0, len(prompts))
        return torch.cat(list(reading.logits_of(reading.head_of(model), states, shape.rows)))
    states = reading.Contexts(model, prompts, 4, 32).hidden(0, len(prompts))
    return reading.head_of(model)(states).float()


def tail(_args: argparse.Namespace) -> None:
    """What 53 bits cannot be and what that is in delta, or that more bits follow where they do not suffice."""
    if hasattr(circle, "whole_normals"):
        for words in (1, 2, 10):
            print(f"a uniform of {words * 52} zero bits and a one: a normal of {_after_zeros(words):.2f}")
        return
    end = math.sqrt(2.0 * 53.0 * math.log(2.0))  # the smallest uniform is 2^-53
    beyond = 2.0 * math.exp(log_ndtr(-end))
    total = WEIGHTS * STEPS * beyond
    print(f"largest normal {end:.2f}, beyond it {beyond:.2e}")
    print(f"{WEIGHTS:,} weights, {STEPS} steps: total variation {total:.2e}")
    print(f"delta at epsilon {EPSILON:g}: {(1.0 + math.exp(EPSILON)) * total:.2e}")


def _after_zeros(words: int) -> float:
    """The larger of a pair of normals whose uniforms begin with so many words of zero bits."""
    following = iter([np.zeros(2, np.uint64)] * (words - 1) + [np.full(2, 1 << 63, np.uint64)])
    steps = circle.whole_normals(np.zeros(2, np.uint64), 2.0**24, lambda _size: next(following))
    return float(np.abs(steps).max()) / 2.0**24


if __name__ == "__main__":
    main()
