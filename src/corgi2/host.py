"""This machine and this process: how much memory may be used, and how to return some; processors; which processes are
alive; what happens on SIGTERM."""

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_memory(limits: tuple[str, ...] = _CGROUP_LIMITS) -> int:
    """Bytes that this process may use. A limit that cannot be read, or that says ``max``, does not count."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for path in limits if (limit := _read(path)) is not None)])


def release_unused() -> None:
    """Return memory that Arrow freed in this thread to the system. Allocators keep it as if it were still in use."""
    pa.default_memory_pool().release_unused()


def give_back() -> None:
    """Do the same, and also return what all others have freed."""
    release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; others do not need it
        if trim is not None:
            trim(0)


def _read(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


HOST = socket.gethostname()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_alive(pid: int, birth: str = "") -> bool:
    """Whether a process is alive. If ``birth`` is given, a later process with the same number does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is alive, and belongs to somebody else
        pass
    state, born = _state(pid)
    return state not in _DEAD and (not birth or not born or birth == born)


def birth_of(pid: int) -> str:
    """When a process was started, by a clock of this machine; empty if that is not available."""
    return _state(pid)[1]


_DEAD = ("Z", "X")
"""Ended, but its parent has not waited for it yet."""


def _state(pid: int) -> tuple[str, str]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


@contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Keep the current handler of SIGTERM, whatever is imported or started meanwhile."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
