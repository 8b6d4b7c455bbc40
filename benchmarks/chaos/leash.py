"""Processes that end with the one that began them, whatever ends it.

A server, or a shuffle that was stopped, would outlive a harness that is killed. On the leash, ``python leash.py PROGRAM
ARGUMENT …``, the system ends it (on Linux; elsewhere there is no such thing, and the program is just begun), with the
thread that began it. A guard, ``python leash.py --guard GROUP``, ends a whole group of processes when its input
is closed, also what those have begun.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

_SET_DEATH_SIGNAL = 1
_GUARD = "--guard"


def leashed(words: list[str]) -> list[str]:
    """The command that begins a program on the leash."""
    return [sys.executable, "-I", "-S", __file__, *words]


def hold(parent: int | None = None) -> None:
    """From now on this process ends with its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:  # it ended meanwhile
            os.kill(os.getpid(), signal.SIGKILL)


def guard(group: int) -> "subprocess.Popen[bytes]":
    """Whoever ends a group of processes with this one. Its input is to stay open."""
    words = [sys.executable, "-I", "-S", __file__, _GUARD, str(group)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)


def _wait_and_end(group: int) -> None:
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1] == _GUARD:
        _wait_and_end(int(sys.argv[2]))
    else:
        hold()
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - what it is for
