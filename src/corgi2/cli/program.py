"""The command line. An error is one line, or with --json one object, on standard error; exit codes are for scripts."""

import io
import json
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click

from corgi2.cli.problem import FAILED, NO, Problem, problem_of
from corgi2.errors import DamageError, SourceError, StoreError
from corgi2.records.shard import BLOCK_BYTES
from corgi2.sizes import format_size, parse_size
from corgi2.version import __version__

Command = TypeVar("Command", bound=Callable[..., Any])

_SRC_HELP = """SRC is a folder, one shard, a glob ('train-*.tar') or a brace range ('train-{000000..000146}.tar'), on
this machine or in s3://, gs://, az://. Put globs and braces in quotes, so that the shell leaves them alone."""


def size(value: Any) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def number(value: Any) -> int:
    """A whole number, which may be written 1.3e9."""
    try:
        found = float(value)
        if not 1 <= found < 1e18:
            raise ValueError
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value!r} is no number between 1 and 1e18; write 1300000000 or 1.3e9") from error
    return int(value) if str(value).isdigit() else int(found)


def key_value(value: Any) -> tuple[str, str]:
    key, equals, text = str(value).partition("=")
    if not equals or not key:
        raise click.BadParameter("write KEY=VALUE, for example endpoint=http://127.0.0.1:9000")
    return key, text


def _store_option(name: str, text: str) -> Callable[[Command], Command]:
    names = f"--{name}-option", f"{name}_options"
    return click.option(*names, type=key_value, metavar="KEY=VALUE", multiple=True, help=text)


_src_option = _store_option(
    "src",
    "An option for SRC's store, again for each: endpoint=URL, region=NAME, access_key_id=…, secret_access_key=…, "
    "anonymous=true, retries=8, timeout=60 (seconds without a byte). Without them the usual places count: environment, "
    "instance role.",
)
_dst_option = _store_option("dst", "The same for DST's store.")


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for errors, too.")
_buffer_option = click.option(
    "--buffer", type=size, help="Memory to read with; the largest record must fit.  [default: 1GB]"
)
_html_option = click.option("--html", help="Write a page with pictures to this file. It needs no network.")
_label_option = click.option(
    "--label", multiple=True, help="Measure mixing by this tar part, column or JSON key. May be repeated."
)
_feature_option = click.option(
    "--feature", multiple=True, help="The same by numbers, or vectors of them. May be repeated."
)
_sample_option = click.option(
    "--sample", type=click.IntRange(min=2), default=64, show_default=True, help="Blocks to measure by."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="corgi2")
