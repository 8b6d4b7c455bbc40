"""What commands say beside their results: notices and problems, on standard error; and the pages that they write."""

import re
import shlex
import sys
from pathlib import Path

import click

from corgi2.cli.dashes import in_dashes
from corgi2.cli.problem import Problem


def check_page(path: str | None) -> None:
    from corgi2.formats import suffix_of

    if path is not None and (not path or suffix_of(path) or Path(path).is_dir()):
        raise click.UsageError(f"--html names a file for the page, such as page.html (got {path!r})")


def write_page(path: str, text: str) -> None:
    """All of it, or nothing."""
    partial = Path(f"{path}.partial")
    partial.write_text(text, "utf-8", "replace")
    partial.replace(path)
    say(f"the page is {path}")


def command_line() -> str:
    """What was typed, but for what is done only once, and for secrets."""
    return shlex.join(["corgi2", *(_SECRET.sub(r"\1…", word) for word in sys.argv[1:] if word != "--restart")])


_SECRET = re.compile(
    r"^((?:--\w+-option=)?\w*(?:key|secret|token|password|credential|sas)\w*=).*", re.IGNORECASE | re.DOTALL
)


def say(text: str) -> None:
    """A notice: no result, and no error."""
    click.echo(f"corgi2: {in_dashes(text)}", err=True)


def complain(problem: Problem) -> None:
    for line in problem.lines(_wants_json()):
        click.echo(line, err=True)


def _wants_json() -> bool:
    """Known before the arguments are: they may be wrong."""
    return "--json" in sys.argv[1:]
