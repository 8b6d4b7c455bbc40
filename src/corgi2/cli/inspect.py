"""``corgi2 inspect``"""

import json
from dataclasses import replace

import click

from corgi2.cli.dashes import in_dashes
from corgi2.cli.options import (
    SRC_HELP,
    buffer_option,
    feature_option,
    html_option,
    json_option,
    label_option,
    sample_option,
    size,
    src_option,
)
from corgi2.cli.problem import NO, problem_of
from corgi2.cli.root import cli
from corgi2.cli.words import check_page, complain, say, write_page
from corgi2.errors import DamageError


@cli.command(epilog=SRC_HELP)
@click.argument("src")
@label_option
@feature_option
@sample_option
@click.option("--online-buffer", type=size, help="Say how even the classes of a loader's buffer of this size would be.")
@click.option("--after", help="Measure this data set as well, such as SRC after a shuffle.")
@buffer_option
@html_option
@src_option
@json_option
def inspect(
    src: str,
    buffer: int | None,
    label: tuple[str, ...],
    feature: tuple[str, ...],
    sample: int,
    online_buffer: int | None,
    after: str | None,
    html: str | None,
    src_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Say what SRC is made of: format, shards, blocks, records, bytes, and the damage found.

    Reads all shards once, unless an index is up to date (Parquet: footers only). Writes nothing. The exit code is 1
    if a shard is damaged.

    It also looks at some records of up to 64 blocks, and says whether blocks differ in what these look like, but not
    with --buffer, which limits the memory.

    With --label or --feature it also measures how badly the blocks are mixed: h_D is the number of examples in a block
    if each holds one kind, and about 1 if they are shuffled. If a label would look the same in any order, it says so.
    For data that corgi2 has shuffled, it also measures the original data, and reports whether the outcome is as
    predicted, and H of a loader's windows.
    """
    from corgi2.quality import inspect

    if (online_buffer or html) and not label:
        raise click.UsageError("--online-buffer and --html show classes: give --label")
    if after and not (label or feature):
        raise click.UsageError("--after needs --label or --feature to measure by")
    check_page(html)
    found = inspect(
        src,
        label=label,
        feature=feature,
        sample=sample,
        online_buffer=online_buffer,
        after=after,
        buffer=buffer,
        src_options=dict(src_options),
    )
    page = found.as_page(in_dashes) if html and found.mixing is not None else ""
    if (label or feature) and found.damage and not as_json:
        say("not measured, because shards are damaged")
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else in_dashes(found.as_text()))
    if html and page:
        write_page(html, page)
    if not found.damage:
        return 0
    complain(replace(problem_of(DamageError(found.damage)), text="\n".join(map(str, found.damage))))
    return NO
