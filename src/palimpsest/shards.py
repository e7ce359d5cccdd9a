"""Work in parts: in this process, or by the workers of a Dask cluster, with the same results in the same order.

The environment in which a stage is started says where parts are done, because it is a fact about the machine. It is in
no stage's `params:` and in no run's key, so a workspace that moves to a cluster buys nothing again.

Guarantee: each result is a function of its own item and of the work, which are all that a worker is handed. Noise, the
meter and the ledger stay in the stage's own process. Before a part leaves, all workers try the work on public items and
must answer alike to the last bit: otherwise a row's result would show which worker the row came to, and that depends on
other rows. An object that stays with a worker for many questions (`posts`) is given only to workers that answered as
this process did. Workers write no row to disk and name none in what they log, and an error comes back as its type and
place. On this machine they listen on the loopback, to anyone who has the certificate of this run. Another cluster is
asked by TLS or not at all. What it works on is private: it belongs on machines that are as private as the data,
where each worker runs one thing at a time.
"""

import hashlib
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeVar

from palimpsest import __version__
from palimpsest.devices import CPU, device
from palimpsest.errors import PalimpsestError
from palimpsest.files import make_folder
from palimpsest.workspace import WORKERS

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")
Result = TypeVar("Result")

RUNNER = "PALIMPSEST_SHARDS"  # processes, dask, or dask:n for n workers on this machine
ADDRESS = "PALIMPSEST_DASK"  # the address of an existing cluster, tls://...
PROCESSES, DASK = "processes", "dask"
_AHEAD = 4  # parts that are handed out, for each worker
_PATIENCE = 60  # seconds that the first worker of a cluster may take to come
_SETTINGS = {
    **{f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause", "terminate")},
    **{f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")},
}
_AGAIN = "Run again: what was finished is kept. With compute.runner: processes no cluster is needed."

_clients: list["Client"] = []  # one at most
_open = ExitStack()  # what it holds


class ShardError(PalimpsestError):
    """A part of the work could not be done."""


def map_items(
    work: Callable[[Item], Result], items: Iterable[Item], at_once: int = 1, public: Sequence[Item] = ()
) -> Iterator[Result]:
    """Yield what `work` makes of each item, in the order of the items.

    Args:
        work: a function of an item that can be pickled; a cluster is sent it once.
        at_once: items that make a part.
        public: items that hold nothing private, on which workers must agree.

    Raises:
        ShardError: the cluster cannot be reached, its workers do not agree, or a part failed.
    """
    client = _client()
    return map(work, items) if client is None else _spread(client, work, items, at_once, public)


class Here:
    """An object of this process, with the same interface as an object of a worker."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def ask(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Call a method; return a function that waits for its answer."""
        answer = getattr(self._thing, name)(*arguments)
        return lambda: answer


@dataclass(frozen=True, eq=False)
class There:
    """An object that stays with a worker, which does one thing at a time, until nobody here holds it."""

    client: "Client"
    worker: str
    actor: "Future"

    def ask(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Have a method called; return a function that waits for its answer.

        Raises:
            ShardError: from the wait too, if the worker was lost, and the object with it, or the method failed.
        """
        return partial(_answer, self._await_object().ask(name, _Parcel(arguments)))

    def _await_object(self) -> Any:
        """Return the object once the worker has made it. A scheduler would wait for ever for a worker that is gone."""
        while True:
            try:
                return _await_result(self.actor, _PATIENCE)
            except TimeoutError:
                if self.worker not in self.client.nthreads():
                    raise ShardError("A worker was lost before its work began.", _AGAIN) from None


@dataclass(frozen=True, eq=False)
class Posts:
    """Workers that answered a trial as this process did, to the last bit."""

    client: "Client"
    hosts: tuple[str, ...]

    def settle(self, make: Callable[[Item], Any], items: Iterable[Item]) -> list[There]:
        """Return the objects that `make` makes of the items, on one worker after another."""
        made = self.client.submit(_unpack_parcel, _Parcel(make), pure=False, workers=list(self.hosts))
        workers = cycle(sorted(name for name in self.client.nthreads() if _host(name) in self.hosts))
        return [
            There(self.client, worker, self._submit(made, item, worker))
            for item, worker in zip(items, workers)  # noqa: B905  # there is always one worker more
        ]

    def _submit(self, made: "Future", item: Any, worker: str) -> "Future":
        return self.client.submit(_Settled, made, _Parcel(item), pure=False, actor=True, workers=[worker])


def posts(trial: Callable[[Item], Any], public: Sequence[Item]) -> Posts | None:
    """Return the cluster's workers that answer a trial as this process does, bit by bit; None if parts are done here.

    Args:
        trial: what the objects will do, as far as it is public; each worker tries it on all items.

    Raises:
        ShardError: the cluster cannot be reached, or a worker answers otherwise.
    """
    client = _client()
    if client is None:
        return None
    return Posts(client, tuple(_find_agreeing_hosts(client, trial, public, [_try_work(trial, list(public))[1]])))


def uses_cluster() -> bool:
    """Whether parts are done by a cluster's workers."""
    return _client() is not None


@contextmanager
def release_cluster() -> Iterator[None]:
    """Release the cluster that was used in the block, and end it if this process started it."""
    try:
        yield
    finally:
        _clients.clear()
        _open.close()


def cores(environ: Mapping[str, str] = os.environ) -> int:
    """The cores that a stage may use.

    >>> cores({"OMP_NUM_THREADS": "3"})
    3
    """
    said = environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) else os.cpu_count() or 1


def _client() -> "Client | None":
    """The cluster that the environment asks for, started when it is first needed; None for this process.

    An accelerator is not divided: work that computes on one does so in this process.
    """
    runner, _, workers = os.environ.get(RUNNER, PROCESSES).partition(":")
    if runner != DASK or device().type != CPU:
        return None
    if not _clients:
        _clients.append(_connect_client(int(workers) if workers else cores()))
    return _clients[0]


def _connect_client(workers: int) -> "Client":
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise ShardError(
            "compute.runner is dask, and the package distributed is not installed.",
            "Install palimpsest[dask], or set compute.runner to processes.",
        ) from None
    _open.enter_context(dask.config.set(_SETTINGS))
    address = os.environ.get(ADDRESS)
    if address and not address.startswith("tls://"):
        raise ShardError(
            f"{ADDRESS} does not begin with tls://: rows would cross the network in the clear.",
            "Start scheduler and workers with certificates, and name the scheduler by tls://host:port.",
        )
    try:
        client = Client(address or _start_local_cluster(workers), timeout=_PATIENCE)
        _open.callback(client.close)
        client.wait_for_workers(1, timeout=_PATIENCE)
    except (OSError, TypeError, ValueError) as error:  # TypeError: no certificates are configured
        raise ShardError(
            f"The cluster's workers do not answer: {type(error).__name__}.",
            "See that scheduler and workers run and that Dask's configuration names the certificates, or set "
            "compute.runner to processes.",
        ) from None
    return client


def _start_local_cluster(workers: int) -> Any:
    """A cluster of so many processes on this machine, which end with this one."""
    from distributed import LocalCluster, Security

    make_folder(WORKERS)
    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        security=Security.temporary(),
        local_directory=str(WORKERS),
        env={RUNNER: PROCESSES, "OMP_NUM_THREADS": "1"},
    )
    _open.callback(cluster.close)
    return cluster


def _spread(
    client: "Client", work: Callable[[Item], Result], items: Iterable[Item], at_once: int, public: Sequence[Item]
) -> Iterator[Result]:
    hosts = _find_agreeing_hosts(client, work, public)
    held = client.submit(
        _unpack_parcel, _Parcel(work), pure=False, workers=hosts
    )  # it can be made again where it is lost
    ahead = _AHEAD * len(client.nthreads())
    left, waiting = iter(items), deque["Future"]()
    while part := list(islice(left, at_once)):
        waiting.append(client.submit(_run_part, held, _Parcel(part), pure=False, workers=hosts))
        if len(waiting) >= ahead:
            yield from _answer(waiting.popleft())
    while waiting:
        yield from _answer(waiting.popleft())


def _find_agreeing_hosts(
    client: "Client", work: Callable[[Item], Any], public: Sequence[Item], own: Sequence[str] = ()
) -> list[str]:
    """Return the machines whose workers run what this one does and answer alike to the last bit, and as `own` says."""
    try:
        told = client.run(_try_work, work if public else None, list(public))
    except Exception as error:
        raise ShardError(f"A worker was lost: {type(error).__name__}.", _AGAIN) from None
    if {versions for versions, _ in told.values()} != {_versions()}:
        raise ShardError(
            "The cluster's workers run other versions of Python, palimpsest, numpy, torch or transformers.",
            "Install on every machine what is installed here.",
        )
    if len({answer for _, answer in told.values()}.union(own)) > 1:
        raise ShardError(
            "The cluster's workers do not compute alike to the last bit, so which one a row came to would show.",
            "Use machines with one kind of processor and as many threads to each worker.",
        )
    return sorted({_host(worker) for worker in told})


def _host(worker: str) -> str:
    return worker.rpartition("://")[2].rpartition(":")[0]


def _await_result(future: "Future", seconds: float | None = None) -> Any:
    try:
        return future.result(seconds)
    except Exception as error:
        if seconds is not None and isinstance(error, TimeoutError):
            raise
        raise ShardError(f"A worker was lost, and those after it: {type(error).__name__}.", _AGAIN) from None


def _answer(future: "Future") -> Any:
    told = _await_result(future)
    if isinstance(told, _Failed):
        raise told.kind(told.problem, told.remedy)
    return told


# --- in a worker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class _Parcel:
    """A parcel for a worker. A scheduler and a worker may print what they hold, but see none of its content."""

    content: Any


@dataclass(frozen=True)
class _Failed:
    """An error, without the message of an unexpected one."""

    kind: type[PalimpsestError]
    problem: str
    remedy: str


def _unpack_parcel(parcel: _Parcel) -> Any:
    return parcel.content


def _run_part(work: Callable[[Any], Any], part: _Parcel) -> Any:
    return _catch_failure(lambda: [work(item) for item in part.content])


class _Settled:
    """An object of a worker."""

    def __init__(self, make: Callable[[Any], Any], item: _Parcel) -> None:
        self._thing = _catch_failure(lambda: make(item.content))

    def ask(self, name: str, arguments: _Parcel) -> Any:
        thing = self._thing
        return thing if isinstance(thing, _Failed) else _catch_failure(lambda: getattr(thing, name)(*arguments.content))


def _catch_failure(work: Callable[[], Any]) -> Any:
    """Return the answer of some work, or how it failed."""
    try:
        return work()
    except PalimpsestError as error:
        return _Failed(type(error), error.problem, error.remedy)
    except Exception as error:
        at = extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__} in a worker, at line {at.lineno} of {at.name}"
        return _Failed(ShardError, f"{told} (its message is not shown: it might quote private text).", _AGAIN)


def _try_work(work: Any, public: list[Any]) -> tuple[str, str]:
    """Return the versions of what computes here, and a hash of what the work makes of any public items."""
    return _versions(), hashlib.sha256(pickle.dumps([work(item) for item in public])).hexdigest()


def _versions() -> str:
    import numpy
    import torch
    import transformers

    ours = (__version__, numpy.__version__, torch.__version__, transformers.__version__)
    return " ".join((sys.version.partition(" ")[0], *ours))
