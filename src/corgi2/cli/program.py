"""The command line. An error is one line, or with --json one object, on standard error; exit codes are for scripts."""

import io
import logging
import os
import sys
from contextlib import suppress

import click

from corgi2.cli import cache, demo, index, inspect, plan, shuffle, verify  # noqa: F401 - each adds its command
from corgi2.cli.dashes import in_dashes
from corgi2.cli.problem import FAILED, problem_of
from corgi2.cli.root import cli
from corgi2.cli.signals import end_at_once, on_signals
from corgi2.cli.words import complain, with_example


def main() -> None:
    """Run the command line; each error and notice becomes one line."""
    _prepare_streams()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Notices("corgi2: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    with on_signals(end_at_once):
        code = _run()
    sys.exit(code)


class _Notices(logging.Formatter):
    """Formats what the library logs, with options instead of arguments."""

    def format(self, record: logging.LogRecord) -> str:
        return in_dashes(super().format(record))


def _prepare_streams() -> None:
    """Names may hold anything; and if a stream was closed, no shard must be opened in its place."""
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
        if "\n" in error.format_message():  # the whole help, if no command was given
            error.show()
            return error.exit_code
        return _failed(error)
    except SystemExit:  # from click, if nobody reads the output any more
        return FAILED
    except Exception as error:
        return _failed(error)
    return int(code)


def _failed(error: Exception) -> int:
    """Report an error; even if it cannot be printed, the exit code tells."""
    problem = with_example(problem_of(error), error)
    with suppress(OSError):
        complain(problem)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # do not try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return problem.exit_code
