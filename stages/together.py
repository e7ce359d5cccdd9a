"""Start the processes that train together, and tell which of them was lost."""

import signal
from collections.abc import Mapping, Sequence

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from palimpsest.errors import TeamError
from stages.common import LOST


def launch(count: int, module: str, arguments: Sequence[str]) -> None:
    """Run `python -m module` in so many processes, as `torchrun` does; all have ended when this does.

    Raises:
        TeamError: one of them was lost.
        SystemExit: one has failed, and told why.
        KeyboardInterrupt: this process was told to end.
    """
    try:
        run.run(run.parse_args(["--standalone", f"--nproc-per-node={count}", "-m", module, *arguments]))
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        status = {rank: failure.exitcode for rank, failure in error.failures.items()}
        told = [code for code in status.values() if code > 0 and code != LOST]
        if told:
            raise SystemExit(told[0]) from None
        raise TeamError(f"Of {count} processes that trained together {lost(status)}.") from None


def lost(status: Mapping[int, int]) -> str:
    """Which process was ended by a signal, and by which one; the rest were ended because of it.

    >>> lost({0: -15, 1: -9}), lost({0: -15, 1: 3}), lost({0: 3, 1: 3})
    ('number 1 was ended by SIGKILL', 'number 0 was ended by SIGTERM', 'one could not reach another')
    """
    killed = {rank: -code for rank, code in status.items() if code < 0}
    first = min(killed, key=lambda rank: killed[rank] == signal.SIGTERM, default=None)
    if first is None:
        return "one could not reach another"
    return f"number {first} was ended by {signal.Signals(killed[first]).name}"
