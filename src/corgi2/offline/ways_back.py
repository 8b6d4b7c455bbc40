"""How shards that are damaged between two passes are made again."""

from collections.abc import Iterator
from contextlib import contextmanager

from corgi2.errors import ShardError, TooLargeError
from corgi2.offline.planned import Shuffle

_SHOWN = 3


@contextmanager
def naming_ways_back(shuffle: Shuffle) -> Iterator[None]:
    """Makes errors about shards between two passes say how these are made again."""
    try:
        yield
    except ShardError as error:
        maker = shuffle.journal.maker_of(error.shard.removeprefix(f"{shuffle.target.url}/"))
        if maker is not None and not isinstance(error, TooLargeError):
            error.hint = _way_back(shuffle, *maker)
        raise


def _way_back(shuffle: Shuffle, number: int, group: int) -> str:
    """How to get back a shard that a group wrote for the next pass. What later passes read is deleted once consumed."""
    in_place, marker = shuffle.plan.settings.in_place, shuffle.journal.marker_path(number, group)
    if number == 1 and not in_place:
        return f"delete {marker} there, and run the same command again: its group is made again, the others stay"
    if not in_place:
        return "run the same command with restart=True, which discards what was written and starts over"
    if number == 1:
        made_of = [shuffle.index.entries[block].path for block in shuffle.first.groups[group].tolist()]
        names = ", ".join(made_of[:_SHOWN]) + (f" and {len(made_of) - _SHOWN} more" if len(made_of) > _SHOWN else "")
        return f"restore what it was made of from a backup ({names}), delete {marker}, and run the same command again"
    return "what it was made of was consumed: restore it, or the whole folder, from a backup"
