"""Who is running: this machine's name, its processors, whether one of its processes still lives, and what this one does
when it is told to end."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST = socket.gethostname()


def processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_alive(pid: int, birth: str = "") -> bool:
    """Whether a process lives; if it is known when it was born, not another one that got its number since."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and is somebody else's
        pass
    state, born = _state(pid)
    return state not in _DEAD and (not birth or not born or birth == born)


def birth_of(pid: int) -> str:
    """When a process was born, by a clock of this machine; empty where that is not to be had."""
    return _state(pid)[1]


_DEAD = ("Z", "X")
"""Killed, and not yet waited for."""


def _state(pid: int) -> tuple[str, str]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


@contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Keep the handler that somebody has set for SIGTERM, whatever is imported or started meanwhile."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