def cli() -> None:
    """Train from shards as well as from shuffled data.

    Shards usually hold records that belong together: one video, one user, one day. A loader that shuffles a small
    window of them feeds SGD correlated examples, and the model pays. corgi2 mixes shards, keeps their format, and
    proves that no record was lost.

    \b
    Look at a data set:     corgi2 inspect s3://bucket/train
    What would help, and what it costs:  corgi2 plan s3://bucket/train --label cls
    Make it quick to open:  corgi2 index   s3://bucket/train
    Mix its shards:         corgi2 shuffle s3://bucket/train s3://bucket/mixed --buffer 8GB
    Prove nothing is lost:  corgi2 verify  s3://bucket/train s3://bucket/mixed
    See it work:            corgi2 demo

    Sizes are bytes (4096), powers of 1000 (64KB, 8GB) or of 1024 (64KiB, 8GiB).

    \b
    Exit codes:  0  done, or yes
                 1  the answer is no: verify found a difference, inspect found damage
                 2  wrong usage
                 3  it could not be done: no such folder, a damaged shard, no space, a store that fails
                 130, 143  stopped by SIGINT (Ctrl-C), SIGTERM
    """


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@_label_option
@_feature_option
@_sample_option
@click.option("--online-buffer", type=size, help="Say how even the classes of a loader's buffer of this size would be.")
@click.option("--after", help="Measure this data set, too: SRC after a shuffle, say.")
@_buffer_option
@_html_option
@_src_option
@_json_option
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

    With --label or --feature it also measures how badly the blocks are mixed: h_D is the number of examples in a block
    where each holds one kind, and about 1 where they are shuffled. Of data that corgi2 has shuffled, it measures what
    that was made from, too, and shows what the theory predicts.
    """
    from corgi2.quality.description import describe, look_at

    if (online_buffer or html) and not label:
        raise click.UsageError("--online-buffer and --html show classes: give --label")
    if after and not (label or feature):
        raise click.UsageError("--after needs --label or --feature to measure by")
    _check_page(html)
    options = dict(src_options)
    source, survey, indexed = look_at(src, options, buffer)
    description = describe(source, survey, indexed)
    result, text = description.as_json(), description.as_text()
    if (label or feature) and not description.damage:
        from corgi2.advice.scout import By
        from corgi2.quality.mixing import look_at_mixing

        by = By(label, feature, sample)
        mixing = look_at_mixing(source, survey.index, by, options, online_buffer, after)
        result, text = result | mixing.as_json(), f"{text}\n{mixing.as_text()}"
        page = mixing.as_page(src) if html else ""
    elif label or feature:
        if not as_json:
            _say("not measured, because shards are damaged")
        page = ""
    click.echo(json.dumps(result, indent=2) if as_json else text)
    if html and page:
        _write(html, page)
    if not description.damage:
        return 0
    _complain(replace(problem_of(DamageError(survey.damage)), text="\n".join(description.damage)))
    return NO


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.option(
    "--block-size",
    type=size,
    default=BLOCK_BYTES,
    show_default="64MB",
    help="Cut shards into blocks of about this size, at record boundaries. Parquet: a row group is a block.",
)
@click.option("--cache", is_flag=True, help="Keep the index in your cache folder, for data that you may not write to.")
@_buffer_option
@_src_option
@_json_option
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
    from corgi2.dataset.index import cache_store, load_index, merge, save_index, survey_source
    from corgi2.dataset.source import find_source
    from corgi2.quality.description import left_alone

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


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--buffer", type=size, help="Memory for one group of blocks.  [default: half of what may be used]")
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
    "--shard-size", type=size, help="Write shards of about this size.  [default: about as many shards as SRC has]"
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
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Reads and writes in flight; with --engine ray, tasks a node.  [default: 4; tasks: 1]",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where groups are made: here, or as tasks of a Ray cluster, each with a --buffer of its own.",
)
@click.option("--address", help="Of the Ray cluster: auto, or HOST:PORT.  [default: Ray on this machine]")
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
    workers: int | None,
    engine: str,
    address: str | None,
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
    from corgi2.offline.planning import plan_shuffle
    from corgi2.offline.recipe import Settings
    from corgi2.offline.run import run_shuffle

    settings = Settings(buffer_bytes=buffer, shard_bytes=shard_size, **choices)
    if restart and dry_run:
        raise click.UsageError("--restart discards, --dry-run touches nothing; give one of them")
    job = plan_shuffle(src, dst, settings, dict(src_options), dict(dst_options), restart)
    if as_json:
        for warning in job.warnings():
            _say(warning)
    else:
        click.echo(job.describe())
    if dry_run:
        if as_json:
            click.echo(json.dumps(job.as_json(), indent=2))
        return
    try:
        with _on_signals(_stop):
            report = run_shuffle(job, workers, engine, address)
    except StopError as stop:
        error, hint = "stopped; nothing is lost", f"To go on: {_command_line()}"
        _leave(stop.signal, Problem(error, "interrupted", hint=hint, text=f"{error}. {hint}"))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
        return
    lines = [
        f"{report.records:,} records in {report.shards:,} shards, {format_size(report.bytes)}; {report.reads:,} reads, "
        f"{report.writes:,} writes, {report.seconds:.1f} s" + (", complete already" if report.was_complete else ""),
        *(f"left out: {line}" for line in report.skipped),
    ]
    click.echo("\n".join(lines))


@cli.command("plan", epilog=_SRC_HELP)
@click.argument("src", required=False)
@click.option("--buffer", type=size, help="Of the offline pass, a node.  [default: half of the memory there is]")
@click.option("--online-buffer", type=size, default="2GB", show_default=True, help="Of the loader, a node.")
@click.option("--epochs", type=number, default=10, show_default=True, help="That will be trained.")
@click.option("--nodes", type=number, default=1, show_default=True, help="Machines that shuffle, and that train.")
@_label_option
@_feature_option
@_sample_option
@click.option("--h-d", "h_d", type=float, help="h_D, if it is known, instead of --label.  [default: the worst, b]")
@click.option("--records", type=number, help="Without SRC: how many.")
@click.option("--bytes", "size", type=size, help="Without SRC: of all shards.")
@click.option("--shards", type=number, help="Without SRC: how many.")
@click.option("--prices", help="aws, gcs, azure, or a JSON file of your own.  [default: those of SRC's store]")
@click.option("--bandwidth", type=size, help="Bytes a second, of a node.  [default: measured on SRC; else 500MB]")
@click.option("--latency", type=float, help="Milliseconds.  [default: measured on SRC; else 30]")
@_html_option
@_src_option
@_json_option
def plan(
    src: str | None,
    html: str | None,
    src_options: tuple[tuple[str, str], ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what every way of shuffling SRC would cost and buy, and which to take. Touches nothing.

    \b
    h and H: how badly blocks, and the buffers of all nodes at one time, are mixed; about 1 is a full shuffle.
    / full:  H over that of a full shuffle, which is also the ratio of Theorem 2's leading terms.
    $:       requests, and a month of what is stored twice. hours: if reading and writing is all there is to do.

    Without SRC it plans for a data set that is elsewhere, or not there yet:

    \b
      corgi2 plan --records 1.3e9 --bytes 27TB --shards 27000 --h-d 4e4 --buffer 64GB --online-buffer 4GB --nodes 8
    """
    from corgi2.advice.quote import Asked, quote

    _check_page(html)
    quoted = quote(src, Asked(**asked), dict(src_options))
    advice = quoted.advice
    click.echo(json.dumps(advice.as_json(), indent=2) if as_json else advice.as_text())
    if html:
        _write(html, quoted.as_page())


