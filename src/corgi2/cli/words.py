"""What commands say besides their results: notices and problems, on standard error; and the pages that they write."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from corgi2.cli.dashes import in_dashes
from corgi2.cli.problem import Problem
from corgi2.errors import SourceError


def check_page(path: str | None) -> None:
    from corgi2.formats import suffix_of

    if path is not None and (not path or suffix_of(path) or Path(path).is_dir()):
        raise click.UsageError(f"--html names a file for the page, such as page.html (got {path!r})")
    if path is not None and not os.access(Path(path).absolute().parent, os.W_OK | os.X_OK):
        raise click.UsageError(f"--html {path}: there is no folder {Path(path).parent} to write to; make it first")


def write_page(path: str, text: str) -> None:
    """Write the whole page, or nothing."""
    partial = Path(f"{path}.partial")
    partial.write_text(text, "utf-8", "replace")
    partial.replace(path)
    say(f"the page is {path}")


def command_line(words: Sequence[str] | None = None) -> str:
    """The command as typed, or other words, without options that act only once, and without secrets."""
    words = [word for word in sys.argv[1:] if word != "--restart"] if words is None else words
    return shlex.join(["corgi2", *map(_shown, words)])


def with_example(problem: Problem, error: BaseException) -> Problem:
    """If something else should have been named, show the whole command that names it."""
    instead = error.instead if isinstance(error, SourceError) else None
    words = sys.argv[1:]
    place = next((place for place, word in enumerate(words) if place and instead and _is_url(word, instead[0])), None)
    if instead is None or place is None:
        return problem
    words[place] = instead[1]  # the first alone: a target may have the same name
    return replace(problem, hint=f"{(problem.hint or '').partition(': ')[0]}: {command_line(words)}")


def _is_url(word: str, url: str) -> bool:
    from corgi2.stores import parse_url

    try:
        return str(parse_url(word)) == url
    except ValueError:
        return False


_OPTION = re.compile(r"((?:--\w+-option=)?(\w+)=).*", re.DOTALL)


def _shown(word: str) -> str:
    from corgi2.stores import is_secret

    match = _OPTION.fullmatch(word)
    return f"{match[1]}…" if match and is_secret(match[2]) else word


def say(text: str) -> None:
    """Print a notice: neither a result nor an error."""
    click.echo(f"corgi2: {in_dashes(text)}", err=True)


def complain(problem: Problem) -> None:
    for line in problem.lines(_wants_json()):
        click.echo(line, err=True)


def _wants_json() -> bool:
    """Whether --json was typed; known before the arguments are parsed, because they may be wrong."""
    return "--json" in sys.argv[1:]
