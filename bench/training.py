"""What exact per-example clipping costs: step time and peak memory beside plain Adam and Opacus, in one run.

    python bench/training.py                       # every shape and engine, time and memory
    python bench/training.py --shapes embedded-64  # some of it
    python bench/training.py --out result.json     # the figures as JSON too

Time is the median CPU time of a whole step (forward, backward, clipping, noise, Adam) on one thread, the engines taking
turns in one process. Memory is the highest resident set above the loaded model, in a fresh process for each engine. On
a GPU, under bfloat16 autocast, time is that which passes until the device is done, and memory is the device's. Ratios
are to plain Adam on the same weights: `untied` rows are measured against an untied baseline, because those engines
refuse tied weights. Rows with a fused activation use torch's kernel of GPT-2's activation, as `load_lm` does; their
ratio is to plain Adam without it.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import torch
from torch import nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from palimpsest.methods.dp_lm.model import add_adapters
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.training.bookkeeping import BookkeepingEngine, room
from palimpsest.training.dpsgd import privatise
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.losses import lm_head_loss
from palimpsest.training.plan import TrainingPlan

LEARNING_RATE, CLIPPING_NORM, NOISE = 1e-4, 0.1, 1.0
WARM_UP = 2  # steps before anything is measured: Adam's moments exist then
PLAN = TrainingPlan(0.01, 100, CLIPPING_NORM, NOISE, 64.0, "joint", 1)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BF16 = DEVICE.type == "cuda"

Step = Callable[[torch.Tensor], None]


@dataclass(frozen=True)
class Shape:
    """A model of random weights and a batch."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    tokens: int
    gemma: bool = False  # a Gemma 3, gated and with sliding attention, in place of a GPT-2
    rank: int = 0  # of the adapters that train in its place, which is then in bfloat16 on a GPU; 0 trains all

    def model(self, engine: "Engine") -> PreTrainedModel:
        torch.manual_seed(0)
        with DEVICE:
            model = self._gemma() if self.gemma else self._gpt2(engine)
        if self.rank:
            add_adapters(SimpleNamespace(lm=model.to(torch.bfloat16 if BF16 else torch.float32)), self.rank, seed=0)
        return model.train().to(DEVICE)

    def _gpt2(self, engine: "Engine") -> PreTrainedModel:
        config = GPT2Config(
            n_layer=self.layers,
            n_embd=self.width,
            n_head=self.heads,
            vocab_size=self.vocabulary,
            n_positions=1024,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
            loss_type="ForCausalLM",
            tie_word_embeddings=engine.tied,
            activation_function="gelu_pytorch_tanh" if engine.fused_activation else "gelu_new",
        )
        return GPT2LMHeadModel(config)

    def _gemma(self) -> PreTrainedModel:
        config = Gemma3TextConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.width,
            num_attention_heads=self.heads,
            num_key_value_heads=1,
            head_dim=256,
            intermediate_size=2048,
            vocab_size=self.vocabulary,
            use_cache=False,
        )
        return Gemma3ForCausalLM(config)

    def ids(self) -> torch.Tensor:
        return torch.randint(self.vocabulary, (self.batch, self.tokens), device=DEVICE)


SHAPES = {
    "distilgpt2-64": Shape(6, 768, 12, 50257, 16, 64),
    "distilgpt2-64-batch-64": Shape(6, 768, 12, 50257, 64, 64),
    "distilgpt2-256-batch-32": Shape(6, 768, 12, 50257, 32, 256),
    "gemma-64-batch-64": Shape(18, 640, 4, 262_144, 64, 64, gemma=True),
    "gemma-64-batch-64-adapters": Shape(18, 640, 4, 262_144, 64, 64, gemma=True, rank=16),
    **{
        f"gemma-english-40-batch-{rows}-adapters": Shape(18, 640, 4, 64_000, rows, 40, gemma=True, rank=16)
        for rows in (16, 32, 64, 128)
    },
    "embedded-64": Shape(3, 192, 6, 3072, 32, 64),
    "embedded-128": Shape(3, 192, 6, 3072, 16, 128),
    "embedded-256": Shape(3, 192, 6, 3072, 8, 256),
    "embedded-512": Shape(3, 192, 6, 3072, 4, 512),
}


