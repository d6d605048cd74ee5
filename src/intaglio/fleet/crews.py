"""Who performs pieces: processes of this machine, or workers of Dask. Both yield what has become of each piece, in any order."""

from __future__ import annotations

import atexit
import logging
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from intaglio.errors import ToolError, UserError, install_hint, quoted
from intaglio.fleet.pieces import Piece, Result
from intaglio.fleet.worker import LATE, LOST, Worker, perform_guarded
from intaglio.project.fleet import CLUSTERS

if TYPE_CHECKING:
    from distributed import Client, Future

WATCH_S = 5.0
Outcome = list[Result] | str  # results, or LOST or LATE


class Crew(Protocol):
    """`at_once`: how many pieces it takes before the first is done."""

    @property
    def at_once(self) -> int: ...
    def perform(self, pieces: Iterable[Piece], timeout_s: float) -> Iterator[tuple[Piece, Outcome]]:
        """`pieces` are taken when somebody is free for them."""
        ...

    def close(self) -> None: ...


class _Waiting:
    """Pieces, taken one by one."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._rest, self._held = iter(pieces), deque[Piece]()

    def next(self) -> Piece | None:
        if not self._held:
            self._held.extend(islice(self._rest, 1))
        return self._held[0] if self._held else None

    def take(self) -> None:
        self._held.popleft()


class LocalCrew:
    """`count` processes. One that dies is replaced; one that takes too long is killed."""

    at_once = 1

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[Worker] = []

    def perform(self, pieces: Iterable[Piece], timeout_s: float) -> Iterator[tuple[Piece, Outcome]]:
        waiting = _Waiting(pieces)
        with selectors.DefaultSelector() as selector:
            while not self._hand_out(waiting, selector) or any(worker.piece is not None for worker in self._workers):
                yield from self._hear(selector, timeout_s)

    def _hand_out(self, waiting: _Waiting, selector: selectors.BaseSelector) -> bool:
        """True: none is left."""
        free = [worker for worker in self._workers if worker.piece is None]
        while free or len(self._workers) < self._count:
            piece = waiting.next()
            if piece is None:
                return True
            if not free:
                self._workers.append(Worker())
                free.append(self._workers[-1])
            worker = free.pop()
            if worker.start(piece):
                waiting.take()
                selector.register(worker.stream, selectors.EVENT_READ, worker)
            else:
                self._drop(worker)
        return False

    def _hear(self, selector: selectors.BaseSelector, timeout_s: float) -> Iterator[tuple[Piece, Outcome]]:
        for key, _ in selector.select(0.5):
            worker: Worker = key.data
            piece = worker.piece
            assert piece is not None
            selector.unregister(worker.stream)
            results = worker.result()
            if results is None:
                self._drop(worker)
            yield piece, LOST if results is None else results
        for worker in [w for w in self._workers if w.piece is not None and w.piece.limit_s(timeout_s) < time.monotonic() - w.since]:
            piece = worker.piece
            assert piece is not None
            selector.unregister(worker.stream)
            self._drop(worker)
            yield piece, LATE

    def _drop(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        for worker in list(self._workers):
            self._drop(worker)


class DaskCrew:
    """Workers of a Dask scheduler. Each has a process beside it that performs the piece, so that nothing ends the worker."""

    at_once = 500  # all of them, but claims are made in parts

    def __init__(self, client: Client, cluster: object = None, say: Callable[[str], None] = lambda text: None) -> None:
        self.client, self._cluster, self._say = client, cluster, say
        for name in ("distributed", "distributed.client"):  # our own messages say what went wrong, without tracebacks
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def perform(self, pieces: Iterable[Piece], timeout_s: float) -> Iterator[tuple[Piece, Outcome]]:
        from distributed import as_completed
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        ended = threading.Event()
        threading.Thread(target=self._watch, args=(ended,), daemon=True).start()
        try:
            by_future = {self._submitted(piece, timeout_s): piece for piece in pieces}
            for future in as_completed(by_future):
                piece = by_future[future]
                try:
                    yield piece, future.result()
                except KilledWorker:
                    yield piece, LOST
                except (FutureCancelledError, OSError) as error:
                    raise _gone(str(error)) from None
                future.release()
        except (OSError, TimeoutError) as error:
            raise _gone(str(error)) from None
        finally:
            ended.set()

    def _submitted(self, piece: Piece, timeout_s: float) -> Future[list[Result] | str]:
        return self.client.submit(perform_guarded, piece, piece.limit_s(timeout_s), pure=False)

    def _watch(self, ended: threading.Event) -> None:
        """Says when there is nobody to wait for."""
        told = False
        while not ended.wait(0 if not told else WATCH_S):
            try:
                there = bool(self.client.scheduler_info(n_workers=-1)["workers"])
            except Exception:  # the run itself says what is wrong with the scheduler
                return
            if not there and not told:
                self._say(f"waiting for a worker of {self.client.scheduler.address if self.client.scheduler else 'the scheduler'}")
            told = not there
            if there and ended.wait(WATCH_S):
                return

    def close(self) -> None:
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()  # type: ignore[attr-defined]


def _gone(why: str) -> ToolError:
    hint = "start it again, and then this command: what was recorded stays"
    first = "the connection is lost" if "connection-lost" in why else (why.strip().splitlines() or ["no answer"])[0]
    return ToolError("no-scheduler", f"the Dask scheduler has gone: {first}", hint=hint)


def connect(address: str, say: Callable[[str], None] = lambda text: None) -> DaskCrew:
    check_address(address)
    _need("distributed")
    from distributed import Client

    try:
        return DaskCrew(Client(address, timeout=10), say=say)
    except (OSError, TimeoutError, ValueError) as error:
        what = f"no Dask scheduler answers at {quoted(address)}: {str(error) or type(error).__name__}"
        raise ToolError("no-scheduler", what, hint="`dask scheduler` starts one and prints its address") from None


def check_address(address: str) -> None:
    if not re.fullmatch(r"([a-z]+://)?[^/\s]+:\d+/?", address):
        what = f"{quoted(address)} is not the address of a Dask scheduler"
        raise UserError("bad-option", what, hint="for example `--scheduler tcp://head:8786`; `dask scheduler` prints it")


def check_cluster(kind: str) -> None:
    if kind not in CLUSTERS:
        raise UserError("bad-option", f"unknown cluster {quoted(kind)}", hint=f"clusters: {', '.join(CLUSTERS)}")


def check_crew(scheduler: str | None, cluster: str | None) -> None:
    """Before anything is done."""
    if scheduler is not None and cluster is not None:
        raise UserError("bad-option", "`--scheduler` and `--cluster` exclude each other", hint="give one of them")
    if cluster is not None:
        check_cluster(cluster)
    if scheduler is not None:
        check_address(scheduler)


def start_cluster(
    kind: str, told: Mapping[str, object], jobs: int, logs: Path, say: Callable[[str], None] = lambda text: None
) -> DaskCrew:
    """`told`: `[fleet.cluster.KIND]`, as keywords of Dask's class; `workers` of it is how many. Slurm writes to `logs`."""
    check_cluster(kind)
    _need("distributed")
    from distributed import Client

    keywords = dict(told)
    workers = keywords.pop("workers", jobs)
    if not isinstance(workers, int) or workers < 1:
        raise UserError("bad-project", f"`workers` of `fleet.cluster.{kind}` is not a number from 1", hint="for example 20")
    logging.getLogger("distributed").setLevel(logging.WARNING)  # SSHCluster repeats what its workers log
    try:
        cluster = _cluster(kind, workers, keywords, logs)
        return DaskCrew(Client(cluster), cluster, say)
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        if kind == "ssh" and isinstance(error, RuntimeError):
            _need("asyncssh")
        what = f"Dask cannot start a cluster of the kind `{kind}`: {error}"
        raise ToolError("no-cluster", what, hint=f"`[fleet.cluster.{kind}]` has the keywords of Dask's class") from None


