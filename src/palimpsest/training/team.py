"""Several processes that train one model: each sums its share of a batch, the first adds the noise, all step alike.

A stage on one machine or `torchrun` starts them; otherwise a team is one process and every exchange is free. What they
exchange (indices of rows, sums without noise) is private. On one machine they meet at a file and talk over the
loopback. Under `torchrun` they listen on every network of the machine: keep that as private as the data.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from palimpsest.devices import CUDA, MEETING, exact_device
from palimpsest.errors import TeamError


@dataclass(frozen=True)
class Team:
    """This process's place among those that train together.

    Every exchange raises TeamError once another process is gone.

    Attributes:
        rank: 0 for the leader, the only one that holds the ledger, draws batches and adds noise.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> "Team":
        """Return the team this process joined; a team of one if it joined none."""
        if not distributed.is_available() or not distributed.is_initialized():
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this process is the first, which writes and tells."""
        return self.rank == 0

    def share(self, value: Any) -> Any:
        """Return the leader's value, in every process."""
        if self.size == 1:
            return value
        box = [value]
        with _exchange():
            distributed.broadcast_object_list(box, src=0)
        return box[0]

    def meet(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            with _exchange():
                distributed.barrier()

    def add_up(self, values: torch.Tensor) -> None:
        """Sum over the processes into the leader's values; those of the others are then of no use."""
        if self.size > 1:
            with _exchange():
                distributed.reduce(values, dst=0)

    def spread(self, values: torch.Tensor) -> None:
        """Overwrite the values with the leader's."""
        if self.size > 1:
            with _exchange():
                distributed.broadcast(values, src=0)


@contextmanager
def _exchange() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what torch's backends raise where a connection ends, and after half an hour
        raise TeamError("A process that trains together with this one has ended, or cannot be reached.") from error


@contextmanager
def join_team() -> Iterator[Team]:
    """Join the processes that were started together with this one, if any were."""
    rank, size = (int(os.environ.get(*told)) for told in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if size == 1:
        yield Team()
        return
    own = exact_device()
    if own.type == CUDA:
        torch.cuda.set_device(own)  # whatever is sent and is no tensor goes by the current device
    where = f"file://{os.environ[MEETING]}" if MEETING in os.environ else "env://"
    with _exchange():
        distributed.init_process_group("nccl" if own.type == CUDA else "gloo", where, rank=rank, world_size=size)
    try:
        yield Team.current()
    finally:
        distributed.destroy_process_group()
