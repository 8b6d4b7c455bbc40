"""What a command says when it fails, for people as one line, for scripts as one JSON object; and its exit code."""

import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import click

from corgi2.cli.dashes import in_dashes
from corgi2.errors import Corgi2Error, DamageError, ShardError

NO, USAGE, FAILED = 1, 2, 3
"""Exit codes: the answer is no; wrong usage; it could not be done. 0 is yes, or done; 128 and more are signals."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` is a stable word; ``shards`` are all damaged ones, if there are several."""

    error: str
    kind: str
    shard: str | None = None
    hint: str | None = None
    shards: tuple[str, ...] = ()
    text: str = ""
    """The text for people, if it is not just the error and the hint."""

    @property
    def exit_code(self) -> int:
        return USAGE if self.kind == "usage" else FAILED

    def lines(self, as_json: bool) -> Iterator[str]:
        """The lines to print."""
        if as_json:
            yield json.dumps(self.as_json())
            return
        text = self.text or (f"{self.error}; {self.hint}" if self.hint else self.error)
        for line in in_dashes(text).splitlines():
            yield f"corgi2: {line}"

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {"error": in_dashes(self.error), "kind": self.kind, "shard": self.shard}
        found["hint"] = None if self.hint is None else in_dashes(self.hint)
        return found | {"shards": list(self.shards)} if len(self.shards) > 1 else found


def problem_of(error: BaseException) -> Problem:
    """Bad arguments are `ValueError`; unexpected errors are named with their place, so that they can be reported."""
    if isinstance(error, Corgi2Error):
        return _of_ours(error)
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path} --help says what it takes" if context else None
        return Problem(error.format_message().rstrip("."), "usage", hint=hint)
    if isinstance(error, MemoryError):
        return Problem(str(error) or "out of memory", "memory")
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        return Problem(text, "space" if error.errno in _FULL else "store")
    if isinstance(error, ValueError) and type(error).__module__ == ValueError.__module__:
        return Problem(str(error), "usage")
    name, words = type(error).__name__, " ".join(str(error).split())
    return Problem(f"unforeseen {name}: {words} ({_place(error)})", "bug", hint="please report this")


def _of_ours(error: Corgi2Error) -> Problem:
    if isinstance(error, DamageError):
        names = tuple(one.shard for one in error.errors)
        every = "\n".join(map(str, error.errors))
        return Problem(every, error.kind, names[0] if names else None, error.hint, names, str(error))
    shard = error.shard if isinstance(error, ShardError) else None
    return Problem(error.problem_text, error.kind, shard, error.hint)


def _place(error: BaseException) -> str:
    """Where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "nowhere"
