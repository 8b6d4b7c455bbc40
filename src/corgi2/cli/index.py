"""``corgi2 index``"""

import json

import click

from corgi2.cli.options import SRC_HELP, buffer_option, json_option, size, src_option
from corgi2.cli.root import cli
from corgi2.errors import DamageError, SourceError, StoreError
from corgi2.records import BLOCK_BYTES
from corgi2.sizes import format_size


@cli.command(epilog=SRC_HELP)
@click.argument("src")
@click.option(
    "--block-size",
    type=size,
    default=BLOCK_BYTES,
    show_default="64MB",
    help="Cut shards into blocks of about this size, at record boundaries. Parquet: a row group is a block.",
)
@click.option("--cache", is_flag=True, help="Keep the index in your cache folder, for data that you may not write to.")
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
    """Scan SRC once and keep where its blocks lie, in .corgi2/ beside the data.

    Other commands and the loader then start at once. Run it again after adding shards: only new and changed ones are
    read.
    """
    from corgi2.dataset import cache_store, find_source, load_index, merge, save_index, survey_source
    from corgi2.quality import left_alone

    if block_size < 1:
        raise click.BadParameter("must be at least one byte", param_hint="--block-size")
    source = find_source(src, dict(src_options), "index")
    store = cache_store(source) if cache else source.store
    try:
        known = load_index(store)
    except SourceError:
        known = None  # damaged, or of another version: it is made anew
    survey = survey_source(source, block_size, known, buffer)
    made = survey.index
    if made.shards.num_rows:
        try:
            save_index(store, merge(known, made))
        except StoreError as error:
            if not cache:
                error.hint = "--cache keeps the index in your cache folder"
            raise
    if survey.damage:
        raise DamageError(survey.damage, hint="restore what is damaged, and index again: nothing else is read then")
    result = {
        "index": f"{store.url}/.corgi2/index",
        "format": source.format.name,
        "shards": made.shards.num_rows,
        "blocks": made.blocks.num_rows,
        "records": made.records,
        "bytes": made.bytes,
        "others": list(source.others),
    }
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    click.echo(
        f"{made.records:,} records in {made.blocks.num_rows:,} blocks of {made.shards.num_rows:,} {source.format.name} "
        f"shards, {format_size(made.bytes)}; the index is {result['index']}"
    )
    if source.others:
        click.echo(left_alone(source.others))
