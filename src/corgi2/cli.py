"""The command line. Errors that a person can do something about are one line each, exit code 1 or 2."""

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from corgi2.errors import Corgi2Error, DamageError, SourceError, StoreError
from corgi2.shard import BLOCK_BYTES
from corgi2.sizes import format_size, parse_size
from corgi2.version import __version__

Command = TypeVar("Command", bound=Callable[..., Any])

_SRC_HELP = """SRC is a folder, one shard, a glob ('train-*.tar') or a brace range ('train-{000000..000146}.tar'), on
this machine or in s3://, gs://, az://. Put globs and braces in quotes, so that the shell leaves them alone."""


class Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KeyValue(click.ParamType[tuple[str, str]]):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail("write KEY=VALUE, for example endpoint=http://127.0.0.1:9000", param, ctx)
        return key, text


def _store_option(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}-option", f"{name}_options", type=KeyValue(), multiple=True, help=text)


_src_option = _store_option(
    "src",
    "An option for SRC's store, again for each: endpoint=URL, region=NAME, access_key_id=…, secret_access_key=…, "
    "anonymous=true, retries=8, timeout=60 (seconds without a byte). Without them the usual places count: environment, "
    "instance role.",
)
_dst_option = _store_option("dst", "The same for DST's store.")


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="corgi2")
def cli() -> None:
    """Train from shards as well as from shuffled data.

    Shards usually hold records that belong together: one video, one user, one day. A loader that shuffles a small
    window of them feeds SGD correlated examples, and the model pays. corgi2 mixes shards, keeps their format, and
    proves that no record was lost.

    \b
    Look at a data set:     corgi2 inspect s3://bucket/train
    Make it quick to open:  corgi2 index   s3://bucket/train
    Mix its shards:         corgi2 shuffle s3://bucket/train s3://bucket/mixed --buffer 8GB
    Prove nothing is lost:  corgi2 verify  s3://bucket/train s3://bucket/mixed
    See it work:            corgi2 demo

    Sizes are bytes (4096), powers of 1000 (64KB, 8GB) or of 1024 (64KiB, 8GiB).
    """


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.option("--label", multiple=True, help="Measure mixing by this tar part, column or JSON key. May be repeated.")
@click.option("--feature", multiple=True, help="The same by numbers, or vectors of them. May be repeated.")
@click.option("--sample", type=click.IntRange(min=2), default=64, show_default=True, help="Blocks to measure by.")
@_src_option
@_json_option
def inspect(
    src: str,
    label: tuple[str, ...],
    feature: tuple[str, ...],
    sample: int,
    src_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Say what SRC is made of: format, shards, blocks, records, bytes, and the damage found.

    Reads all shards once, unless an index is up to date (Parquet: footers only). Writes nothing. The exit code is 1
    if a shard is damaged.

    With --label or --feature it also measures how badly the blocks are mixed: h_D is the number of examples in a block
    where each holds one kind, and about 1 where they are shuffled.
    """
    from corgi2.describe import describe, look_at

    source, survey, indexed = look_at(src, dict(src_options))
    description = describe(source, survey, indexed)
    result, text = description.as_json(), description.as_text()
    if (label or feature) and not description.damage:
        from corgi2.measure import measure_blocks

        measured = measure_blocks(source, survey.index, label, feature, sample=sample)
        result, text = result | measured.as_json(), f"{text}\n{measured.as_text()}"
    click.echo(json.dumps(result, indent=2) if as_json else text)
    if description.damage:
        _complain("\n".join(description.damage))
        sys.exit(1)


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.option(
    "--block-size",
    type=Size(),
    default=BLOCK_BYTES,
    show_default="64MB",
    help="Cut shards into blocks of about this size, at record boundaries. Parquet: a row group is a block.",
)
@click.option("--cache", is_flag=True, help="Keep the index in your cache folder, for data that you may not write to.")
@_src_option
@_json_option
def index(src: str, block_size: int, cache: bool, src_options: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Scan SRC once and keep where its blocks lie, in .corgi2/ beside the data.

    Other commands and the loader then start at once. Run it again after adding shards: only new and changed ones are
    read.
    """
    from corgi2.describe import left_alone
    from corgi2.index import cache_store, load_index, merge, save_index, survey_source
    from corgi2.source import find_source

    if block_size < 1:
        raise click.BadParameter("must be at least one byte", param_hint="--block-size")
    source = find_source(src, dict(src_options), "index")
    store = cache_store(source) if cache else source.store
    try:
        known = load_index(store)
    except SourceError:
        known = None  # damaged, or of another version: it is made anew
    survey = survey_source(source, block_size, known)
    made = survey.index
    if made.shards.num_rows:
        try:
            save_index(store, merge(known, made))
        except StoreError as error:
            raise error if cache else StoreError(f"{error}; --cache keeps the index in your cache folder") from error
    if survey.damage:
        raise DamageError(survey.damage)
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


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--buffer", type=Size(), help="Memory for one group of blocks.  [default: half of what may be used]")
@click.option("--buffer-blocks", type=click.IntRange(min=1), help="Mix so many blocks at a time (n), not more.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, another order.")
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Mix again what was mixed, with blocks of other groups. 2 mix almost any data set. Costs as much once more.",
)
@click.option("--with-replacement", is_flag=True, help="As the paper prints it: drops about half of the records.")
@click.option(
    "--shard-size", type=Size(), help="Write shards of about this size.  [default: about as many shards as SRC has]"
)
@click.option("--shard-records", type=click.IntRange(min=1), help="Write shards of about so many records.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Replace the shards of SRC, group by group, without a second copy. Old shards are deleted once the new ones "
    "are safe.",
)
@click.option("--skip-bad", is_flag=True, help="Leave damaged shards out, and list them.")
@click.option("--restart", is_flag=True, help="Discard what an unfinished shuffle has written to DST, and begin anew.")
@click.option("--workers", type=click.IntRange(min=1), default=4, show_default=True, help="Reads and writes in flight.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and stop.")
@_src_option
@_dst_option
@_json_option
def shuffle(
    src: str,
    dst: str | None,
    buffer: int | None,
    shard_size: int | None,
    restart: bool,
    workers: int,
    dry_run: bool,
    src_options: tuple[tuple[str, str], ...],
    dst_options: tuple[tuple[str, str], ...],
    as_json: bool,
    **choices: Any,
) -> None:
    """Mix the shards of SRC into DST: random groups of blocks, each shuffled and written as new shards.

    The format stays, and no record is lost or repeated: corgi2 verify SRC DST proves it. A larger buffer mixes better.
    The output depends on SRC, the seed and the options alone. If it is stopped, by whatever, the same command goes on
    where it was.
    """
    from corgi2.offline import run_shuffle
    from corgi2.planner import plan_shuffle
    from corgi2.recipe import Settings

    settings = Settings(buffer_bytes=buffer, shard_bytes=shard_size, **choices)
    if restart and dry_run:
        raise click.UsageError("--restart discards, --dry-run touches nothing; give one of them")
    job = plan_shuffle(src, dst, settings, dict(src_options), dict(dst_options), restart)
    click.echo(job.describe(), err=as_json)
    if dry_run:
        if as_json:
            click.echo(json.dumps(job.as_json(), indent=2))
        return
    try:
        report = run_shuffle(job, workers)
    except KeyboardInterrupt:
        _leave(f"stopped; nothing is lost. To go on: {_command_line()}")
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
        return
    lines = [
        f"{report.records:,} records in {report.shards:,} shards, {format_size(report.bytes)}; {report.reads:,} reads, "
        f"{report.writes:,} writes, {report.seconds:.1f} s" + (", complete already" if report.was_complete else ""),
        *(f"left out: {line}" for line in report.skipped),
    ]
    click.echo("\n".join(lines))


