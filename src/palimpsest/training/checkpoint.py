"""Checkpoints of a training run, from which another attempt may go on: post-processing of noisy sums, and nothing else.

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

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from palimpsest.files import atomic_path, remove
from palimpsest.training.engine import EngineError


def find_checkpoint(folder: Path, charge: str, begun: int) -> Path | None:
    """Return the newest checkpoint of a charge, or None.

    A checkpoint written after more steps than the ledger has counted is not returned: the ledger would be an old copy,
    and the steps it forgot would run unpaid.

    Args:
        charge: the charge's id; no other charge finds it.
        begun: how many of its steps have begun, by the ledger.
    """
    newest = max(folder.glob(f"{charge}.*.safetensors"), key=steps_of, default=None)
    return newest if newest is not None and steps_of(newest) <= begun else None


def steps_of(path: Path) -> int:
    """Return after how many steps a checkpoint was written.

    >>> steps_of(Path("a1b2.50.safetensors"))
    50
    """
    return int(path.name.split(".")[1])


def save_checkpoint(
    folder: Path, charge: str, begun: int, model: nn.Module, updates: Sequence[torch.optim.Optimizer]
) -> None:
    """Write the trained parameters and the optimisers' states after `begun` steps, for the owner's eyes only.

    The file is written whole or not at all, and before the charge's older checkpoint is removed.
    """
    path = folder / f"{charge}.{begun}.safetensors"
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.write(save(_pack_state(model, updates), _kinds(updates)))
        file.flush()
        os.fsync(file.fileno())  # its steps are not kept anywhere else
    forget_checkpoints(folder, charge, keep=path)


def forget_checkpoints(folder: Path, charge: str, keep: Path | None = None) -> None:
    """Remove the checkpoints of a charge, except `keep`."""
    for path in folder.glob(f"{charge}.*.safetensors"):
        if path != keep:
            remove(path)


def load_checkpoint(path: Path, model: nn.Module, updates: Sequence[torch.optim.Optimizer]) -> None:
    """Put model and optimisers back to where `save_checkpoint` found them.

    Raises:
        EngineError: there is no checkpoint, it is broken, or it is of another model or another optimiser.
    """
    try:
        with safe_open(path, framework="pt") as file:
            body = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            kinds = file.metadata() or {}
        if _forms(_select_prefix("model/", body)) != _forms(_trained_parameters(model)):
            raise ValueError("another model")
        if kinds != _kinds(updates):
            raise ValueError("other optimisers")
        for name, weight in _trained_parameters(model).items():
            weight.copy_(body[f"model/{name}"])
        for update, state in zip(updates, _states(body, updates), strict=True):
            update.load_state_dict({"state": state, "param_groups": update.state_dict()["param_groups"]})
    except (OSError, SafetensorError, LookupError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"The checkpoint {path.name!r} cannot be continued from ({type(error).__name__}).",
            "Delete it and run again: the training starts anew and is charged again.",
        ) from error


def _trained_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}


def _pack_state(model: nn.Module, updates: Sequence[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    body = {f"model/{name}": value for name, value in _trained_parameters(model).items()}
    for k, update in enumerate(updates):
        for index, state in update.state_dict()["state"].items():
            body |= {f"update/{k}/{index}/{key}": value for key, value in state.items()}
    return {key: value.contiguous() for key, value in body.items()}


def _kinds(updates: Sequence[torch.optim.Optimizer]) -> dict[str, str]:
    return {f"update/{k}": type(update).__name__ for k, update in enumerate(updates)}


def _forms(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _select_prefix(prefix: str, body: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in body.items() if key.startswith(prefix)}


def _states(
    body: Mapping[str, torch.Tensor], updates: Sequence[torch.optim.Optimizer]
) -> list[dict[int, dict[str, Any]]]:
    """Return each optimiser's state of each parameter, by the parameter's index."""
    weights = [[weight for group in update.param_groups for weight in group["params"]] for update in updates]
    states: list[dict[int, dict[str, Any]]] = [defaultdict(dict) for _ in updates]
    for name, value in _select_prefix("update/", body).items():
        k, index, key = name.split("/", 2)
        states[int(k)][int(index)][key] = _copy_like(weights[int(k)][int(index)], value)
    return states


def _copy_like(weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Copy `value`; a state of every coordinate is laid out in memory as `weight` is, for fused kernels."""
    if value.dim() == 0:
        return value.clone()
    return torch.empty_like(weight, dtype=value.dtype, requires_grad=False).copy_(value)
