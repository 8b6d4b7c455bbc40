"""``corgi2 index``"""

import json

import click

from corgi2.cli.options import SRC_HELP, buffer_option, json_option, size, src_option
from corgi2.cli.root import cli


@cli.command(epilog=SRC_HELP)
@click.argument("src")
@click.option(
    "--block-size",
    type=size,
    default="64MB",
    show_default=True,
    help="Cut shards into blocks of about this size, at record boundaries. Parquet: a row group is a block.",
)
@click.option("--cache", is_flag=True, help="Keep the index in your cache folder, for data that is read-only.")
@buffer_option
@src_option
@json_option
def index(
    src: str,
    block_size: int,
    cache: bool,
    buffer: int | None,
    src_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Scan SRC once and record where its blocks lie, in .corgi2/ next to the data.

    Other commands and the loader then start at once. Run it again after adding shards: only new and changed ones are
    read.
    """
    from corgi2.dataset import index

    found = index(src, block_size=block_size, cache=cache, buffer=buffer, src_options=dict(src_options))
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else found.as_text())
