"""What steering costs: tokens per second of every way to write texts, beside transformers' `generate`, in one run.

    python bench/generation.py                                   # every shape and row
    python bench/generation.py --shapes embedded --tokens 32     # some of it
    python bench/generation.py --out result.json                 # the figures as JSON too

Every row writes with one and the same model of random weights, the same prompts and the settings of params.yaml. No
text ends early: EOS is banned, in `generate` by `suppress_tokens`, in the walks because the EOS they are told of (-1)
is no token. Time is the CPU time of writing a whole batch, prompts included, on one thread, the rows taking turns; on a
GPU it is the device's. `speed` is the ratio of the medians of tokens per second, the row's to the one it is measured
against; the range is that of the same ratio turn by turn. What a row must reach stands beside it.

The same run checks two things and prints the largest differences: that a batch moves the past of each text as the text
by itself would (keys and values after every steered token), and that candidates read as one row are read as candidates
with a copy of the past each.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from palimpsest.methods.dp_lm import guidance
from palimpsest.methods.dp_lm.decoding import Past, begin, extend_mask, past_of, uniforms, write
from palimpsest.methods.dp_lm.guidance import State, next_token, start
from palimpsest.methods.dp_lm.model import BOTH, ConditionalLm, DiscriminatorHead, HeadShape
from palimpsest.methods.dp_lm.sampling import walk_of
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.tokens import Specials

BOS, PAD, SEP = 0, 1, 2
IDS = Specials(bos=BOS, sep=SEP, eos=-1, pad=PAD, control=frozenset({BOS, PAD, SEP}))
LABELS = ((5,), (7, 11, 13))  # token ids of two label names: prompts of two lengths, so padding is part of the price
NO_FILTERS = Filters(chain=(), min_words=1, max_words=None, similarity=1, quantile=0.5, threshold=0)
SETTINGS = DpLmGenerate(
    rows=1, batch=1, max_tokens=1, top_p=0.95, top_k=0, temperature=1.0, best_of=1, draws=1, iterations=3,
    step_size=0.04, gamma=1.0, kl_scale=0.01, gm_scale=0.95, horizon=1,
    candidates=16, strength=1.0, filters=NO_FILTERS,
)  # fmt: skip
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHECKED = 6  # tokens after which the pasts are compared


@dataclass(frozen=True)
class Shape:
    """A GPT-2, and how many tokens a text gets unless told otherwise."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    tokens: int

    def model(self) -> ConditionalLm:
        torch.manual_seed(0)
        config = GPT2Config(
            n_layer=self.layers,
            n_embd=self.width,
            n_head=self.heads,
            vocab_size=self.vocabulary,
            n_positions=1024,
            bos_token_id=BOS,
            eos_token_id=BOS,
            pad_token_id=PAD,
            activation_function="gelu_pytorch_tanh",  # as `load_lm` sets it
        )
        lm = GPT2LMHeadModel(config)
        scale = float(lm.transformer.wte.weight.detach().square().mean().rsqrt())
        head = DiscriminatorHead(HeadShape(BOTH, 2 * self.width, 0, len(LABELS)))
        return ConditionalLm(lm, head, scale).eval().to(DEVICE)


SHAPES = {
    "embedded": Shape(4, 256, 4, 8192, 64),
    "distilgpt2": Shape(6, 768, 12, 50257, 8),
    "141M": Shape(18, 640, 4, 64_000, 8),  # as deep and wide as Gemma 3 270M with an English vocabulary
}


@dataclass(frozen=True)
class Job:
    """A model, and how many texts of how many tokens a row writes with it."""

    model: ConditionalLm
    texts: int
    tokens: int

    def targets(self) -> list[int]:
        return [number % len(LABELS) for number in range(self.texts)]

    def prompts(self) -> list[list[int]]:
        return [[BOS, *LABELS[target], SEP] for target in self.targets()]


