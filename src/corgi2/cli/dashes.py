"""The library's messages name arguments (``buffer='8GB'``, ``skip_bad=True``); the command line's name options."""

import re
from functools import cache

import click

_ARGUMENT = re.compile(r"(?<![^\s(])([a-z]\w*)=(?![\"{])('[^']*'|[\w.+-]*\b|)(?![\w/])")
"""A word of its own, and no part of a path, such as that of a Hive folder; what is in double quotes or braces is code
to copy."""


def in_dashes(text: str) -> str:
    """``--buffer 8GB``, ``--skip-bad``, ``no --skip-bad``. Anything that is not an option of corgi2 stays as it is."""
    return _ARGUMENT.sub(_option, text)


def _option(match: re.Match[str]) -> str:
    name, value = match[1], match[2].strip("'")
    option = _options().get(name)
    if option is None:
        return match[0]
    if value in ("False", "None"):
        return f"no {option}"
    return option if value in ("", "True") else f"{option} {value}"


@cache
def _options() -> dict[str, str]:
    """The option of each argument, of all commands."""
    from corgi2.cli.root import cli

    return {
        option.name: max(option.opts, key=len)
        for command in cli.commands.values()
        for option in command.params
        if isinstance(option, click.Option) and option.name
    }
