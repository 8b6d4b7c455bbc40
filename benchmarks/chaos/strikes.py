"""Calls of the operating system that are struck: counted, refused, or the last that a process makes."""

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CALLS = ("mkdir", "write", "fsync", "replace", "link", "unlink", "preadv")
"""What a local store asks of the operating system, by the names in ``os``, where pathlib finds them, too."""

Strike = Callable[[str, Callable[[], Any], tuple[Any, ...]], Any]
"""Gets the name of a call, the call itself, and its arguments; gives what it is to return, or raises."""


@contextmanager
def striking(strike: Strike) -> Iterator[None]:
    """Have every one of `CALLS` go through ``strike``."""
    real = {name: getattr(os, name) for name in CALLS}
    for name, call in real.items():
        setattr(os, name, _struck(strike, name, call))
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def _struck(strike: Strike, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: strike(name, lambda: call(*arguments, **options), arguments)


@dataclass(slots=True)
class Failing:
    """The operating system refuses a call. A full disk stays full; one that cannot read or write fails once."""

    number: int
    moment: int
    calls: "itertools.count[int]" = field(default_factory=itertools.count)
    struck: str = ""
    """The first call that failed, and the path that it was about."""

    def __call__(self, name: str, call: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        is_full = self.number == errno.ENOSPC
        if is_full and name in ("unlink", "preadv"):  # which need no room
            return call()
        count = next(self.calls)
        if count == self.moment or (is_full and count > self.moment):
            self.struck = self.struck or f"{name} {arguments[0]}"
            raise OSError(self.number, os.strerror(self.number))
        return call()

    def check(self, problem: str | None, root: Path) -> None:
        """One line that names the path and the reason. Nobody need hear of temporary files that stay, nor of a folder
        that another thread has made meanwhile."""
        if problem is None:
            name, _, path = self.struck.partition(" ")
            assert name in ("unlink", "mkdir")
            assert path.endswith(".corgi2-tmp") if name == "unlink" else Path(path).is_dir()
            return
        assert problem.startswith(f"{root}/")
        assert problem.endswith(os.strerror(self.number))
        assert "\n" not in problem
