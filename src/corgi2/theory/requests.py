"""How many requests each method sends to a store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to a store, before training and in all of its epochs."""

    offline: int
    online: int

    @property
    def total(self) -> int:
        return self.offline + self.online


def requests_random_access(examples: int, epochs: int) -> Requests:
    return Requests(0, examples * epochs)


def requests_shuffle_once(examples: int, blocks: int, epochs: int) -> Requests:
    """Every example is fetched, and all blocks are written, then read in order."""
    return Requests(examples + blocks, blocks * epochs)


def requests_corgipile(blocks: int, epochs: int) -> Requests:
    """Reading the shards in order takes just as many."""
    return Requests(0, blocks * epochs)


def requests_corgi2(
    blocks_in: int, blocks_out: int, epochs: int, passes: int = 1, between: int | None = None
) -> Requests:
    """A pass reads and writes every block once. ``between`` blocks lie between two passes."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    middle = blocks_out if between is None else between
    return Requests(blocks_in + 2 * middle * (passes - 1) + blocks_out, blocks_out * epochs)


def requests_rounds(blocks: int, ranges: int, blocks_out: int, epochs: int) -> Requests:
    """Ranges in rounds: every range is read, every new block is written, once."""
    return Requests(blocks * ranges + blocks_out, blocks_out * epochs)


def parts(size: int, part_bytes: int) -> int:
    """Requests for one object that is moved in parts."""
    if part_bytes < 1:
        raise ValueError(f"a part must have at least one byte (got {part_bytes})")
    return max(1, -(-size // part_bytes))
