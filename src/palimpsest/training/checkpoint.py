"""What a training run keeps so that another attempt may go on: post-processing of noisy sums, and nothing else.

No batch, no key and no state of a random generator is kept. An attempt that goes on draws with fresh entropy, so a step
that was lost is run again with a new batch and new noise, and was counted by the ledger both times.

A checkpoint is one safetensors file of `model/<name>` and `update/<k>/<index>/<key>`: the trained parameters, and what
the k-th optimiser knows about the parameter at that place. The optimisers' settings are public and are not kept.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from palimpsest.files import atomic_path
from palimpsest.training.engine import EngineError

_NUMBER = "number"  # marks what was no tensor before it was written as one


def find_checkpoint(folder: Path, charge: str, begun: int) -> Path | None:
    """The newest checkpoint of a charge, or None.

    One that was written after more steps than the ledger has counted is not given out: the ledger would be an old copy,
    and the steps it forgot would run unpaid.

    Args:
        folder: where the checkpoints lie.
        charge: the charge's id; no other charge finds it.
        begun: how many of its steps have begun, by the ledger.
    """
    found = {_steps(path): path for path in folder.glob(f"{charge}.*.safetensors")}
    return found[max(found)] if found and max(found) <= begun else None


def save_checkpoint(
    folder: Path, charge: str, begun: int, model: nn.Module, updates: Sequence[torch.optim.Optimizer]
) -> None:
    """Write the trained parameters and the optimisers' states after `begun` steps, for the owner's eyes only.

    Whole or not at all, and before the charge's older checkpoint is removed.
    """
    body, notes = _packed(model, updates)
    path = folder / f"{charge}.{begun}.safetensors"
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.write(save(body, notes))
        file.flush()
        os.fsync(file.fileno())  # the steps behind it are not kept anywhere else
    forget_checkpoints(folder, charge, keep=path)


def forget_checkpoints(folder: Path, charge: str, keep: Path | None = None) -> None:
    """Remove the checkpoints of a charge, but for one."""
    for path in folder.glob(f"{charge}.*.safetensors"):
        if path != keep:
            path.unlink()


def load_checkpoint(path: Path, model: nn.Module, updates: Sequence[torch.optim.Optimizer]) -> None:
    """Put model and optimisers back to where `save_checkpoint` found them.

    Raises:
        EngineError: there is no checkpoint, it is broken, or it is of another model or another optimiser.
    """
    try:
        body, notes = _read(path)
        _require_same(body, notes, model, updates)
        _fill(model, body)
        for update, state in zip(updates, _states(body, notes, updates), strict=True):
            update.load_state_dict({"state": state, "param_groups": update.state_dict()["param_groups"]})
    except (OSError, SafetensorError, LookupError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"The checkpoint {path.name!r} cannot be continued from ({type(error).__name__}).",
            "Delete it and run again: the training starts anew and is charged again.",
        ) from error


def _steps(path: Path) -> int:
    return int(path.name.split(".")[1])


def _trained(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}


def _packed(
    model: nn.Module, updates: Sequence[torch.optim.Optimizer]
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a checkpoint, and notes: each optimiser's kind, and which tensors are numbers."""
    body: dict[str, Any] = {f"model/{name}": value for name, value in _trained(model).items()}
    for k, update in enumerate(updates):
        for index, state in update.state_dict()["state"].items():
            body |= {f"update/{k}/{index}/{key}": value for key, value in state.items()}
    numbers = {key: _NUMBER for key, value in body.items() if not torch.is_tensor(value)}
    return {key: _tensor(value) for key, value in body.items()}, _kinds(updates) | numbers


def _kinds(updates: Sequence[torch.optim.Optimizer]) -> dict[str, str]:
    return {f"update/{k}": type(update).__name__ for k, update in enumerate(updates)}


def _tensor(value: Any) -> torch.Tensor:
    return value.contiguous() if torch.is_tensor(value) else torch.as_tensor(np.asarray(value))


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _require_same(
    body: Mapping[str, torch.Tensor],
    notes: Mapping[str, str],
    model: nn.Module,
    updates: Sequence[torch.optim.Optimizer],
) -> None:
    """Raise ValueError unless model and optimisers are of the kind that was written."""
    if _forms(_below("model/", body)) != _forms(_trained(model)):
        raise ValueError("another model")
    if {key: kind for key, kind in notes.items() if kind != _NUMBER} != _kinds(updates):
        raise ValueError("other optimisers")


def _forms(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _below(prefix: str, body: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in body.items() if key.startswith(prefix)}


def _fill(model: nn.Module, body: Mapping[str, torch.Tensor]) -> None:
    for name, weight in _trained(model).items():
        weight.copy_(body[f"model/{name}"])


def _states(
    body: Mapping[str, torch.Tensor], notes: Mapping[str, str], updates: Sequence[torch.optim.Optimizer]
) -> list[dict[int, dict[str, Any]]]:
    """What each optimiser knows about each parameter, by the parameter's index."""
    weights = [[weight for group in update.param_groups for weight in group["params"]] for update in updates]
    states: list[dict[int, dict[str, Any]]] = [defaultdict(dict) for _ in updates]
    for name, value in _below("update/", body).items():
        k, index, key = name.split("/", 2)
        number = f"update/{name}" in notes
        states[int(k)][int(index)][key] = value.item() if number else _like(weights[int(k)][int(index)], value)
    return states


def _like(weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A copy of `value`; one that belongs to every coordinate lies in memory as `weight` does, for fused kernels."""
    if value.dim() == 0:
        return value.clone()
    return torch.empty_like(weight, dtype=value.dtype, requires_grad=False).copy_(value)
