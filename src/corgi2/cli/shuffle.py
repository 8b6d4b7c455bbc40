"""``corgi2 shuffle``"""

import json
from typing import Any

import click

from corgi2.cli.dashes import in_dashes
from corgi2.cli.options import SRC_HELP, dst_option, json_option, share, size, src_option
from corgi2.cli.problem import Problem
from corgi2.cli.root import cli
from corgi2.cli.signals import StopError, end_in_order, leave, on_signals
from corgi2.cli.words import command_line, say


@cli.command(epilog=SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--buffer", type=size, help="Memory for one group of blocks.  [default: half of what may be used]")
@click.option("--buffer-blocks", type=click.IntRange(min=1), help="Mix this many blocks at a time (n), not more.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, another order.")
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Mix the new blocks again, in other groups. 2 passes mix almost any data set; each costs as much as one.",
)
@click.option("--with-replacement", is_flag=True, help="As the paper prints it: drops about half of the records.")
@click.option(
    "--shard-size", type=size, help="Write shards of about this size.  [default: about as many shards as SRC has]"
)
@click.option("--shard-records", type=click.IntRange(min=1), help="Write shards of about this many records.")
@click.option(
    "--block-size",
    type=size,
    help="Write blocks of about this size, several in a shard: what a loader reads at a time.  [default: as in SRC]",
)
@click.option(
    "--range-size",
    type=size,
    help="Mix ranges of about this size in rounds, such as 4MB: one pass mixes like two, with more reads and no more "
    "bytes.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Replace the shards of SRC, group by group, without a second copy. Old shards are deleted once the new ones "
    "are safe.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out damaged shards, and list them.")
@click.option("--holdout", type=share, help="Hold out this share for validation: 5%, or 0.05.")
@click.option("--holdout-to", metavar="VAL", help="An empty folder for the held-out records.")
@click.option(
    "--holdout-by",
    type=click.Choice(["record", "shard"]),
    help="record: a uniform sample of all records. shard: whole shards, copied as they are, so that nothing of a "
    "held-out video or user is trained on.",
)
@click.option("--restart", is_flag=True, help="Discard what an unfinished shuffle has written to DST, and start over.")
@click.option("--force", is_flag=True, help="Run even if it gains nothing: n = 1, or far more shards than SRC has.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Reads and writes in flight in one process.  [default: 4; an object store's connections, 16]",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where groups are made: here, or as tasks of a Ray cluster, each with its own --buffer.",
)
@click.option("--tasks", type=click.IntRange(min=1), help="With --engine ray: tasks per node.  [default: 1]")
@click.option("--address", help="The Ray cluster: auto, or HOST:PORT.  [default: Ray on this machine]")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and stop.")
@src_option
@dst_option
@json_option
def shuffle(
    src: str,
    dst: str | None,
    buffer: int | None,
    shard_size: int | None,
    block_size: int | None,
    range_size: int | None,
    restart: bool,
    force: bool,
    workers: int | None,
    engine: str,
    tasks: int | None,
    address: str | None,
    dry_run: bool,
    src_options: tuple[tuple[str, str], ...],
    dst_options: tuple[tuple[str, str], ...],
    as_json: bool,
    **choices: Any,
) -> None:
    """Mix the shards of SRC into DST: random groups of blocks, each shuffled and written as new shards.

    The format stays, and no record is lost or repeated: corgi2 verify SRC DST proves it. A larger buffer mixes better.
    The output depends only on SRC, the seed and the options. If it is stopped, for whatever reason, the same command
    resumes where it was.
    """
    from corgi2.offline import Settings, check_engine, plan_shuffle, run_shuffle

    settings = Settings(
        buffer_bytes=buffer, shard_bytes=shard_size, block_bytes=block_size, range_bytes=range_size, **choices
    )
    if restart and dry_run:
        raise click.UsageError("--restart discards, --dry-run touches nothing; give one of them")
    check_engine(engine, workers, tasks, address)
    planned = plan_shuffle(src, dst, settings, dict(src_options), dict(dst_options), restart, force)
    is_here = engine == "local"
    if as_json:
        for warning in planned.warnings(is_here):
            say(warning)
    else:
        click.echo(in_dashes(planned.describe(is_here)))
    if dry_run:
        if as_json:
            click.echo(json.dumps(planned.as_json(), indent=2))
        return
    try:
        with on_signals(end_in_order):
            report = run_shuffle(planned, workers, engine, tasks, address)
    except StopError as stop:
        error, hint = "stopped; nothing is lost", f"To resume: {command_line()}"
        leave(stop.signal, Problem(error, "interrupted", hint=hint, text=f"{error}. {hint}"))
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else report.as_text())
