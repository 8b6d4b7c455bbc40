"""``corgi2``, of which everything else is a command."""

import shlex
from itertools import groupby

import click

from corgi2.version import __version__


class _Command(click.Command):
    """A command that notices if the shell has expanded a pattern."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            quoted = _quoted(typed) if error.message.startswith("Got unexpected extra argument") else None
            if quoted is None:
                raise
            raise click.UsageError(
                f"the shell has expanded a pattern to {quoted[0]:,} arguments; quote it: {ctx.command_path} "
                f"{shlex.join(quoted[1])}"
            ) from error


def _quoted(words: list[str]) -> tuple[int, list[str]] | None:
    """The length of the longest run of shards among the words, and the words with a pattern in its place."""
    from corgi2.dataset import pattern_of
    from corgi2.formats import suffix_of

    runs = [(is_shard, [*run]) for is_shard, run in groupby(words, lambda word: suffix_of(word) is not None)]
    longest = max((run for is_shard, run in runs if is_shard), key=len, default=[])
    if len(longest) < 2:
        return None
    shown = [[pattern_of(run)] if run is longest else run for _, run in runs]
    return len(longest), [word for run in shown for word in run]


class _Group(click.Group):
    command_class = _Command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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
    Look at a loader's cache:  corgi2 cache /nvme/corgi2
    See it work:            corgi2 demo

    Sizes are bytes (4096), powers of 1000 (64KB, 8GB, 8G, 27T) or of 1024 (64KiB, 8GiB, 8Gi).

    \b
    Exit codes:  0  done, or yes
                 1  the answer is no: verify found a difference, inspect found damage
                 2  wrong usage
                 3  it could not be done: no such folder, a damaged shard, no space, a store that fails
                 130, 143  stopped by SIGINT (Ctrl-C), SIGTERM
    """
