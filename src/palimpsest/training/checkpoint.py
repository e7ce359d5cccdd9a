"""What a training run keeps so that another attempt may go on: post-processing of noisy sums, and nothing else.

No batch, no key and no state of a random generator is kept. An attempt that goes on draws with fresh entropy, so a step
that was lost is run again with a new batch and new noise, and was counted by the ledger both times.
"""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from palimpsest.files import atomic_path
from palimpsest.training.engine import EngineError


def find_checkpoint(folder: Path, charge: str, begun: int) -> Path | None:
    """The newest checkpoint of a charge, or None.

    One that was written after more steps than the ledger has counted is not given out: the ledger would be an old copy,
    and the steps it forgot would run unpaid.

    Args:
        folder: where the checkpoints lie.
        charge: the charge's id; no other charge finds it.
        begun: how many of its steps have begun, by the ledger.
    """
    found = {_steps(path): path for path in folder.glob(f"{charge}.*.pt")}
    return found[max(found)] if found and max(found) <= begun else None


def save_checkpoint(
    folder: Path, charge: str, begun: int, model: nn.Module, updates: Sequence[torch.optim.Optimizer]
) -> None:
    """Write the trained parameters and the optimisers' states after `begun` steps, for the owner's eyes only.

    Whole or not at all, and before the charge's older checkpoint is removed.
    """
    body = {"model": _trained(model), "updates": [update.state_dict() for update in updates]}
    path = folder / f"{charge}.{begun}.pt"
    with atomic_path(path) as draft:
        draft.touch(mode=0o600)
        with draft.open("wb") as file:
            torch.save(body, file)
            file.flush()
            os.fsync(file.fileno())  # the steps behind it are not kept anywhere else
    forget_checkpoints(folder, charge, keep=path)


def forget_checkpoints(folder: Path, charge: str, keep: Path | None = None) -> None:
    """Remove the checkpoints of a charge, but for one."""
    for path in folder.glob(f"{charge}.*.pt"):
        if path != keep:
            path.unlink()


def load_checkpoint(path: Path, model: nn.Module, updates: Sequence[torch.optim.Optimizer]) -> None:
    """Put model and optimisers back to where `save_checkpoint` found them.

    Raises:
        EngineError: there is no checkpoint, or it is of another model.
    """
    try:
        body = torch.load(path, weights_only=True, map_location="cpu")
        parameters = _trained(model)
        with torch.no_grad():
            for name, value in body["model"].items():
                parameters[name].copy_(value)
        for update, state in zip(updates, body["updates"], strict=True):
            update.load_state_dict(state)
    except (OSError, EOFError, KeyError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise EngineError(
            f"The checkpoint {path.name!r} cannot be continued from ({type(error).__name__}).",
            "Delete it and run again: the training starts anew and is charged again.",
        ) from error


def _steps(path: Path) -> int:
    return int(path.name.split(".")[1])


def _trained(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}
