"""New shards of a group, from records in the arena to objects of a store: gathered slice by slice, hashed, encoded.

A shard holds the arena until its last slice is gathered and the store has taken it; then it lets go, and what is still
on its way is memory of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa

from corgi2.offline.journal import NewShard
from corgi2.offline.mixer import Mixer
from corgi2.offline.parts import Body, Part, Tally
from corgi2.offline.threads import ahead
from corgi2.order import Indices
from corgi2.records import Digest, end
from corgi2.stores import Store, upload_bytes

Goal: TypeAlias = tuple[Store, str]
"""Where a shard goes: a store, and a path there."""

Written: TypeAlias = tuple[Digest, tuple[NewShard, ...]]
"""What was written, and to which shards."""


def publish(
    mixer: Mixer,
    goal: Goal,
    blocks: Iterator[Iterable[pa.Table]],
    release: Callable[[], None],
    is_alone: bool = False,
) -> Written:
    """Write one shard. ``release`` is called once nothing of it is needed from the arena, and always at the end;
    ``is_alone`` says that no other thread is writing."""
    tally = Tally(mixer.digest, mixer.most_written)
    store, path = goal
    tables: Iterable[Iterable[pa.Table]] = map(tally.of, blocks)
    if is_alone:
        tables = _gathered_ahead(mixer, tables)
    writing = mixer.pass_.source.format.write(tables, mixer.plan.profile)
    body = Body(writing, mixer.threads.stop, release)
    try:
        entry = store.publish(path, body, upload_bytes(mixer.plan.buffer_bytes))
    except BaseException as error:
        if not isinstance(error, Exception):
            mixer.threads.stop.set()
            with suppress(BaseException):
                writing.throw(error)  # then it waits for nothing
        raise
    finally:
        try:
            end(writing)
            if is_alone:  # wait for what a failed upload leaves behind, before the memory is used again
                mixer.threads.gathered()
        finally:
            release()
    return tally.total, (NewShard(path, entry.size, body.checksum.digest(), body.blocks),)


def _gathered_ahead(mixer: Mixer, blocks: Iterable[Iterable[pa.Table]]) -> Iterable[Iterable[pa.Table]]:
    """Block by block, if the format writes whole blocks, else slice by slice: a block may be the whole shard."""
    pool = mixer.threads.gatherer
    if mixer.pass_.source.format.traits.is_decoded:
        return ahead(pool, map(list, blocks))
    return (ahead(pool, slices) for slices in blocks)


def publish_together(
    mixer: Mixer, part: Part, shards: Sequence[tuple[str, Indices]], release: Callable[[], None]
) -> Written:
    """Write several small shards, each given by its path and its records, as one call of the store."""
    tally = Tally(mixer.digest, mixer.most_written)
    bodies: list[tuple[str, Body]] = []

    def files() -> Iterator[tuple[str, Body]]:
        for (path, _), tables in zip(shards, part.cut_together([rows for _, rows in shards], tally.of), strict=True):
            body = Body(mixer.pass_.source.format.write([tables], mixer.plan.profile), mixer.threads.stop, _nothing)
            bodies.append((path, body))
            yield bodies[-1]
        release()

    try:
        entries = mixer.target.publish_together(files())
    except BaseException as error:
        if not isinstance(error, Exception):
            mixer.threads.stop.set()
        raise
    finally:
        release()
    return tally.total, tuple(
        NewShard(path, entry.size, body.checksum.digest(), body.blocks)
        for (path, body), entry in zip(bodies, entries, strict=True)
    )


def _nothing() -> None:
    """The memory of a group is free when all shards that are published together are gathered."""


def results_of(futures: "Iterable[Future[Written]]") -> Written:
    """What was written, and to which shards."""
    done = [future.result() for future in futures]
    return sum((part for part, _ in done), Digest()), tuple(shard for _, shards in done for shard in shards)