def adam(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], LEARNING_RATE, fused=True)


def autocast() -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=BF16)


def plain(model: PreTrainedModel) -> Step:
    """The transformers model's own loss, and Adam."""
    optimiser = adam(model)

    def step(ids: torch.Tensor) -> None:
        with autocast():
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def ours(model: PreTrainedModel, torch_noise: bool = False, made: type[BookkeepingEngine] = IntegerEngine) -> Step:
    """One step as `TrainQuery` takes it; with torch's noise it shows what noise from the system's entropy costs."""
    optimiser, engine, noise = adam(model), made(model), NoiseSource()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    frozen = not model.get_output_embeddings().weight.requires_grad

    def losses(ids: torch.Tensor) -> tuple[torch.Tensor]:
        with autocast():
            hidden = model.base_model(ids, use_cache=False).last_hidden_state
            counted = torch.arange(ids.size(1), device=ids.device) < ids.size(1) - 1  # the last one predicts nothing
            return (lm_head_loss(model.lm_head, hidden, ids.roll(-1, 1), counted.expand_as(ids), frozen=frozen),)

    def step(ids: torch.Tensor) -> None:
        values, sums = room(parameters)
        engine.clipped_sums(partial(losses, ids), len(ids), CLIPPING_NORM, [sums])
        if torch_noise:
            values.add_(torch.randn_like(values), alpha=NOISE * CLIPPING_NORM).div_(PLAN.divisor)
        else:
            privatise(values, PLAN, noise)
        for name, parameter in parameters.items():
            parameter.grad = sums[name].to(parameter.dtype)
        optimiser.step()
        optimiser.zero_grad()

    return step


def opacus_hooks(model: PreTrainedModel) -> Step:
    """Opacus's per-example gradients from hooks."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model, strict=False)
    optimiser = DPOptimizer(
        adam(model), noise_multiplier=NOISE, max_grad_norm=CLIPPING_NORM, expected_batch_size=64, loss_reduction="mean"
    )

    def step(ids: torch.Tensor) -> None:
        with autocast():
            loss = wrapped(ids, labels=ids, position_ids=positions(ids)).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def opacus_ghost(model: PreTrainedModel) -> Step:
    """Opacus's fast gradient clipping: norms without gradients, and two backward passes."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIPPING_NORM, use_ghost_clipping=True, strict=False
    )
    optimiser = DPOptimizerFastGradientClipping(
        adam(model), noise_multiplier=NOISE, max_grad_norm=CLIPPING_NORM, expected_batch_size=64, loss_reduction="mean"
    )
    criterion = DPLossFastGradientClipping(
        wrapped, optimiser, nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean"
    )

    def step(ids: torch.Tensor) -> None:
        with autocast():
            logits = wrapped(ids, position_ids=positions(ids)).logits[:, :-1]
        criterion(logits.flatten(0, 1), ids[:, 1:].flatten(), shape=logits.shape).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def positions(ids: torch.Tensor) -> torch.Tensor:
    """Opacus takes the first dimension of every layer's input for the batch."""
    return torch.arange(ids.size(1), device=ids.device).expand_as(ids).contiguous()


@dataclass(frozen=True)
class Engine:
    build: Callable[[PreTrainedModel], Step]
    tied: bool = True
    fused_activation: bool = False
    baseline: str = "plain"


