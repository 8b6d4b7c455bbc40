"""Groups as tasks of a Ray cluster. A group is what one task makes: it reads, shuffles, writes, and leaves its marker.

Ray runs a task again whose node or worker has died; a group whose marker is there already is not made again. The driver
only deals them out, a bounded number at a time, and deletes what was consumed: when it dies, the same command resumes.
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
"""Nodes and workers that may die under one group."""
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 5.0
"""How often the driver looks whether nodes have come or gone."""


@dataclass(frozen=True, slots=True)
class RayEngine:
    """So many tasks at a time on every node of a cluster, each with so many reads and writes in flight."""

    workers: int
    tasks: int
    address: str | None = None
    """As `ray.init` takes it; None starts Ray on this machine, or joins what `RAY_ADDRESS` names."""

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
            raise SourceError(f"no Ray cluster {where}: {' '.join(str(error).split())[:200]}") from error
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
        """A bounded number at a time; if it fails, those that are under way are cancelled."""
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
    """What makes a group on some node, with the memory that it is promised to take at the most."""
    need = promised_a_task(task.room_bytes)
    _check_memory(need)
    return ray.remote(_make).options(
        num_cpus=1, memory=need, max_retries=RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD"
    )


def _check_there(address: str | None) -> None:
    """Ray ends the process that asks for a cluster which is not there."""
    host, colon, port = (address or "").rpartition(":")
    if "://" in host or not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise SourceError(f"no Ray cluster at {address}: {error}; ray status tells where one is") from error


def _make(task: Task, group: int, workers: int) -> Made | Corgi2Error:
    """In a worker. Errors of ours are results: they would come out buried in Ray's own words."""
    try:
        return task.make(group, workers)
    except Corgi2Error as error:
        return error


def _result(reference: Any, group: int) -> Made:
    try:
        result = ray.get(reference)
    except RayError as error:
        text = " ".join(str(error).split())[:300]
        raise SourceError(f"group {group} could not be made on the cluster; give the command again: {text}") from error
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
            f"a task takes {format_size(need)} (1.15 × buffer + 200 MB), and no node of the cluster offers more than "
            f"{format_size(most)}; give a smaller buffer, or start Ray with more memory (ray start --memory)"
        )