def _check_page(path: str | None) -> None:
    from corgi2.formats import suffix_of

    if path is not None and (not path or suffix_of(path) or Path(path).is_dir()):
        raise click.UsageError(f"--html names a file for the page, such as page.html (got {path!r})")


def _write(path: str, text: str) -> None:
    """All of it, or nothing."""
    partial = Path(f"{path}.partial")
    partial.write_text(text, "utf-8", "replace")
    partial.replace(path)
    _say(f"the page is {path}")


def _command_line() -> str:
    """What was typed, but for what is done only once, and for secrets."""
    return shlex.join(["corgi2", *(_SECRET.sub(r"\1…", word) for word in sys.argv[1:] if word != "--restart")])


_SECRET = re.compile(
    r"^((?:--\w+-option=)?\w*(?:key|secret|token|password|credential|sas)\w*=).*", re.IGNORECASE | re.DOTALL
)


class StopError(BaseException):
    """A signal has asked to end what is under way, in good order."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


Handler = Callable[[int, FrameType | None], None]


@contextmanager
def _on_signals(handler: Handler) -> Iterator[None]:
    """For Ctrl-C and SIGTERM; those that whoever started this wants to be ignored are."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)


def _stop(number: int, _: FrameType | None) -> None:
    """The next signal does not wait for good order."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _end)
    raise StopError(number)


def _end(number: int, _: FrameType | None = None) -> None:
    """At once: what only reads leaves nothing behind, and a thread that waits for a store could take minutes."""
    _leave(number, Problem("interrupted; nothing was damaged", "interrupted", hint="run the same command again"))


def _leave(number: int, problem: Problem) -> NoReturn:
    with suppress(OSError, RuntimeError):  # closed, or just at work
        sys.stdout.flush()
    with suppress(OSError, RuntimeError):
        _complain(problem)
    os._exit(128 + number)


@cli.command(epilog=_SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--quick", is_flag=True, help="Without DST: compare sizes, times and sums, and read no shard.")
@_buffer_option
@_src_option
@_dst_option
@_json_option
def verify(
    src: str,
    dst: str | None,
    quick: bool,
    buffer: int | None,
    src_options: tuple[tuple[str, str], ...],
    dst_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Prove that DST holds exactly the records of SRC, in whatever order, by count and sum of 128-bit hashes.

    Reads both once, in constant memory. If they differ, it says how many records are missing or extra and where
    examples lie, and the exit code is 1.

    With one folder, which corgi2 has shuffled: prove that every byte of it is what the shuffle wrote, and that the
    shuffle wrote every record that it read exactly once. After --in-place that is the way.
    """
    from corgi2.proof.comparison import verify as compare

    options = dict(src_options), dict(dst_options)
    verdict: Any = compare(src, dst, quick=quick, buffer=buffer, storage_options=options[0], target_options=options[1])
    click.echo(json.dumps(verdict.as_json(), indent=2) if as_json else verdict.as_text())
    return 0 if verdict.same else NO


@cli.command()
@click.argument("folder", default=".demo")
def demo(folder: str) -> None:
    """See it work, in less than a minute, on handwritten digits that lie class by class in small shards.

    Measures how badly they are mixed, plans, shuffles offline, verifies, and trains the same network from the shards as
    they are, a sliding window, CorgiPile, Corgi² and a full shuffle. FOLDER gets the shards and a report.
    """
    from corgi2.demo import run

    run(folder)


def _say(text: str) -> None:
    """A notice: no result, and no error."""
    click.echo(f"corgi2: {text}", err=True)


def _complain(problem: Problem) -> None:
    for line in problem.lines(_wants_json()):
        click.echo(line, err=True)


def _wants_json() -> bool:
    """Known before the arguments are: they may be wrong."""
    return "--json" in sys.argv[1:]


def main() -> None:
    """Run the command line; errors and notices become a line each."""
    _prepare_streams()
    logging.basicConfig(format="corgi2: %(message)s", level=logging.WARNING, stream=sys.stderr)
    with _on_signals(_end):
        code = _run()
    sys.exit(code)


def _prepare_streams() -> None:
    """Names may hold anything; and where a stream was closed, no shard shall be opened in its place."""
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
        if "\n" in error.format_message():  # all of the help, where no command was given
            error.show()
            return error.exit_code
        return _failed(error)
    except SystemExit:  # by click, where nobody reads the output any more
        return FAILED
    except Exception as error:
        return _failed(error)
    return int(code)


def _failed(error: Exception) -> int:
    """Whatever can be said of it, the exit code tells."""
    problem = problem_of(error)
    with suppress(OSError):
        _complain(problem)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # and nobody shall try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return problem.exit_code
