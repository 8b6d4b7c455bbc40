"""Groups as tasks of a Ray cluster. One task makes one group: it reads, shuffles, writes, and leaves its marker.

If a node or worker dies, Ray runs its task again; a group that already has its marker is not made again. The driver
only deals them out, a bounded number at a time, and deletes what was consumed: if it dies, the same command resumes.
"""

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ray
from ray.exceptions import RayError

from corgi2.budget import promised_a_task
from corgi2.errors import Corgi2Error, SourceError
from corgi2.host import keeping_sigterm
from corgi2.offline.task import Made, Task
from corgi2.sizes import format_size

RETRIES = 20
"""How many nodes and workers may die while one group is made."""
_CONNECT_SECONDS = 10.0
_START = "start one (ray start --head), or give no address= to have Ray started on this machine alone"
_LOOK_SECONDS = 5.0
"""How often, in seconds, the driver checks whether nodes have come or gone."""


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs ``tasks`` tasks at a time per node of a cluster, each with ``workers`` reads and writes in flight."""

    workers: int
    tasks: int
    address: str | None = None
    """As `ray.init` takes it; None starts Ray on this machine, or joins the cluster that `RAY_ADDRESS` names."""

    @property
    def is_here(self) -> bool:
        return False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Join the cluster, unless that was done before."""
        if ray.is_initialized():
            yield
            return
        _check_there(self.address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
        try:
            with keeping_sigterm():
                ray.init(address=self.address, **quiet)
        except (RayError, ConnectionError, ValueError, RuntimeError) as error:
            where = f"at {self.address}" if self.address else "on this machine"
            raise SourceError(f"no Ray cluster {where}: {' '.join(str(error).split())[:200]}", hint=_START) from error
        try:
            yield
        finally:
            ray.shutdown()

    def make(
        self,
        task: Task,
        groups: Sequence[int],
        advance: Callable[[int], object],
        settle: Callable[[Made], object],
    ) -> None:
        """A bounded number at a time; on failure, running tasks are cancelled."""
        waiting, flying, remote = iter(groups), dict[Any, int](), _remote(task)
        try:
            while True:
                for group in islice(waiting, max(0, self.tasks * len(_nodes()) - len(flying))):
                    flying[remote.remote(task.only(group), group, self.workers)] = group
                if not flying:
                    return
                ready, _ = ray.wait(list(flying), num_returns=1, timeout=_LOOK_SECONDS)
                for reference in ready:
                    made = _result(reference, flying.pop(reference))
                    advance(task.bytes_of(made.group))
                    settle(made)
        finally:
            for reference in flying:
                ray.cancel(reference, force=True)


def _remote(task: Task) -> Any:
    """A remote function that makes a group on some node, with the most memory that it is promised to take."""
    need = promised_a_task(task.room_bytes)
    _check_memory(need)
    return ray.remote(_make).options(
        num_cpus=1, memory=need, max_retries=RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD"
    )


def _check_there(address: str | None) -> None:
    """Check that the cluster is there: Ray would end the process otherwise."""
    host, colon, port = (address or "").rpartition(":")
    if "://" in host or not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise SourceError(f"no Ray cluster at {address}: {error}; ray status tells where one is") from error


def _make(task: Task, group: int, workers: int) -> Made | Corgi2Error:
    """Runs in a worker. corgi2's errors are returned: raised, they would be buried in Ray's own text."""
    try:
        return task.make(group, workers)
    except Corgi2Error as error:
        return error


def _result(reference: Any, group: int) -> Made:
    try:
        result = ray.get(reference)
    except RayError as error:
        text = " ".join(str(error).split())[:300]
        raise SourceError(f"group {group} could not be made on the cluster; run the command again: {text}") from error
    if isinstance(result, Corgi2Error):
        raise result
    made: Made = result
    return made


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]] or [{}]


def _check_memory(need: int) -> None:
    most = int(max(node.get("Resources", {}).get("memory", 0) for node in _nodes()))
    if most < need:
        raise SourceError(
            f"a task takes {format_size(need)} (1.15 × buffer + 200 MB), but no node of the cluster offers more than "
            f"{format_size(most)}; give a smaller buffer, or start Ray with more memory (ray start --memory)"
        )
