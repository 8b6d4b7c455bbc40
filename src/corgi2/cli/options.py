"""Options that several commands take, and the kinds of values that they have."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from corgi2.progress import LINES_ONLY
from corgi2.sizes import parse_size

Command = TypeVar("Command", bound=Callable[..., Any])

SRC_HELP = """SRC is a folder, one shard, a glob ('train-*.tar') or a brace range ('train-{000000..000146}.tar'), on
this machine or in s3://, gs://, az://. Put globs and braces in quotes, so that the shell leaves them alone."""


def size(value: Any) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def share(value: Any) -> float:
    from corgi2.offline import parse_share

    try:
        return parse_share(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def number(value: Any) -> int:
    """A whole number, which may be written as 1.3e9."""
    try:
        found = float(value)
        if not 1 <= found < 1e18 or not found.is_integer():
            raise ValueError
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r} is no whole number between 1 and 1e18; write 1300000000 or 1.3e9"
        ) from error
    return int(value) if str(value).isdigit() else int(found)


def key_value(value: Any) -> tuple[str, str]:
    key, equals, text = str(value).partition("=")
    if not equals or not key:
        raise click.BadParameter("write KEY=VALUE, for example endpoint=http://127.0.0.1:9000")
    return key, text


def _store_option(name: str, text: str) -> Callable[[Command], Command]:
    names = f"--{name}-option", f"{name}_options"
    return click.option(*names, type=key_value, metavar="KEY=VALUE", multiple=True, help=text)


src_option = _store_option(
    "src",
    "An option for SRC's store; may be repeated: endpoint=URL, region=NAME, access_key_id=…, secret_access_key=…, "
    "anonymous=true, retries=8, timeout=60 (seconds without a byte). Without them, the usual sources are used: "
    "environment, instance role.",
)

dst_option = _store_option("dst", "The same for DST's store.")


def _lines_only(context: click.Context, _: click.Parameter, as_json: bool) -> bool:
    """With --json no bar is drawn, even on a terminal."""
    before = LINES_ONLY.set(as_json)
    context.call_on_close(lambda: LINES_ONLY.reset(before))
    return as_json


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_lines_only, help="Print one JSON object, also for errors."
)

buffer_option = click.option(
    "--buffer", type=size, help="Memory to read with; the largest record must fit.  [default: 1GB]"
)

html_option = click.option("--html", help="Write a page with pictures to this file. It needs no network.")

label_option = click.option(
    "--label",
    multiple=True,
    help="Measure mixing by this tar part, column or JSON key, or inside one (json.category, tags.0). May be repeated.",
)

feature_option = click.option(
    "--feature", multiple=True, help="The same by numbers, or vectors of them. May be repeated."
)

sample_option = click.option(
    "--sample", type=click.IntRange(min=2), default=64, show_default=True, help="How many blocks to measure."
)
