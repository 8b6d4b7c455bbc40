"""The command line. An error is one line, or with --json one object, on standard error; exit codes are for scripts."""

import io
import logging
import os
import sys
from contextlib import suppress

import click

from corgi2.cli import demo, index, inspect, plan, shuffle, verify  # noqa: F401 - each adds its command
from corgi2.cli.dashes import in_dashes
from corgi2.cli.problem import FAILED, problem_of
from corgi2.cli.root import cli
from corgi2.cli.signals import end_at_once, on_signals
from corgi2.cli.words import complain


def main() -> None:
    """Run the command line; errors and notices become a line each."""
    _prepare_streams()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Notices("corgi2: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    with on_signals(end_at_once):
        code = _run()
    sys.exit(code)


class _Notices(logging.Formatter):
    """What the library logs, in the words of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        return in_dashes(super().format(record))


def _prepare_streams() -> None:
    """Names may hold anything; and where a stream was closed, no shard shall be opened in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> int:
    try:
        code = cli(prog_name="corgi2", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        if "\n" in error.format_message():  # all of the help, where no command was given
            error.show()
            return error.exit_code
        return _failed(error)
    except SystemExit:  # by click, where nobody reads the output any more
        return FAILED
    except Exception as error:
        return _failed(error)
    return int(code)


def _failed(error: Exception) -> int:
    """Whatever can be said of it, the exit code tells."""
    problem = problem_of(error)
    with suppress(OSError):
        complain(problem)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # and nobody shall try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return problem.exit_code