def generated(job: Job) -> None:
    """The library's own loop: the model's distribution, nucleus sampling."""
    prompts = job.prompts()
    width = max(map(len, prompts))
    rows = [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
    tokens = torch.tensor(rows, device=DEVICE)
    lm: Any = job.model.lm
    texts = lm.generate(
        tokens,
        attention_mask=(tokens != PAD).long(),
        do_sample=True,
        temperature=SETTINGS.temperature,
        top_p=SETTINGS.top_p,
        top_k=SETTINGS.top_k,
        max_new_tokens=job.tokens,
        suppress_tokens=sorted(IDS.control),
    )
    require_full(len(texts[0]) - width, job)


def walked(job: Job, variant: str) -> None:
    """Texts as the generator writes them."""
    targets = job.targets()
    coins = np.stack([uniforms(1, target, number, job.tokens) for number, target in enumerate(targets)])
    walk = walk_of(variant, job.model, job.prompts(), targets, IDS, SETTINGS)
    require_full(min(map(len, write(walk, IDS, SETTINGS, coins))), job)


def copied(job: Job) -> None:
    """FUDGE as it is usually written: the past once more for every candidate."""
    with reading(read_copied):
        walked(job, "fudge")


def require_full(tokens: int, job: Job) -> None:
    if tokens != job.tokens:
        raise RuntimeError(f"A text has {tokens} tokens instead of {job.tokens}: the rows cannot be compared.")


Read = Callable[[ConditionalLm, torch.Tensor, Past, torch.Tensor], tuple[torch.Tensor, Past]]


@contextmanager
def reading(read: Read) -> Iterator[None]:
    """Let `FudgeWalk` read its candidates this way."""
    module: Any = guidance
    usual = module.read_candidates
    module.read_candidates = read
    try:
        yield
    finally:
        module.read_candidates = usual


def read_copied(
    model: ConditionalLm, tokens: torch.Tensor, past: Past, mask: torch.Tensor
) -> tuple[torch.Tensor, Past]:
    """What `read_candidates` returns, from a batch of B x k rows with a copy of the past each."""
    texts, candidates = tokens.shape
    wide = tuple(
        (keys.repeat_interleave(candidates, 0), values.repeat_interleave(candidates, 0)) for keys, values in past
    )
    masks, cache = mask.repeat_interleave(candidates, 0), DynamicCache(wide)
    output = model.lm.base_model(
        input_ids=tokens.reshape(-1, 1),
        attention_mask=extend_mask(masks),
        position_ids=masks.sum(dim=1, keepdim=True),
        past_key_values=cache,
    )
    newest = [tuple(part[:, :, -1].unflatten(0, (texts, candidates)) for part in layer) for layer in past_of(cache)]
    behind = tuple(
        (torch.cat([keys, new_keys.transpose(1, 2)], dim=2), torch.cat([values, new_values.transpose(1, 2)], dim=2))
        for (keys, values), (new_keys, new_values) in zip(past, newest, strict=True)
    )
    return output.last_hidden_state.reshape(texts, candidates, -1), behind


@dataclass(frozen=True)
class Row:
    """A way to write texts."""

    write: Callable[[Job], None]  # writes the texts of a job
    against: str  # the row whose tokens per second this one's are divided by
    bar: float | None = None  # the ratio it must reach; none where it is only shown
    texts: int | None = None  # side by side; none means the batch of the run
    half: bool = False  # whether the language model is in bfloat16


ROWS = {
    "transformers generate": Row(generated, "transformers generate"),
    "plain": Row(partial(walked, variant="plain"), "transformers generate", bar=1 / 1.2),
    "pplm, one sequence at a time": Row(partial(walked, variant="multitask"), "pplm, one sequence at a time", texts=1),
    "pplm": Row(partial(walked, variant="multitask"), "pplm, one sequence at a time", bar=10.0),
    "fudge, cache copied for each candidate": Row(copied, "pplm"),
    "fudge": Row(partial(walked, variant="fudge"), "pplm", bar=2.0),
    "fudge_state": Row(partial(walked, variant="fudge_state"), "pplm", bar=5.0),
    "plain in bf16": Row(partial(walked, variant="plain"), "plain", half=True),
    "fudge in bf16": Row(partial(walked, variant="fudge"), "fudge", half=True),
}

Figures = dict[str, float | str | None]


def measure(model: ConditionalLm, names: list[str], batch: int, tokens: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of each row, turn by turn."""
    halved = deepcopy(model)
    halved.lm.to(torch.bfloat16)
    jobs = {name: Job(halved if ROWS[name].half else model, ROWS[name].texts or batch, tokens) for name in names}
    for name in names:
        ROWS[name].write(replace(jobs[name], tokens=2))  # warm
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # what ran before leaves its traces
            speeds[name].append(jobs[name].texts * tokens / timed(partial(ROWS[name].write, jobs[name])))
    return speeds


def timed(work: Callable[[], None]) -> float:
    if DEVICE.type == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def figures(speeds: dict[str, list[float]]) -> dict[str, Figures]:
    """Row -> its tokens per second and what they are of those of the row it is measured against."""
    return {name: _figures(ROWS[name], own, speeds[ROWS[name].against]) for name, own in speeds.items()}


def _figures(row: Row, own: list[float], others: list[float]) -> Figures:
    turns = [speed / other for speed, other in zip(own, others, strict=True)]
    return {
        "tokens_per_second": statistics.median(own),
        "against": row.against,
        "speed": statistics.median(own) / statistics.median(others),
        "lowest": min(turns),
        "highest": max(turns),
        "bar": row.bar,
    }


@torch.no_grad()
def perturbation_differences(model: ConditionalLm, batch: int) -> tuple[float, float]:
    """Largest difference of the steered pasts between a batch and its texts by themselves, and the largest movement.

    Both go through the same tokens, and are compared after each of them.
    """
    job = Job(model, batch, CHECKED)
    tokens = torch.randint(SEP + 1, len(model.embedding), (CHECKED, batch), device=DEVICE)
    together = steered(model, start(model, job.prompts(), job.targets(), PAD), tokens)
    differences, movements = [], []
    for text, (prompt, target) in enumerate(zip(job.prompts(), job.targets(), strict=True)):
        alone = steered(model, start(model, [prompt], [target], PAD), tokens[:, text : text + 1])
        for state, lone in zip(together, alone, strict=True):
            differences.append(distance(real(state, text, state.steered), real(lone, 0, lone.steered)))
            movements.append(distance(real(lone, 0, lone.steered), real(lone, 0, lone.plain)))
    return max(differences), max(movements)


def steered(model: ConditionalLm, state: State, tokens: torch.Tensor) -> list[State]:
    """The states after each step of PPLM, along given tokens (steps, B)."""
    states = []
    for step in tokens:
        state, _ = next_token(model, state, SETTINGS)
        states.append(state)
        state = replace(state, last=step)
    return states


def real(state: State, row: int, past: Past) -> Past:
    """One text's past without the columns of its padding."""
    columns = state.mask[row].bool()
    return tuple((keys[row][:, columns], values[row][:, columns]) for keys, values in past)


def distance(first: Past, second: Past) -> float:
    pairs = [pair for layers in zip(first, second, strict=True) for pair in zip(*layers, strict=True)]
    return max(float((one - other).abs().max()) for one, other in pairs)


@torch.no_grad()
def candidate_difference(model: ConditionalLm, batch: int) -> float:
    """Largest difference of hidden states, keys and values between the two ways to read candidates."""
    _, past, mask = begin(model, Job(model, batch, 1).prompts(), PAD)
    tokens = torch.randint(SEP + 1, len(model.embedding), (batch, SETTINGS.candidates), device=DEVICE)
    (tree, after), (copies, behind) = (
        read(model, tokens, past, mask) for read in (guidance.read_candidates, read_copied)
    )
    return max(float((tree - copies).abs().max()), distance(after, behind))


def run(shape: str, names: list[str], batch: int, tokens: int | None, rounds: int) -> dict[str, object]:
    """Measure and check one shape, and print it."""
    model = SHAPES[shape].model()
    length = tokens or SHAPES[shape].tokens
    found = figures(measure(model, names, batch, length, rounds))
    print(f"\n{shape}: {batch} texts of {length} tokens, {rounds} turns\n{table(found)}", flush=True)
    difference, movement = perturbation_differences(model, batch)
    print(f"perturbed past, a batch of {batch} against one: {difference:.1e} of a movement of {movement:.1e}")
    candidates = candidate_difference(model, batch)
    print(f"candidates, one row against copies of the past: {candidates:.1e}", flush=True)
    return {"rows": found, "perturbation": difference, "movement": movement, "candidates": candidates}


def table(rows: dict[str, Figures]) -> str:
    lines = ["| row | tokens / s | against | speed | range | bar |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *(line(name, row) for name, row in rows.items())])


def line(name: str, row: Figures) -> str:
    if row["against"] == name:
        return f"| {name} | {row['tokens_per_second']:.0f} | | 1 | | |"
    bar = "" if row["bar"] is None else f"{row['bar']:.2f}"
    return (
        f"| {name} | {row['tokens_per_second']:.0f} | {row['against']} | {row['speed']:.2f} "
        f"| {row['lowest']:.2f} to {row['highest']:.2f} | {bar} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument(
        "--rows", nargs="*", default=list(ROWS), choices=list(ROWS), help="each needs its reference too"
    )
    parser.add_argument("--batch", type=int, default=32, help="texts side by side")
    parser.add_argument("--tokens", type=int, help="new tokens of each text; by default the shape's own")
    parser.add_argument("--rounds", type=int, default=5, help="measured turns of each row")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    result = {
        shape: run(shape, options.rows, options.batch, options.tokens, options.rounds) for shape in options.shapes
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
