"""The offline half of Corgi²: read random groups of blocks, shuffle each, write it as new shards of the same format.

`shuffle` plans and runs; `run_shuffle` runs what was planned, and reports. Memory: one group, which fits the buffer,
and a few slices.
"""

import os
import time
from typing import Literal

from corgi2.arguments import suggesting
from corgi2.budget import check_usable
from corgi2.offline.engines.choice import check_engine, choose_engine
from corgi2.offline.planned import Shuffle
from corgi2.offline.planning import naming_ways_out, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.settings import Settings, parse_share
from corgi2.offline.shuffle_run import ShuffleRun
from corgi2.sizes import parse_size
from corgi2.stores import Options

_WORKERS = 4
"""Reads and writes in flight, unless a number is given; of an object store, as many as it has connections."""


@suggesting
def shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    buffer: int | str | None = None,
    buffer_blocks: int | None = None,
    seed: int = 0,
    passes: int = 1,
    with_replacement: bool = False,
    shard_size: int | str | None = None,
    shard_records: int | None = None,
    block_size: int | str | None = None,
    range_size: int | str | None = None,
    in_place: bool = False,
    skip_bad: bool = False,
    restart: bool = False,
    force: bool = False,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    tasks: int | None = None,
    address: str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
    holdout: str | float | None = None,
    holdout_to: str | os.PathLike[str] | None = None,
    holdout_by: Literal["record", "shard"] | None = None,
) -> Report:
    """Shuffle ``src`` into ``dst``, or in place, or resume where an earlier run of the same plan stopped.

    Random groups of blocks are read into memory, shuffled, and written as new shards of the same format. No record is
    lost, repeated or altered; `corgi2.verify` proves it. The output depends on the source, the seed and the options,
    never on how often the run was stopped. To resume, make the same call again.

    Args:
        src: A folder, one shard, a glob (``train-*.tar``) or a brace range (``train-{000000..000146}.tar``), on this
            machine or in ``s3://``, ``gs://``, ``az://``.
        dst: An empty folder, or one that an unfinished run of the same plan has written to.
        buffer: Memory for one group of blocks, such as ``"8GB"``; a larger one mixes better. By default half of what
            this process may use. The process as a whole stays below 1.15 × buffer + 200 MB.
        buffer_blocks: Mix this many blocks at a time (n), not more.
        seed: Another seed gives another order.
        passes: Mix the new blocks again, in other groups; two passes mix almost any data set.
        with_replacement: Draw blocks and records as the paper's Algorithm 2 does, which drops about half of them.
        shard_size: Write shards of about this size. By default about as many shards as the source has.
        shard_records: Write shards of about this many records.
        block_size: Write blocks of about this size, several in a shard: what a loader reads at a time.
        range_size: Mix ranges of about this size, such as ``"4MB"``, in rounds: each group takes parts of as many
            blocks as memory allows, so that one pass mixes like two, with more reads and no more bytes. Needs an index
            with blocks of that size, or reads everything once more.
        in_place: Replace the shards of ``src``, group by group, without a second copy. Old shards are deleted once the
            new ones are safe.
        skip_bad: Leave out damaged shards, and list them in the report.
        restart: Discard what an unfinished shuffle has written to ``dst``, and start over.
        force: Run even if it gains nothing: n = 1, or many times as many shards as the source has.
        workers: Reads and writes in flight in one process, by default 4, or as many as an object store has connections
            (16); fewer where the buffer has no room for them. Changes the speed, never the output.
        engine: ``"local"``, or ``"ray"``: groups are tasks of a Ray cluster, each with its own buffer.
        tasks: With Ray: tasks per node, 1 by default.
        address: With Ray: the cluster's address, or ``"auto"``. By default Ray is started on this machine.
        src_options: Options for the source's store (docs/stores.md).
        dst_options: The same for the target's store, and for that of ``holdout_to``.
        holdout: Hold out this share for validation, such as ``"5%"`` or ``0.05`` (docs/validation.md).
        holdout_to: An empty folder for the held-out records.
        holdout_by: ``"record"``: a uniform sample of all records. ``"shard"``: whole shards, copied as they are, so
            that nothing of a held-out video or user is trained on.
    """
    settings = Settings(
        buffer_bytes=None if buffer is None else parse_size(buffer),
        buffer_blocks=buffer_blocks,
        seed=seed,
        passes=passes,
        with_replacement=with_replacement,
        shard_bytes=None if shard_size is None else parse_size(shard_size),
        shard_records=shard_records,
        block_bytes=None if block_size is None else parse_size(block_size),
        range_bytes=None if range_size is None else parse_size(range_size),
        in_place=in_place,
        skip_bad=skip_bad,
        holdout=None if holdout is None else parse_share(holdout),
        holdout_by=holdout_by,
        holdout_to=None if holdout_to is None else os.fspath(holdout_to),
    )
    check_engine(engine, workers, tasks, address)
    planned = plan_shuffle(src, dst, settings, src_options, dst_options, restart, force)
    return run_shuffle(planned, workers, engine, tasks, address)


def run_shuffle(
    planned: Shuffle,
    workers: int | None = None,
    engine: str = "local",
    tasks: int | None = None,
    address: str | None = None,
) -> Report:
    """Do what was planned, here or on a cluster."""
    usual = max(_WORKERS, planned.first.source.store.connections, planned.target.connections)
    makers = choose_engine(engine, workers or usual, tasks, address)
    started = time.monotonic()
    run = ShuffleRun(planned, makers)
    with naming_ways_out(planned.plan.settings):
        index = run.complete()
        if index is None:
            if makers.is_here:
                check_usable(planned.promised_bytes, planned.room_bytes, planned.target.url)
            index = run.make()
    places = planned.first.source.store, planned.target, *([planned.aside] if planned.aside is not None else [])
    stores = {id(store): store for store in places}.values()
    counts = [run.requests, *(store.requests for store in stores)]
    return Report(
        records=index.records,
        bytes=index.bytes,
        blocks=planned.index.blocks.num_rows,
        groups=run.groups,
        n=planned.first.n,
        shards=index.shards.num_rows,
        passes=planned.plan.settings.passes,
        reads=run.moved.reads,
        writes=run.moved.writes,
        deletes=sum(count.deletes for count in counts),
        other_requests=run.moved.lists
        + run.moved_aside.lists
        + sum(count.reads + count.writes + count.lists for count in counts),
        seconds=time.monotonic() - started,
        buffer_bytes=planned.room_bytes,
        resumed_groups=run.groups - run.made,
        skipped=(*planned.plan.skipped, *run.skipped),
        held_records=run.held.records if run.held is not None else 0,
        held_shards=run.held.shards.num_rows if run.held is not None else 0,
        held_writes=run.moved_aside.writes,
        holdout=planned.plan.settings.holdout_to,
    )