def _cluster(kind: str, workers: int, keywords: dict[str, Any], logs: Path) -> Any:
    from distributed import LocalCluster, SSHCluster

    if kind == "local":
        return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, **keywords)
    if kind == "ssh":
        return SSHCluster(**keywords)
    if kind == "slurm":
        _need("dask_jobqueue")
        from dask_jobqueue import SLURMCluster

        cluster = SLURMCluster(**{"cores": 1, "memory": "4GB", "log_directory": str(logs), **keywords})
        cluster.scale(jobs=workers)
        return cluster
    _need("dask_kubernetes")
    from dask_kubernetes.operator import KubeCluster
    from dask_kubernetes.operator.kubecluster import kubecluster

    try:
        return KubeCluster(n_workers=workers, **keywords)
    except BaseException:
        atexit.unregister(kubecluster.reap_clusters)  # it would fail once more at the end, with a traceback
        raise


def _need(module: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        extra = {"distributed": "fleet", "asyncssh": "ssh", "dask_jobqueue": "slurm", "dask_kubernetes": "kubernetes"}[module]
        raise ToolError("missing-extra", f"this needs `{module}`", hint=f"install it: {install_hint(extra)}")


__all__ = ["CLUSTERS", "Crew", "DaskCrew", "LocalCrew", "Outcome", "check_crew", "connect", "start_cluster"]
