"""Small files that are published together, at little more than the cost of writing them.

Flushing one file at a time makes the disk write its journal for each. Here all files are handed to the disk first, and
flushed from the last to the first: the first flush commits what the others need. The promise is that of a single file:
whatever has its final name is whole, even after a crash.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_WRITE = 2
"""Of ``sync_file_range``: start to write, and do not wait."""


class Drafts:
    """Files under temporary names, which ``name`` makes up; those that are not published are removed."""

    def __init__(self, name: Callable[[], str]) -> None:
        self._name = name
        self._open: dict[int, tuple[str, str]] = {}
        """By descriptor: where it lies, and where it will."""

    def __enter__(self) -> "Drafts":
        return self

    def __exit__(self, *_: object) -> None:
        for fd, (temporary, _final) in self._open.items():
            with contextlib.suppress(OSError):
                os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - there may be many

    def write(self, folder: str, final: str, data: bytes) -> None:
        """A file that will lie in this folder, under this path."""
        temporary = f"{folder}/{self._name()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._open[fd] = temporary, final
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        _start_writing(fd)

    def publish(self) -> list[os.stat_result]:
        """Give all files their names, which last once their folders are flushed; returns the status of each, since
        another process may consume it soon."""
        for fd in reversed(self._open):
            os.fsync(fd)
        done = [os.fstat(fd) for fd in self._open]
        for fd, (temporary, final) in list(self._open.items()):
            os.replace(temporary, final)  # noqa: PTH105 - there may be many
            del self._open[fd]
            os.close(fd)
        return done


def flush_folder(folder: Path | str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _start_writing(fd: int) -> None:
    """Where the system cannot be told to, the flush does it."""
    call = _sync_file_range()
    if call is not None:
        call(fd, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)


@cache
def _sync_file_range() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), "sync_file_range", None)