def _command_line() -> str:
    """What was typed, but for what is done only once."""
    return shlex.join(["corgi2", *(word for word in sys.argv[1:] if word != "--restart")])


def _leave(text: str) -> NoReturn:
    """End at once: threads that wait for a store could take minutes."""
    _complain(text)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--quick", is_flag=True, help="Without DST: compare sizes, times and sums, and read no shard.")
@_src_option
@_dst_option
@_json_option
def verify(
    src: str,
    dst: str | None,
    quick: bool,
    src_options: tuple[tuple[str, str], ...],
    dst_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Prove that DST holds exactly the records of SRC, in whatever order, by count and sum of 128-bit hashes.

    Reads both once, in constant memory. If they differ, it says how many records are missing or extra and where
    examples lie, and the exit code is 1.

    With one folder, which corgi2 has shuffled: prove that every byte of it is what the shuffle wrote, and that the
    shuffle wrote every record that it read exactly once. After --in-place that is the way.
    """
    from corgi2.verdict import verify as compare

    options = dict(src_options), dict(dst_options)
    verdict: Any = compare(src, dst, quick=quick, storage_options=options[0], target_options=options[1])
    click.echo(json.dumps(verdict.as_json(), indent=2) if as_json else verdict.as_text())
    sys.exit(0 if verdict.same else 1)


@cli.command()
@click.argument("folder", default=".demo")
def demo(folder: str) -> None:
    """Make a small data set in FOLDER, mix its shards, check every record, and show what changed."""
    from corgi2.demo import run

    run(folder)


def _complain(text: str) -> None:
    for line in text.splitlines():
        click.echo(f"corgi2: {line}", err=True)


def main() -> None:
    """Run the command line; errors and notices become a line each."""
    logging.basicConfig(format="corgi2: %(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted; nothing was damaged, run the same command again")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Corgi2Error, ValueError, MemoryError, OSError) as error:
        _complain(str(error))
        sys.exit(1)
