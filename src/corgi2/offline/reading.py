"""The blocks of a group, read side by side into the arena: sound ones, as they were listed, and no more than fit."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from corgi2.budget import buffer_for, buffer_to_hold, option
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.formats import Format
from corgi2.host import release_unused
from corgi2.offline.mixer import Mixer
from corgi2.offline.parts import Hashing, with_more
from corgi2.offline.passes import AT_ONCE
from corgi2.offline.skipped import Skipped
from corgi2.order import Indices
from corgi2.records import Group, Piece, WatchedShard
from corgi2.sizes import format_size

_ENDLESS = 1 << 62


class Read(NamedTuple):
    """Blocks in memory."""

    group: Group
    blocks: Indices
    """Which these are."""
    hashing: Hashing


def read_sound(mixer: Mixer, blocks: Indices, most: int, skipped: list[Skipped]) -> Read | None:
    """The blocks of sound shards; if damaged ones may be left out, these are added to ``skipped``. A block that is
    merely too large for this run is not damaged."""
    pass_ = mixer.pass_
    while len(blocks):
        mixer.arena.clear(most)
        hashing = Hashing(mixer.threads.hashers, mixer.digest)
        crew = mixer.threads.crew
        pieces = pass_.index.pieces(pass_.source, blocks.tolist(), min(AT_ONCE, len(blocks)))
        watched = [replace(piece, file=WatchedShard(piece.file, mixer.advance, mixer.threads.stop)) for piece in pieces]
        try:
            with hashing:
                group = pass_.source.format.read(
                    watched, mixer.arena, mixer.threads.map, hashing.see, decoders=crew.decoders
                )
                _check_unchanged(mixer, blocks)
            mixer.threads.readers.submit(release_unused)
            return Read(group, blocks, hashing)
        except TooLargeError as error:
            error.hint = with_more(max(buffer_to_hold(error.needed), mixer.room_bytes + 1))
            raise
        except ShardError as error:
            if not mixer.plan.settings.skip_bad or pass_.number > 1:  # shards between passes are all our own
                raise
            skipped.append(Skipped.of(error))
            blocks = blocks[[piece.file.name != error.shard for piece in pieces]]
    return None


def _check_unchanged(mixer: Mixer, blocks: Indices) -> None:
    """Check, in place, that what was read is what was listed. A shard that was replaced meanwhile was perhaps read
    in part, and would be deleted for good."""
    pass_, threads = mixer.pass_, mixer.threads
    if not (mixer.plan.settings.in_place and pass_.number == 1):
        return
    shards = np.unique(pass_.index.column("shard")[blocks]).tolist()
    listed = {pass_.source.entries[shard] for shard in shards}
    changed = listed - set(threads.map(pass_.source.store.head, [entry.path for entry in listed]))
    if changed:  # some stores give other etags when they are asked for one object
        changed -= set(pass_.source.store.list())
    if changed:
        first = min(entry.path for entry in changed)
        raise SourceError(
            f"{pass_.source.url}/{first}: has changed while the shuffle in place was at work, or is gone; its "
            "group was not made: run the command again"
        )


def too_large(mixer: Mixer, block: int) -> TooLargeError:
    """The error for a block that does not fit alone, with the buffer that would do: the block is read again, a
    little at a time."""
    pass_ = mixer.pass_
    (piece,) = pass_.index.pieces(pass_.source, [block])
    mixer.arena.give_back()
    footprint = _footprint(pass_.source.format, piece, mixer.room_bytes)
    problem = f"more in memory than the buffer of {format_size(mixer.room_bytes)} holds"
    if footprint is None:
        error = TooLargeError(piece.file.name, piece.start, f"a record takes {problem}")
        error.hint = f"the same command continues with more, such as {option(2 * mixer.room_bytes)}"
        return error
    sizes = np.array([[piece.length], [max(1, piece.records)], [footprint]])
    enough = buffer_for(sizes[2], pass_.source.format.decoding_bytes(*sizes))
    error = TooLargeError(piece.file.name, piece.start, f"takes {format_size(footprint)}, {problem}")
    error.hint = with_more(max(enough, mixer.room_bytes + 1))
    return error


def _footprint(format: Format, piece: Piece, memory: int) -> int | None:
    """What a block takes in memory once it is read, measured with less; None if a record is larger than that."""
    if format.traits.is_tasted_whole:
        return sum(taste.group.footprint for taste in format.taste(piece))
    try:
        return sum(block.footprint for block in format.scan(piece.file, _ENDLESS, memory).blocks)
    except TooLargeError:
        return None
