"""Where torch computes: the one place that looks for an accelerator.

The value of `compute.device` reaches a process through its environment, because it is a fact about the machine. It is
in no stage's `params:` and in no run's key, so a workspace that moves to a GPU buys nothing again.
"""

import os
import re
from typing import TYPE_CHECKING

from palimpsest.errors import ParamsError

if TYPE_CHECKING:  # heavy, and most of a command's start needs none of it
    import torch

VARIABLE = "PALIMPSEST_DEVICE"
MEETING = "PALIMPSEST_MEETING"  # the file at which processes of one machine meet, in place of an address
AUTO, CPU, CUDA, MPS = "auto", "cpu", "cuda", "mps"
FULL, HALF = "float32", "bf16"
NAMES = r"^(auto|cpu|cuda(:[0-9]+)?|mps)$"


def device() -> "torch.device":
    """The device of this process: the one that the environment names, else the first of CUDA, else the CPU.

    Each of several processes that train together has a CUDA device of its own, by its rank on the machine.

    Raises:
        ParamsError: there is no such device here, or not one for each process.
    """
    import torch

    rank, size = (int(os.environ.get(*told)) for told in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")))
    return torch.device(resolve_device(os.environ.get(VARIABLE, AUTO), rank, size))


def exact_device() -> "torch.device":
    """Return the device for work that needs 64-bit numbers: Apple's devices lack them, so the CPU takes their place."""
    import torch

    here = device()
    return torch.device("cpu") if here.type == MPS else here


def has_bfloat16() -> bool:
    """Whether the device of this process computes in bfloat16 itself: a processor by AMX or AVX512-BF16."""
    import torch

    here = device()
    if here.type == CUDA:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # A processor with AMX has these instructions, too. Later versions of torch have a public name for this.
    return here.type == CPU and torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001


def dtype_of(precision: str) -> "torch.dtype":
    """The type of numbers that a precision of params.yaml stands for: "float32" or "bf16"."""
    import torch

    return torch.bfloat16 if precision == HALF else torch.float32


def resolve_device(wanted: str, rank: int = 0, size: int = 1) -> str:
    """The device that a name stands for on this machine, for one of `size` processes that train together.

    Raises:
        ParamsError: see `device`.
    """
    import torch

    if not re.fullmatch(NAMES, wanted):
        raise ParamsError(f"compute.device is {wanted!r}.", "Allowed are auto, cpu, cuda, cuda:n and mps.")
    kind, _, number = wanted.partition(":")
    there = torch.cuda.device_count() if kind in (AUTO, CUDA) and torch.cuda.is_available() else 0
    if kind == AUTO:
        kind = CUDA if there else CPU
    if kind == CPU:
        return CPU
    if size > 1 and (number or kind == MPS):
        raise ParamsError(
            f"compute.device is {wanted!r}, one device for {size} processes that train together.",
            "Write cuda, which gives each its own, or start one process.",
        )
    place = int(number or rank)
    if place >= (there if kind == CUDA else int(torch.backends.mps.is_available())):
        raise _missing_device(wanted, place, there)
    return MPS if kind == MPS else f"{CUDA}:{place}"


def _missing_device(wanted: str, place: int, there: int) -> ParamsError:
    of = f" of its process {place + 1}" if place and ":" not in wanted else ""
    return ParamsError(
        f"compute.device is {wanted!r}, and torch finds no such device{of} here; CUDA devices: {there}.",
        "Write auto or cpu, start fewer processes, or install the torch of that device. Nothing was charged.",
    )