ENGINES = {
    "plain": Engine(plain),
    "ours": Engine(ours),
    "ours, float64 sums": Engine(partial(ours, made=BookkeepingEngine)),
    "ours, torch's noise": Engine(partial(ours, torch_noise=True)),
    "opacus hooks": Engine(opacus_hooks),
    "plain, fused activation": Engine(plain, fused_activation=True),
    "ours, fused activation": Engine(ours, fused_activation=True),
    "plain untied": Engine(plain, tied=False, baseline="plain untied"),
    "ours untied": Engine(ours, tied=False, baseline="plain untied"),
    "opacus ghost untied": Engine(opacus_ghost, tied=False, baseline="plain untied"),
}
NOT_MEASURED = {("distilgpt2-64-batch-64", "opacus hooks")} if DEVICE.type == "cpu" else set()  # gradients of 21 GB


def chosen(shape: str, wanted: list[str]) -> list[str]:
    return [name for name in ENGINES if (not wanted or name in wanted) and (shape, name) not in NOT_MEASURED]


def measure_time(shape: str, names: list[str], rounds: int) -> dict[str, float]:
    """Median seconds of a step; the engines take turns."""
    size = SHAPES[shape]
    steps = {name: ENGINES[name].build(size.model(ENGINES[name])) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + WARM_UP):
        ids = size.ids()
        order = names[turn % len(names) :] + names[: turn % len(names)]  # what ran before leaves its traces
        for name in order:
            elapsed = timed(steps[name], ids)
            if turn >= WARM_UP:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def timed(step: Step, ids: torch.Tensor) -> float:
    if DEVICE.type == "cpu":
        start = time.process_time()
        step(ids)
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    step(ids)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_memory(shape: str, name: str) -> float:
    """Bytes above the loaded model at the highest point of three steps, in a process of its own.

    A device says itself how much of its memory is taken.
    """
    if DEVICE.type == "cuda":
        return memory_here(shape, name)
    command = [sys.executable, __file__, "--one", shape, name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1])


def memory_here(shape: str, name: str) -> float:
    size, engine = SHAPES[shape], ENGINES[name]
    model = size.model(engine)
    NoiseSource().whole_normal(2, 1.0)  # compiled before the memory is read
    gc.collect()
    loaded = reset_peak()
    step = engine.build(model)
    for _ in range(WARM_UP + 1):
        step(size.ids())
    return peak() - loaded


def reset_peak() -> int:
    """Forget the highest resident set so far (Linux); the present one, in bytes."""
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return psutil.Process().memory_info().rss


def peak() -> int:
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def run(shapes: list[str], engines: list[str], rounds: int, repeats: int) -> dict[str, dict[str, dict[str, float]]]:
    """Shape -> engine -> seconds, bytes and the ratios of both to the engine's baseline."""
    result = {}
    for shape in shapes:
        names = chosen(shape, engines)
        seconds = measure_time(shape, names, rounds)
        gc.collect()
        memory = {name: statistics.median(measure_memory(shape, name) for _ in range(repeats)) for name in names}
        result[shape] = {
            name: {
                "seconds": seconds[name],
                "bytes": memory[name],
                "time": seconds[name] / seconds[ENGINES[name].baseline],
                "memory": memory[name] / memory[ENGINES[name].baseline],
            }
            for name in names
        }
        print(table(shape, result[shape]), flush=True)
    return result


def table(shape: str, rows: dict[str, dict[str, float]]) -> str:
    lines = [f"\n{shape}", "| engine | s / step | MB | time | memory |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['seconds']:.3f} | {row['bytes'] / 1e6:.0f} | {row['time']:.3f} | {row['memory']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument(
        "--engines", nargs="*", default=[], choices=list(ENGINES), help="give each engine's baseline too"
    )
    parser.add_argument("--rounds", type=int, default=11, help="measured steps of each engine")
    parser.add_argument("--repeats", type=int, default=3, help="processes whose peak memory is taken")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.one:
        print(memory_here(*options.one))
        return
    result = run(options.shapes, options.engines, options.rounds, options.repeats)
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
