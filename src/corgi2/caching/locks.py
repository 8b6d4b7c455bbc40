"""Locks on files, which the kernel frees when their process ends, however it ends.

A lock counts only while its file still bears its name: the file may have been renamed or removed in the meantime.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.02


def try_lock(path: Path, shared: bool = False) -> int | None:
    """The open file, locked; None if another process holds the lock. The file is made if there is none."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        if _is_named(fd, path):
            return fd
        os.close(fd)


def unlock(fd: int) -> None:
    """Unlock a file, and the copies of its descriptor that a fork has made."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[int]:
    """The open file, locked. A process that is stopped keeps its locks: whoever waits longer than this gives up."""
    deadline = time.monotonic() + seconds
    while (fd := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path}: locked for more than {seconds:g} s")
        time.sleep(POLL_SECONDS)
    try:
        yield fd
    finally:
        unlock(fd)


def _is_named(fd: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(fd)
    return (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)
